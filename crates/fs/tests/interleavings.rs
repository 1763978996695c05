//! File data under explored interleavings of threads: writers, fsyncs, truncates, rounds and evictions on one small
//! volume, whose power may go at any step: `cargo test -p quire-fs --features shuttle --test interleavings`.
//!
//! Every scenario also shows that nobody waits for ever: a deadlock is a failure.

#[path = "interleavings/readers.rs"]
mod readers;

use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_fs::{Cred, Devices, Falloc, New, NewKind, Options, Phase, Profile, Route, Volume, WriteFlags};
use quire_layout::Ino;
use quire_layout::features::incompat;
use quire_layout::superblock::Superblock;
#[cfg(feature = "mutants")]
use quire_testkit::interleave::finds;
use quire_testkit::interleave::{below, explore};
use quire_testkit::{Image, PowerLossDevice, PowerLossOptions, VirtualClock};
use quire_testkit::{fsck, mke2fs};
use std::sync::OnceLock;

const KIB: u64 = 1024;

/// A fresh image; made once.
fn base() -> Image {
    static BASE: OnceLock<Image> = OnceLock::new();
    let make =
        || Image::from_bytes(&mke2fs("3M", &["-t", "ext4", "-b", "1024", "-N", "64", "-J", "size=1", "-m", "0"]));
    BASE.get_or_init(make).clone()
}

fn device() -> Arc<PowerLossDevice> {
    Arc::new(PowerLossDevice::from_image(base(), PowerLossOptions::default()))
}

fn mount(d: &Arc<PowerLossDevice>, route: Route) -> Volume {
    let options = Options { route, cache_bytes: 1 << 18, direct_bytes: usize::MAX, ..Options::default() };
    let options = if route == Route::Auto { options.with(Profile::Auto.choices()) } else { options };
    Volume::open(Devices::one(d.clone()), Arc::new(VirtualClock::default()), options).expect("mount")
}

fn create(v: &Volume, name: &str) -> quire_fs::Result<Ino> {
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    v.create(Ino::ROOT, name.as_bytes(), &new).map(|a| a.ino)
}

fn write(v: &Volume, ino: Ino, kib: std::ops::Range<u64>, fill: u8) -> quire_fs::Result<()> {
    let len = usize::try_from((kib.end - kib.start) * KIB).unwrap();
    v.write(ino, kib.start * KIB, &vec![fill; len], WriteFlags::default()).map(drop)
}

