//! What deleting a file costs Quire itself, without FUSE and without a disk: the calls that the kernel makes of `rm`
//! for each file.
//!
//! `cargo run --release -p quire-fs --example delete_cost [profile]`

use quire_device::TickClock;
use quire_device::sync::Arc;
use quire_fs::{Attributes, Cred, Devices, New, NewKind, Options, Profile, SetAttr, SetTime, Volume, WriteFlags};
use quire_layout::Ino;
use quire_testkit::MemDevice;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
const DIRS: usize = 250;
/// Files in a directory.
const FILES: usize = 40;
const CALLS: [&str; 5] = [
    "getattr of the directory",
    "unlink",
    "times of the file that goes",
    "forget and free",
    "listing of known names to the end",
];

type Made = (Ino, Vec<(String, Ino)>);

fn make(v: &Volume) -> Vec<Made> {
    let new = |kind| New { kind, mode: 0o755, umask: 0, cred: Cred { uid: 0, gid: 0 } };
    let dir = |d| {
        let dir = v.create(Ino::ROOT, format!("dir{d}").as_bytes(), &new(NewKind::Dir)).expect("mkdir").ino;
        let file = |f| {
            let name = format!("file{f:06}");
            let ino = v.create(dir, name.as_bytes(), &new(NewKind::File)).expect("create").ino;
            v.write(ino, 0, &[7; 5000][..(f * 613) % 5000], WriteFlags::default()).expect("write");
            (name, ino)
        };
        (dir, (0..FILES).map(file).collect())
    };
    let made = (0..DIRS).map(dir).collect();
    v.fsync(Ino::ROOT, false).expect("fsync");
    v.sync().expect("sync");
    made
}

fn delete(v: &Volume, made: &[Made]) -> [Duration; 5] {
    let mut spent = [Duration::ZERO; 5];
    let times = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    for (n, (dir, files)) in made.iter().enumerate() {
        let start = Instant::now();
        let mut cookie = 0;
        loop {
            let before = cookie;
            v.readdir_plus(*dir, cookie, Attributes::Unreferenced, &mut |item, _| {
                cookie = item.next_cookie;
                true
            })
            .expect("list");
            if cookie == before {
                break;
            }
        }
        spent[4] += start.elapsed();
        for (name, ino) in files {
            let start = Instant::now();
            v.getattr(*dir).expect("getattr");
            let known = start.elapsed();
            v.unlink(*dir, name.as_bytes()).expect("unlink");
            let gone = start.elapsed();
            v.setattr(*ino, &times).expect("times");
            let told = start.elapsed();
            v.forget(*ino, 1);
            let all = start.elapsed();
            for (sum, t) in spent.iter_mut().zip([known, gone - known, told - gone, all - told]) {
                *sum += t;
            }
        }
        v.rmdir(Ino::ROOT, format!("dir{n}").as_bytes()).expect("rmdir");
        v.forget(*dir, 1);
    }
    spent
}

fn main() {
    let bytes = quire_testkit::mke2fs("256M", &["-t", "ext4", "-b", "4096"]);
    let devices = Devices::one(Arc::new(MemDevice::new(bytes)));
    let profile: Profile = std::env::args().nth(1).map_or(Profile::Auto, |p| p.parse().expect("a profile"));
    let options = Options { cache_bytes: 64 << 20, ..Options::default() }.with(profile.choices());
    let v = Volume::open(devices, Arc::new(TickClock), options).expect("mount");
    let rounds: Vec<_> = (0..ROUNDS).map(|_| delete(&v, &make(&v))).collect();
    let files = u32::try_from(DIRS * FILES).expect("small");
    let mut sum = Duration::ZERO;
    for (n, call) in CALLS.iter().enumerate() {
        let mut times: Vec<_> = rounds.iter().map(|r| r[n] / files).collect();
        times.sort_unstable();
        sum += times[ROUNDS / 2];
        println!("{call}: median of {ROUNDS} rounds {:?}, least {:?}", times[ROUNDS / 2], times[0]);
    }
    println!("a file: {sum:?}");
    v.close().expect("close");
}
