//! Power losses under writers: what an fsync covered is there, and nobody's old bytes are.

use super::{Numbers, file, image, options};
use crate::config::{Profile, Route};
use crate::data::{Falloc, WriteFlags};
use crate::error::Error;
use crate::{Devices, Options, Volume};
use quire_device::SystemClock;
use quire_device::sync::Arc;
use quire_layout::Ino;
use quire_testkit::MemDevice;
use quire_testkit::crash::Crash;
use quire_testkit::fsck;
use quire_testkit::image::Image;
use quire_testkit::powerloss::{Completion, PowerLossDevice, PowerLossOptions};

pub(super) const FILES: u32 = 3;
/// What the free blocks of the image hold: it must never be seen.
const STALE: u8 = 0xAA;
pub(super) const RUNS: u64 = 8;
pub(super) const CRASHES: u64 = 9;

/// An image whose free blocks are full of somebody's old data.
pub(super) fn used_image(args: &[&str]) -> Vec<u8> {
    let device = Arc::new(MemDevice::new(image("8M", &[&["-m", "0"], args].concat(), FILES)));
    let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options(Route::Ordered)).expect("mount");
    let mut at = 0;
    while v.write(file(0), at, &[STALE; 16 << 10], WriteFlags::default()).is_ok() {
        at += 16 << 10;
    }
    v.sync().expect("sync");
    v.truncate(file(0), 0).expect("truncate");
    v.close().expect("unmount");
    device.snapshot()
}

/// The files after some operation.
pub(super) type Files = Vec<Vec<u8>>;

/// States of the files, one after each operation; and the last that an fsync of each file covers.
pub(super) struct History {
    pub(super) states: Vec<Files>,
    synced: Vec<usize>,
}

impl History {
    /// The first state that has all that the last fsync of file `n` covered.
    pub(super) fn durable_from(&self, n: usize) -> usize {
        let covered = &self.states[self.synced[n]][n];
        (0..self.synced[n]).rev().find(|i| self.states[*i][n] != *covered).map_or(0, |i| i + 1)
    }
}

pub(super) fn work(v: &Volume, r: &mut Numbers, steps: u64) -> History {
    work_in_requests(v, r, steps, [9000, 5000])
}

/// The same, with appends and overwrites of at most so many bytes.
fn work_in_requests(v: &Volume, r: &mut Numbers, steps: u64, [append, overwrite]: [u64; 2]) -> History {
    let mut h = History { states: vec![vec![Vec::new(); 3]], synced: vec![0; 3] };
    for _ in 0..steps {
        let n = usize::try_from(r.below(u64::from(FILES))).unwrap();
        let ino = file(u32::try_from(n).unwrap());
        let mut files = h.states.last().unwrap().clone();
        match r.below(4) {
            0 => {
                if v.fsync(ino, r.below(2) == 0).is_err() {
                    return h;
                }
                h.synced[n] = h.states.len() - 1;
                continue;
            }
            1 => {
                let data: Vec<u8> =
                    r.bytes(usize::try_from(r.0 % append + 1).unwrap()).iter().map(|b| b % 100 + 1).collect();
                let at_end = WriteFlags { append: true, ..WriteFlags::default() };
                files[n].extend(&data);
                // What the power cuts short may be there as well.
                h.states.push(files);
                if v.write(ino, 0, &data, at_end).is_err() {
                    return h;
                }
            }
            _ => {
                let data: Vec<u8> =
                    r.bytes(usize::try_from(r.0 % overwrite + 1).unwrap()).iter().map(|b| b % 100 + 1).collect();
                let at = usize::try_from(r.below(60_000)).unwrap();
                let end = files[n].len().max(at + data.len());
                files[n].resize(end, 0);
                files[n][at..at + data.len()].copy_from_slice(&data);
                h.states.push(files);
                if v.write(ino, at as u64, &data, WriteFlags::default()).is_err() {
                    return h;
                }
            }
        }
    }
    h
}

/// In place: each byte is as the last fsync left it, or as some later operation did; new ones may still be zero.
pub(super) fn check_in_place(h: &History, n: usize, got: &[u8]) {
    let states: Vec<&Vec<u8>> = h.states[h.synced[n]..].iter().map(|files| &files[n]).collect();
    assert!(got.len() >= states[0].len(), "{} bytes, of {} that are durable", got.len(), states[0].len());
    assert!(got.len() <= states.last().unwrap().len(), "a size that never was");
    for (i, b) in got.iter().enumerate() {
        let ever = states.iter().any(|s| s.get(i) == Some(b)) || (*b == 0 && i >= states[0].len());
        assert!(ever, "byte {i} is {b:#x}, which was never there (or not any more)");
    }
}