fn read(v: &Volume, name: &str) -> Option<Vec<u8>> {
    let a = v.lookup(Ino::ROOT, name.as_bytes()).ok()?;
    let mut data = vec![0; usize::try_from(a.size).unwrap()];
    let n = v.read(a.ino, 0, &mut data).expect("a sound file");
    data.truncate(n);
    v.forget(a.ino, 1);
    Some(data)
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// What a crash now leaves, mounted.
fn after_crash(d: &Arc<PowerLossDevice>, route: Route) -> Volume {
    let image = d.crash(below(1 << 20)).image;
    let there = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
    let v = mount(&there, route);
    if below(8) == 0 {
        v.close().expect("unmount");
        fsck(&there.live().to_vec());
        return mount(&there, route);
    }
    v
}

const ROUTES: [Route; 2] = [Route::Ordered, Route::Journal];

/// F2, F5, F8, F15: two writers with a part of the file each, who fsync; a third changes its size and punches behind
/// them; rounds and syncs go on. What was synced is there, and every byte is one that its writer wrote no earlier than
/// that.
#[test]
fn writers_fsyncs_truncates_and_rounds_share_a_file() {
    explore(600, || {
        let route = ROUTES[usize::try_from(below(2)).unwrap()];
        let d = device();
        let v = Arc::new(mount(&d, route));
        let ino = create(&v, "shared").unwrap();
        v.truncate(ino, 8 * KIB).unwrap();
        v.sync().unwrap();
        let synced: Arc<Mutex<[u8; 2]>> = Arc::default();
        if below(2) == 0 {
            d.cut_at(d.steps() + 1 + below(40));
        }
        let mut threads: Vec<_> = (0..2u8)
            .map(|n| {
                let (v, synced) = (v.clone(), synced.clone());
                let from = u64::from(n) * 4;
                thread::spawn(move || {
                    for fill in 1..=3 {
                        if write(&v, ino, from..from + 4, fill).is_err() || v.fsync(ino, n == 0).is_err() {
                            return;
                        }
                        lock(&synced)[usize::from(n)] = fill;
                    }
                })
            })
            .collect();
        let sizes = v.clone();
        threads.push(thread::spawn(move || {
            let _ = sizes.truncate(ino, 12 * KIB);
            let _ = write(&sizes, ino, 9..11, 7);
            let _ = sizes.fallocate(ino, Falloc::PunchHole, 9 * KIB, 3 * KIB);
            let _ = sizes.truncate(ino, 8 * KIB);
        }));
        let rounds = v.clone();
        threads.push(thread::spawn(move || {
            let _ = (rounds.maintenance().step(), rounds.sync(), rounds.maintenance().checkpoint());
        }));
        join(threads);
        let check = |data: &[u8], least: [u8; 2]| {
            assert!(data.len() as u64 >= 8 * KIB, "{} bytes", data.len());
            for (n, part) in data[..8 << 10].chunks(4 << 10).enumerate() {
                let wrong = part.iter().position(|b| *b < least[n] || *b > 3);
                assert_eq!(wrong, None, "part {n}: {:?}, {} was synced", wrong.map(|w| part[w]), least[n]);
            }
            assert!(data[8 << 10..].iter().all(|b| [0, 7].contains(b)));
        };
        let least = *lock(&synced);
        if !d.is_cut() {
            assert_eq!(least, [3, 3]);
            check(&read(&v, "shared").unwrap(), least);
        }
        drop(v);
        check(&read(&after_crash(&d, route), "shared").expect("it was synced"), least);
    });
}

/// A2, F3, F11, N1: files are unlinked while their data is on its way, and others take their blocks. Nobody finds
/// another's bytes.
#[test]
fn what_is_unlinked_leaves_nothing_behind() {
    explore(500, || {
        let route = ROUTES[usize::try_from(below(2)).unwrap()];
        let d = device();
        let v = Arc::new(mount(&d, route));
        // So full that freed blocks are wanted.
        let filler = create(&v, "filler").unwrap();
        let free = v.statfs().free;
        let fill = |leave| v.fallocate(filler, Falloc::Allocate { keep_size: false }, 0, (free - leave) * KIB);
        (20..200).step_by(10).find(|leave| fill(*leave).is_ok()).expect("a file that fills the volume");
        let threads = (0..3u8).map(|n| {
            let v = v.clone();
            thread::spawn(move || {
                for round in 0..2 {
                    let name = format!("{n}-{round}");
                    let Ok(ino) = create(&v, &name) else { continue };
                    let written = write(&v, ino, 0..6, n + 1).is_ok();
                    if below(2) == 0 {
                        let _ = v.fsync(ino, false);
                    }
                    if round == 0 || !written {
                        v.unlink(Ino::ROOT, name.as_bytes()).unwrap();
                    }
                    v.forget(ino, 1);
                }
            })
        });
        let mut threads: Vec<_> = threads.collect();
        let background = v.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..3 {
                let _ = (background.maintenance().step(), background.maintenance().checkpoint());
            }
        }));
        join(threads);
        let check = |v: &Volume| {
            for n in 0..3u8 {
                let data = read(v, &format!("{n}-1")).unwrap_or_default();
                assert!(data.iter().all(|b| [0, n + 1].contains(b)), "file {n} has bytes of another");
            }
        };
        check(&v);
        drop(v);
        check(&after_crash(&d, route));
    });
}

/// N8, F15, F10: names come, move and go in one directory by several threads, each with fsyncs: what was synced is
/// there after a crash, under the name it had or got.
#[test]
fn names_that_were_synced_are_there() {
    explore(500, || {
        let d = device();
        let v = Arc::new(mount(&d, Route::Ordered));
        d.cut_at(d.steps() + 1 + below(60));
        let synced: Arc<Mutex<Vec<(String, u8)>>> = Arc::default();
        let threads = (0..3u8).map(|n| {
            let (v, synced) = (v.clone(), synced.clone());
            thread::spawn(move || {
                let work = || -> quire_fs::Result<()> {
                    let (old, new) = (format!("old {n}"), format!("new {n}"));
                    let ino = create(&v, &old)?;
                    write(&v, ino, 0..2, n + 1)?;
                    v.rename(Ino::ROOT, old.as_bytes(), Ino::ROOT, new.as_bytes(), Default::default())?;
                    v.fsync(if n == 0 { Ino::ROOT } else { ino }, false)?;
                    lock(&synced).push((new, n + 1));
                    v.forget(ino, 1);
                    Ok(())
                };
                let _ = work();
            })
        });
        let mut threads: Vec<_> = threads.collect();
        let background = v.clone();
        threads.push(thread::spawn(move || {
            let _ = (background.maintenance().step(), background.sync());
        }));
        join(threads);
        drop(v);
        let v = after_crash(&d, Route::Ordered);
        for (name, fill) in lock(&synced).iter() {
            let data = read(&v, name);
            let whole = data.as_ref().is_some_and(|d| d.len() == 2048 && d.iter().all(|b| b == fill));
            assert!(whole, "{name}: {:?}", data.map(|d| d.len()));
        }
    });
}

