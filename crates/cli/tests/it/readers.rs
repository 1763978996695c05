//! Several workers that take requests at once (`readers=`).

use crate::clients::workers_of;
use crate::common::{Place, needs_mounts, text};
use std::fs;
use std::path::Path;
use std::thread;

/// The time on a CPU, in nanoseconds, that each worker of a daemon has had.
fn times_of_workers(pid: i32) -> Vec<u64> {
    let time = |task: &String| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{task}/schedstat")).expect("the kernel counts");
        text.split(' ').next().and_then(|t| t.parse().ok()).expect("a number")
    };
    workers_of(pid).iter().map(time).collect()
}

/// Asks what a daemon answers from memory, changes names of its own, and checks what it reads.
fn client(mnt: &Path, n: usize) {
    let dir = mnt.join(n.to_string());
    fs::create_dir(&dir).unwrap();
    for round in 0..300_usize {
        for _ in 0..10 {
            rustix::fs::statvfs(&dir).unwrap();
        }
        let (new, old) = (dir.join("new"), dir.join((round % 4).to_string()));
        let content = format!("{n} {round}");
        fs::write(&new, &content).unwrap();
        fs::rename(&new, &old).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), content);
        if round % 4 == 3 {
            fs::remove_file(&old).unwrap();
        }
    }
}

/// Eight clients keep more than one of four readers busy, and each gets what it asked for.
#[test]
fn requests_of_a_crowd_are_taken_by_as_many_workers_as_readers_allows() {
    const CLIENTS: usize = 8;
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("readers=4");
    let mnt = place.mnt();
    thread::scope(|scope| {
        let mnt = &mnt;
        for n in 0..CLIENTS {
            scope.spawn(move || client(mnt, n));
        }
    });
    let times = times_of_workers(m.pid);
    let busy = times.iter().filter(|t| **t >= times.iter().sum::<u64>() / 20).count();
    assert!(busy > 1, "one worker answered nearly all: {times:?} ns ({})", text(&mnt));
    for n in 0..CLIENTS {
        let names = fs::read_dir(mnt.join(n.to_string())).unwrap().count();
        assert_eq!(names, 3, "of client {n}");
    }
    m.unmount();
    place.check();
}