/// A volume on a device that loses its power after some steps.
fn until_power_loss(start: &[u8], o: &Options, r: &mut Numbers, steps: u64) -> (Arc<PowerLossDevice>, Volume) {
    let options = o.clone();
    let o = PowerLossOptions { completion: Completion::AtWait, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(Image::from_bytes(start), o));
    let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options).expect("mount");
    device.cut_at(device.steps() + r.below(steps) + 5);
    (device, v)
}

/// What a mount after a crash reads, and e2fsck's word on the image.
fn recovered(crash: &Crash, options: &Options, what: &str) -> Files {
    let device = Arc::new(MemDevice::new(crash.image.to_vec()));
    let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options.clone())
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    let files = read_all(&v, what);
    v.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    fsck(&device.snapshot());
    files
}

pub(super) fn read_all(v: &Volume, what: &str) -> Files {
    let read = |n| {
        let mut buf = vec![0; 1 << 20];
        let len = v.read(file(n), 0, &mut buf).unwrap_or_else(|e| panic!("{what}: {e}"));
        buf.truncate(len);
        buf
    };
    (0..FILES).map(read).collect()
}

fn run(route: Route, args: &[&str]) {
    let start = used_image(args);
    for seed in 1..=RUNS {
        let mut r = Numbers(seed * 0x1234_5679);
        let (device, v) = until_power_loss(&start, &options(route), &mut r, 120);
        let h = work(&v, &mut r, 80);
        drop(v);
        for n in 0..CRASHES {
            let what = format!("{route:?} {args:?}, run {seed}, crash {n}");
            let got = recovered(&device.crash(n), &options(route), &what);
            eprintln!("{what}");
            match route {
                Route::Journal => {
                    let from = (0..3).map(|n| h.durable_from(n)).max().unwrap();
                    assert!(h.states[from..].contains(&got), "{what}: no prefix of the requests");
                }
                Route::Overwrite | Route::Auto => {
                    for n in 0..3 {
                        let there = h.states[h.synced[n]..].iter().any(|files| files[n] == got[n]);
                        assert!(there, "{what}: file {n} has a part of a request");
                    }
                }
                _ => (0..3).for_each(|n| check_in_place(&h, n, &got[n])),
            }
        }
    }
}

#[test]
fn ordered_data_survives_and_stale_data_is_never_seen() {
    run(Route::Ordered, &["-t", "ext4", "-b", "4096"]);
    run(Route::Ordered, &["-t", "ext3", "-b", "1024"]);
}

/// Both are written in the same way.
#[test]
fn writeback_data_survives_as_ordered_data_does() {
    run(Route::Writeback, &["-t", "ext4", "-b", "4096"]);
}

/// F14.
#[test]
fn journaled_requests_are_a_prefix() {
    run(Route::Journal, &["-t", "ext4", "-b", "4096"]);
    run(Route::Journal, &["-t", "ext3", "-b", "1024"]);
}

/// With these options, requests of at most so many bytes; `check` compares what a crash left with what was written.
fn run_profile(profile: Profile, requests: [u64; 2], check: impl Fn(&History, &Files, &str)) {
    let options = Options::default().with(profile.choices());
    let start = used_image(&["-t", "ext4", "-b", "4096"]);
    for seed in 1..=RUNS {
        let mut r = Numbers(seed * 0x2468_ACE1);
        let (device, v) = until_power_loss(&start, &options, &mut r, 120);
        let h = work_in_requests(&v, &mut r, 80, requests);
        drop(v);
        for n in 0..CRASHES {
            let what = format!("{profile}, run {seed}, crash {n}");
            check(&h, &recovered(&device.crash(n), &options, &what), &what);
        }
    }
}

/// Okeanos, sections 3 and 4: wasteless journaling logs parts of blocks, and a prefix of the requests is recovered.
#[test]
fn wasteless_requests_are_a_prefix() {
    run_profile(Profile::Wasteless, [9000, 5000], |h, got, what| {
        let from = (0..3).map(|n| h.durable_from(n)).max().unwrap();
        assert!(h.states[from..].contains(got), "{what}: no prefix of the requests");
    });
}

/// Okeanos, section 4: what selective journaling logs is atomic for its block, what goes in place is as with ordered.
#[test]
fn selective_updates_below_a_page_are_whole_and_others_as_ordered() {
    const BLOCK: usize = 4096;
    run_profile(Profile::Selective, [900, 600], |h, got, what| {
        for (n, file) in got.iter().enumerate() {
            check_in_place(h, n, file);
            for at in (0..file.len()).step_by(BLOCK) {
                let block = |f: &[u8]| (at..at + BLOCK).map(|i| f.get(i).copied().unwrap_or(0)).collect::<Vec<u8>>();
                let ever = h.states[h.synced[n]..].iter().any(|files| block(&files[n]) == block(file));
                assert!(ever, "{what}: file {n} has a part of an update at {at}");
            }
        }
    });
    run_profile(Profile::Selective, [9000, 5000], |h, got, _| {
        got.iter().enumerate().for_each(|(n, file)| check_in_place(h, n, file));
    });
}