/// Q5, F15, F16: beside small commits the background writes a stream in place and names it. The file may be wanted
/// meanwhile. What was synced is there, requests are whole, and nobody finds what the blocks held before.
#[test]
fn rounds_beside_commits_keep_what_they_must() {
    const REQUEST: u64 = 20;
    explore(1500, || {
        let d = device();
        let v = Arc::new(mount(&d, Route::Auto));
        let old = create(&v, "old").unwrap();
        for n in 0..4 {
            write(&v, old, n * REQUEST..(n + 1) * REQUEST, 0xEE).unwrap();
            v.fsync(old, false).unwrap();
        }
        v.unlink(Ino::ROOT, b"old").unwrap();
        v.forget(old, 1);
        let (stream, small) = (create(&v, "stream").unwrap(), create(&v, "small").unwrap());
        v.sync().unwrap();
        v.maintenance().checkpoint().unwrap();
        let commit = move |v: &Volume, fill| write(v, small, 0..1, fill).and_then(|()| v.fsync(small, false));
        (0..4).for_each(|_| commit(&v, 9).unwrap());
        assert!(v.status().commits_are_frequent);
        if below(4) > 0 {
            d.cut_at(d.steps() + 1 + below(40));
        }
        // Requests of the stream, and the fill of the small file.
        let synced: Arc<Mutex<(u64, u8)>> = Arc::new(Mutex::new((0, 9)));
        let mut threads = Vec::new();
        let (writer, told) = (v.clone(), synced.clone());
        threads.push(thread::spawn(move || {
            for n in 0..2 {
                let request = n * REQUEST..(n + 1) * REQUEST;
                if write(&writer, stream, request, u8::try_from(n + 1).unwrap()).is_err() {
                    return;
                }
                if below(2) == 0 && writer.fsync(stream, true).is_ok() {
                    lock(&told).0 = n + 1;
                }
            }
        }));
        let (committer, told) = (v.clone(), synced.clone());
        threads.push(thread::spawn(move || {
            for fill in 10..16 {
                if commit(&committer, fill).is_err() {
                    return;
                }
                lock(&told).1 = fill;
            }
        }));
        let background = v.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..3 {
                let _ = background.maintenance().step();
            }
        }));
        let (other, does) = (v.clone(), below(4));
        let cuts = does == 0;
        threads.push(thread::spawn(move || {
            let _ = match does {
                0 => other.truncate(stream, 10 * KIB),
                1 => other.sync(),
                _ => Ok(()),
            };
        }));
        join(threads);
        let (requests, fill) = *lock(&synced);
        drop(v);
        let v = after_crash(&d, Route::Auto);
        let small = read(&v, "small").expect("it was synced");
        assert!(
            small.len() == 1024 && small.iter().all(|b| *b == small[0]) && small[0] >= fill,
            "{} of {fill}",
            small[0]
        );
        let data = read(&v, "stream").expect("it was synced");
        let len = data.len() as u64;
        for (n, part) in (1..).zip(data.chunks(usize::try_from(REQUEST * KIB).unwrap())) {
            // Cut off before it was written.
            let hole = cuts && part.iter().all(|b| *b == 0 || *b == n);
            assert!(hole || part.iter().all(|b| *b == n), "request {n} of {len} bytes");
        }
        assert!(
            cuts || (len % (REQUEST * KIB) == 0 && len >= requests * REQUEST * KIB),
            "{len} bytes, {requests} synced"
        );
    });
}

