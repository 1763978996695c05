//! File data under explored interleavings of threads: writers, fsyncs, truncates, batches and evictions on one small
//! volume, whose power may go at any step: `cargo test -p quire-fs --features shuttle --test interleavings`.
//!
//! Every scenario also shows that nobody waits for ever: a deadlock is a failure.

#[path = "interleavings/direct.rs"]
mod direct;
#[path = "interleavings/lifecycle.rs"]
mod lifecycle;
#[path = "interleavings/readers.rs"]
mod readers;

use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_fs::{Cred, Devices, Falloc, New, NewKind, Options, Profile, Route, Volume, WriteFlags};
use quire_layout::Ino;
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
    mount_with(d, route, usize::MAX)
}

/// Requests of at least `direct_bytes` go to the device without pages.
fn mount_with(d: &Arc<PowerLossDevice>, route: Route, direct_bytes: usize) -> Volume {
    let options = Options { route, cache_bytes: 1 << 18, direct_bytes, ..Options::default() };
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

/// A device that holds what a crash now leaves.
fn crashed(d: &PowerLossDevice) -> Arc<PowerLossDevice> {
    Arc::new(PowerLossDevice::from_image(d.crash(below(1 << 20)).image, PowerLossOptions::default()))
}

/// What a crash now leaves, mounted.
fn after_crash(d: &Arc<PowerLossDevice>, route: Route) -> Volume {
    let there = crashed(d);
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
/// them; batches and syncs go on. What was synced is there, and every byte is one that its writer wrote no earlier than
/// that.
#[test]
fn writers_fsyncs_truncates_and_batches_share_a_file() {
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
        let background = v.clone();
        threads.push(thread::spawn(move || {
            let _ = (background.maintenance().step(), background.sync(), background.maintenance().checkpoint());
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
fn batches_beside_commits_keep_what_they_must() {
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