/// F16: each request is whole or absent, and each file as it was at some moment.
#[test]
fn overwriting_requests_are_whole() {
    run(Route::Overwrite, &["-t", "ext4", "-b", "4096"]);
    run(Route::Overwrite, &["-t", "ext3", "-b", "1024"]);
    run(Route::Auto, &["-t", "ext4", "-b", "4096"]);
    run(Route::Auto, &["-t", "ext3", "-b", "1024"]);
}

/// Any operation on files with whatever was there before: what was synced last and not touched since is there; nothing
/// stale is anywhere; the image is whole.
#[test]
fn every_operation_survives_a_crash() {
    for (route, args) in [
        (Route::Ordered, &["-t", "ext4", "-b", "1024"][..]),
        (Route::Ordered, &["-t", "ext3", "-b", "1024"]),
        (Route::Journal, &["-t", "ext4", "-b", "4096"]),
        (Route::Overwrite, &["-t", "ext4", "-b", "1024"]),
        (Route::Auto, &["-t", "ext4", "-b", "1024"]),
        (Route::Selective, &["-t", "ext4", "-b", "1024"]),
    ] {
        let start = used_image(args);
        for seed in 1..=RUNS {
            let mut r = Numbers(seed * 0x9876_5433);
            let (device, v) = until_power_loss(&start, &options(route), &mut r, 200);
            let synced = change_and_sync(&v, &mut r);
            drop(v);
            for n in 0..CRASHES {
                let what = format!("{route:?} {args:?}, run {seed}, crash {n}");
                check_synced(&synced, &recovered(&device.crash(n), &options(route), &what), &what);
            }
        }
    }
}

/// Of each file, what it held at its last fsync, if it was not changed after that.
pub(super) type Synced = Vec<Option<Vec<u8>>>;

/// Random operations until the power goes, or enough of them.
pub(super) fn change_and_sync(v: &Volume, r: &mut Numbers) -> Synced {
    let mut synced = vec![Some(Vec::new()); 3];
    for _ in 0..120 {
        let n = u32::try_from(r.below(3)).unwrap();
        let i = usize::try_from(n).unwrap();
        if r.below(4) > 0 {
            synced[i] = None;
            if change(v, file(n), r).is_err() {
                break;
            }
        } else if v.fsync(file(n), r.below(2) == 0).is_err() {
            break;
        } else {
            let mut buf = vec![0; 1 << 20];
            let Ok(len) = v.read(file(n), 0, &mut buf) else { break };
            buf.truncate(len);
            synced[i] = Some(buf);
        }
    }
    synced
}

pub(super) fn check_synced(synced: &Synced, got: &Files, what: &str) {
    for (got, want) in got.iter().zip(synced) {
        assert!(!got.contains(&STALE), "{what}: stale bytes");
        assert!(want.as_ref().is_none_or(|w| w == got), "{what}: not as it was synced");
    }
}

/// One random change; an error of the device stops the run, others are part of life.
fn change(v: &Volume, ino: Ino, r: &mut Numbers) -> Result<(), Error> {
    let (at, len) = (r.below(60_000), r.below(9000) + 1);
    let (whole, some) = (at / 4096 * 4096, len.div_ceil(4096) * 4096);
    let done = match r.below(9) {
        0 | 1 => {
            let data: Vec<u8> = (0..len).map(|n| u8::try_from((n + at) % 100 + 1).unwrap()).collect();
            v.write(ino, at, &data, WriteFlags::default()).map(drop)
        }
        2 => {
            let append = WriteFlags { append: true, ..WriteFlags::default() };
            v.write(ino, 0, &vec![9; usize::try_from(len).unwrap()], append).map(drop)
        }
        3 => v.truncate(ino, at),
        4 => v.fallocate(ino, Falloc::PunchHole, at, len),
        5 => v.fallocate(ino, Falloc::ZeroRange { keep_size: false }, at, len),
        6 => v.fallocate(ino, Falloc::Allocate { keep_size: false }, at, len),
        7 => v.fallocate(ino, Falloc::Collapse, whole, some),
        _ => v.fallocate(ino, Falloc::Insert, whole, some),
    };
    match done {
        Err(e @ (Error::Device(_) | Error::Journal(_) | Error::ReadOnly(_))) => Err(e),
        _ => Ok(()),
    }
}
