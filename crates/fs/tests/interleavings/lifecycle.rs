//! Freeze, thaw and close beside callers that write and sync.

use super::{KIB, ROUTES, after_crash, crashed, create, device, join, mount, read, write};
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_fs::{Lead, Phase, Route, Volume, fsync_then};
use quire_layout::Ino;
use quire_layout::features::incompat;
use quire_layout::superblock::Superblock;
#[cfg(feature = "mutants")]
use quire_testkit::interleave::finds;
use quire_testkit::interleave::{below, explore};

/// What a writer has done.
#[derive(Default)]
struct Counts {
    /// KiB that were written, and that an fsync has made durable.
    written: Mutex<u64>,
    synced: Mutex<u64>,
    /// Fsyncs that were asked for, and that were answered.
    asked: Mutex<u64>,
    told: Mutex<u64>,
}

/// Appends three KiB, with an fsync of each, until the volume refuses. Some fsyncs give up their thread if `suspends`.
fn append(v: &Volume, ino: Ino, suspends: bool, counts: &Arc<Counts>) {
    for n in 0..3 {
        if write(v, ino, n..n + 1, 7).is_err() {
            return;
        }
        *lock(&counts.written) = n + 1;
        if suspends && below(2) == 0 {
            let counts = counts.clone();
            let lead = if below(2) == 0 { Lead::Once } else { Lead::UntilNobodyWaits };
            fsync_then(v, &[ino], false, lead, move |outcome| {
                *lock(&counts.told) += 1;
                if outcome.is_ok() {
                    let mut synced = lock(&counts.synced);
                    *synced = (n + 1).max(*synced);
                }
            });
        } else {
            *lock(&counts.told) += 1;
            if v.fsync(ino, false).is_err() {
                return;
            }
            *lock(&counts.synced) = n + 1;
        }
        *lock(&counts.asked) += 1;
    }
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
    let counts = Arc::new(Counts::default());
    let (writer, told) = (v.clone(), counts.clone());
    let appends = thread::spawn(move || append(&writer, ino, suspends, &told));
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
    assert!(*lock(&counts.told) >= *lock(&counts.asked), "J12: a suspended fsync is answered");
    let closed = v.status().phase == Phase::Closed;
    assert!(closed || v.status().phase == Phase::Running);
    // A close writes what no fsync has asked for.
    let least = *lock(if closed { &counts.written } else { &counts.synced });
    drop(v);
    let after = crashed(&d);
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
                fsync_then(&v, &[ino], false, Lead::Once, move |outcome| {
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
    let after = crashed(&d);
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

/// N3, F15: an unlinked file loses its last reference while a thaw looks for such files, and a new file may get its
/// number. What was written to the new file is there, also after a crash.
fn forget_beside_thaw() {
    let d = device();
    let v = Arc::new(mount(&d, Route::Ordered));
    let old = create(&v, "old").unwrap();
    write(&v, old, 0..2, 1).unwrap();
    v.unlink(Ino::ROOT, b"old").unwrap();
    v.maintenance().freeze().unwrap();
    let (thaws, forgets) = (v.clone(), v.clone());
    let threads = vec![
        thread::spawn(move || thaws.maintenance().thaw().unwrap()),
        thread::spawn(move || forgets.forget(old, 1)),
        thread::spawn({
            let v = v.clone();
            move || {
                let new = create(&v, "new").unwrap();
                write(&v, new, 0..2, 7).unwrap();
                v.fsync(new, false).unwrap();
            }
        }),
    ];
    join(threads);
    let is_whole = |v: &Volume| read(v, "new") == Some(vec![7; 2048]);
    assert!(is_whole(&v), "the new file lost what was written to it");
    assert!(v.maintenance().unlinked().is_empty(), "the old file was freed");
    v.fsync(Ino::ROOT, false).unwrap();
    drop(v);
    assert!(is_whole(&after_crash(&d, Route::Ordered)), "the new file lost what was synced");
}

#[test]
fn a_thaw_beside_the_last_forget_takes_nothing_from_a_new_file() {
    explore(2000, forget_beside_thaw);
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