/// L1: the volume is closed, or frozen and thawed, while a writer appends and syncs. Each fsync that succeeded before
/// the writer was refused is in the image; that of a closed volume has each write, and is marked clean.
fn lifecycle(suspends: bool) {
    let route = ROUTES[usize::try_from(below(2)).unwrap()];
    let d = device();
    let v = Arc::new(mount(&d, route));
    let ino = create(&v, "log").unwrap();
    v.fsync(Ino::ROOT, false).unwrap();
    let freezes = below(3) > 0;
    let synced = Arc::new(Mutex::new(0));
    let written = Arc::new(Mutex::new(0));
    let (asked, told) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let (writer, count, all_written) = (v.clone(), synced.clone(), written.clone());
    let (all_asked, all_told) = (asked.clone(), told.clone());
    let appends = thread::spawn(move || {
        for n in 0..3 {
            if write(&writer, ino, n..n + 1, 7).is_err() {
                return;
            }
            *lock(&all_written) = n + 1;
            if suspends && below(2) == 0 {
                let (count, told) = (count.clone(), told.clone());
                let lead = if below(2) == 0 { quire_fs::Lead::Once } else { quire_fs::Lead::UntilNobodyWaits };
                quire_fs::fsync_then(&writer, &[ino], false, lead, move |outcome| {
                    *lock(&told) += 1;
                    if outcome.is_ok() {
                        let mut count = lock(&count);
                        *count = (n + 1).max(*count);
                    }
                });
            } else {
                *lock(&told) += 1;
                if writer.fsync(ino, false).is_err() {
                    return;
                }
                *lock(&count) = n + 1;
            }
            *lock(&asked) += 1;
        }
    });
    // It leads, and then has to serve the callers that are suspended meanwhile.
    let syncer = suspends.then(|| {
        let v = v.clone();
        thread::spawn(move || drop(v.sync()))
    });
    let other = freezes.then(|| {
        let v = v.clone();
        thread::spawn(move || {
            // Either may be refused: another caller thaws and closes.
            let _ = (v.maintenance().freeze(), v.maintenance().thaw());
        })
    });
    if freezes {
        // Another caller's thaw meets every phase of the freeze.
        let _ = v.maintenance().thaw();
    }
    let steps = (below(2) == 0).then(|| {
        v.close().expect("a sound device");
        d.steps()
    });
    appends.join().unwrap();
    other.into_iter().chain(syncer).for_each(|t| t.join().unwrap());
    assert!(steps.is_none_or(|steps| steps == d.steps()), "a closed volume writes nothing");
    assert!(*lock(&all_told) >= *lock(&all_asked), "J12: a suspended fsync is answered");
    let closed = v.status().phase == Phase::Closed;
    assert!(closed || v.status().phase == Phase::Running);
    // A close writes what no fsync has asked for.
    let least = *lock(if closed { &written } else { &synced });
    drop(v);
    let image = d.crash(below(1 << 20)).image;
    let after = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
    if closed {
        let sb = Superblock::decode(&after.live().to_vec()[1024..]).expect("a superblock");
        assert!(!sb.features().has_incompat(incompat::RECOVER), "a closed image is clean");
    }
    let data = read(&mount(&after, route), "log").expect("its name was synced");
    assert!(data.len() as u64 >= least * KIB, "{} bytes for {least} KiB", data.len());
    assert!(data.iter().all(|b| *b == 7));
}

#[test]
fn close_and_freeze_beside_a_writer_keep_every_successful_fsync() {
    explore(3000, || lifecycle(false));
}

/// L1, J12: the same with fsyncs that give up their thread, beside a caller that commits for itself.
#[test]
fn close_and_freeze_beside_suspended_fsyncs_answer_each_of_them() {
    explore(1500, || lifecycle(true));
}

/// L2: the volume is frozen, or thawed, beside fsyncs that give up their thread. All are answered when that has ended,
/// and nothing else has to come.
fn phase_ends() {
    const EACH: u32 = 3;
    let d = device();
    let v = mount(&d, Route::Ordered);
    let ino = create(&v, "log").unwrap();
    write(&v, ino, 0..1, 7).unwrap();
    let thaws = below(2) == 0;
    if thaws {
        v.maintenance().freeze().unwrap();
    }
    let told = Arc::new(Mutex::new(0));
    let callers = (0..2).map(|_| {
        let (v, told) = (v.clone(), told.clone());
        thread::spawn(move || {
            for _ in 0..EACH {
                let told = told.clone();
                quire_fs::fsync_then(&v, &[ino], false, quire_fs::Lead::Once, move |outcome| {
                    outcome.expect("a sound device");
                    *lock(&told) += 1;
                });
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let phase = if thaws { v.maintenance().thaw() } else { v.maintenance().freeze() };
    phase.expect("nobody else does");
    join(callers);
    assert_eq!(*lock(&told), 2 * EACH, "each fsync is answered once");
}

#[test]
fn the_end_of_a_phase_answers_every_suspended_fsync() {
    explore(1000, phase_ends);
}

/// L1, L2: two writers that sync, and callers who freeze, thaw and close, all at once; the power may go at any step.
/// What was synced is there. An image whose close or last freeze succeeded is clean; one in use is not marked clean.
fn several_callers() {
    let route = ROUTES[usize::try_from(below(2)).unwrap()];
    let d = device();
    let v = Arc::new(mount(&d, route));
    let inos = ["w0", "w1"].map(|name| create(&v, name).unwrap());
    v.sync().unwrap();
    if below(2) == 0 {
        d.cut_at(d.steps() + 1 + below(40));
    }
    let synced: Arc<Mutex<[u64; 2]>> = Arc::default();
    let mut threads: Vec<_> = (0..2)
        .map(|n| {
            let (v, synced, ino) = (v.clone(), synced.clone(), inos[n]);
            thread::spawn(move || {
                for k in 0..2 {
                    if write(&v, ino, k..k + 1, 7).is_err() || v.fsync(ino, false).is_err() {
                        return;
                    }
                    lock(&synced)[n] = k + 1;
                }
            })
        })
        .collect();
    // A caller who freezes thaws, too; somebody else may have done so before, or closed.
    threads.extend((0..2).map(|_| {
        let (v, d) = (v.clone(), d.clone());
        thread::spawn(move || {
            let thawed = v.maintenance().freeze().is_ok() && v.maintenance().thaw().is_ok();
            if !thawed && d.is_cut() {
                // A volume that cannot be thawed keeps its writers waiting until it is closed.
                let _ = v.close();
            }
        })
    }));
    let thaws = v.clone();
    threads.push(thread::spawn(move || drop(thaws.maintenance().thaw())));
    let closes = below(2) == 0;
    let mut closers = Vec::new();
    if closes {
        closers.extend((0..2).map(|_| {
            let v = v.clone();
            thread::spawn(move || v.close().is_ok())
        }));
    }
    let closed = closers.into_iter().map(|c| c.join().unwrap()).fold(closes, |all, ok| all && ok);
    join(threads);
    let phase = v.status().phase;
    let least = *lock(&synced);
    drop(v);
    let image = d.crash(below(1 << 20)).image;
    let after = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
    let sb = Superblock::decode_unverified(&after.live().to_vec()[1024..]).expect("a superblock");
    let in_use = sb.features().has_incompat(incompat::RECOVER);
    match phase {
        Phase::Closed if closed && !d.is_cut() => assert!(!in_use, "a closed image is clean"),
        // Nothing can be written behind the mark of a freeze that the power has stopped.
        Phase::Running => assert!(in_use || d.is_cut(), "a volume in use is marked clean"),
        _ => {}
    }
    let v = mount(&after, route);
    for (n, least) in least.into_iter().enumerate() {
        let data = read(&v, &format!("w{n}")).expect("its name was synced");
        assert!(data.len() as u64 >= least * KIB, "writer {n}: {} bytes, {least} KiB were synced", data.len());
        assert!(data.iter().all(|b| *b == 7));
    }
}

#[test]
fn several_callers_freeze_thaw_and_close_beside_writers() {
    explore(1000, several_callers);
}

/// Broken volumes that only threads bring to light are found.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_the_lifecycle_is_found() {
    use quire_device::Mutant;
    for mutant in Mutant::OF_LIFECYCLE {
        Mutant::set(Some(mutant));
        // It ends with the first schedule that shows it.
        let found = match mutant {
            Mutant::CloseWithoutDrain => finds(200_000, || lifecycle(false)),
            Mutant::PhaseEndMissed => finds(200_000, phase_ends),
            _ => finds(200_000, several_callers),
        };
        Mutant::set(None);
        assert!(found, "{mutant:?} is not found");
    }
}
