//! Power losses under writers: what an fsync covered is there, and nobody's old bytes are.

use super::{Numbers, file, image, options};
use crate::file::WriteFlags;
use crate::options::Route;
use crate::testing::fsck;
use crate::{Devices, Volume};
use quire_device::image::Image;
use quire_device::powerloss::{Completion, PowerLossDevice, PowerLossOptions};
use quire_device::sync::Arc;
use quire_device::{MemDevice, SystemClock};

const FILES: u32 = 3;
/// What the free blocks of the image hold: it must never be seen.
const STALE: u8 = 0xAA;
const RUNS: u64 = 12;
const CRASHES: u64 = 10;

/// An image whose free blocks are full of somebody's old data.
fn used_image(args: &[&str]) -> Vec<u8> {
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
type Files = Vec<Vec<u8>>;

/// States of the files, one after each operation; and the last that an fsync of each file covers.
struct History {
    states: Vec<Files>,
    synced: Vec<usize>,
}

impl History {
    /// The first state that has all that the last fsync of file `n` covered.
    fn durable_from(&self, n: usize) -> usize {
        let covered = &self.states[self.synced[n]][n];
        (0..self.synced[n]).rev().find(|i| self.states[*i][n] != *covered).map_or(0, |i| i + 1)
    }
}

fn work(v: &Volume, r: &mut Numbers, steps: u64) -> History {
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
                    r.bytes(usize::try_from(r.0 % 9000 + 1).unwrap()).iter().map(|b| b % 100 + 1).collect();
                let append = WriteFlags { append: true, ..WriteFlags::default() };
                if v.write(ino, 0, &data, append).is_err() {
                    return h;
                }
                files[n].extend(&data);
            }
            _ => {
                let data: Vec<u8> =
                    r.bytes(usize::try_from(r.0 % 5000 + 1).unwrap()).iter().map(|b| b % 100 + 1).collect();
                let at = usize::try_from(r.below(60_000)).unwrap();
                if v.write(ino, at as u64, &data, WriteFlags::default()).is_err() {
                    return h;
                }
                let end = files[n].len().max(at + data.len());
                files[n].resize(end, 0);
                files[n][at..at + data.len()].copy_from_slice(&data);
            }
        }
        h.states.push(files);
    }
    h
}

/// In place: each byte is as the last fsync left it, or as some later operation did; new ones may still be zero.
fn check_in_place(h: &History, n: usize, got: &[u8]) {
    let states: Vec<&Vec<u8>> = h.states[h.synced[n]..].iter().map(|files| &files[n]).collect();
    assert!(got.len() >= states[0].len(), "{} bytes, of {} that are durable", got.len(), states[0].len());
    assert!(got.len() <= states.last().unwrap().len(), "a size that never was");
    for (i, b) in got.iter().enumerate() {
        let ever = states.iter().any(|s| s.get(i) == Some(b)) || (*b == 0 && i >= states[0].len());
        assert!(ever, "byte {i} is {b:#x}, which was never there (or not any more)");
    }
}

fn run(route: Route, args: &[&str]) {
    let start = used_image(args);
    for seed in 1..=RUNS {
        let o = PowerLossOptions { completion: Completion::AtWait, ..PowerLossOptions::default() };
        let device = Arc::new(PowerLossDevice::from_image(Image::from_bytes(&start), o));
        let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options(route)).expect("mount");
        let mut r = Numbers(seed * 0x1234_5679);
        device.cut_at(device.steps() + r.below(120) + 5);
        let h = work(&v, &mut r, 80);
        drop(v);
        for n in 0..CRASHES {
            let what = format!("{route:?} {args:?}, run {seed}, crash {n}");
            let crash = device.crash(n);
            let device = Arc::new(MemDevice::new(crash.image.to_vec()));
            let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options(route))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            let got: Files = (0..FILES)
                .map(|n| {
                    let mut buf = vec![0; 1 << 20];
                    let len = v.read(file(n), 0, &mut buf).unwrap_or_else(|e| panic!("{what}: {e}"));
                    buf.truncate(len);
                    buf
                })
                .collect();
            eprintln!("{what}");
            if route == Route::Journal {
                let from = (0..3).map(|n| h.durable_from(n)).max().unwrap();
                // The request under which the power went may be there as well; the history does not have it.
                let prefix = h.states[from..].contains(&got);
                let last = h.states.last().unwrap();
                let one_more = got.iter().zip(last).filter(|(a, b)| a != b).count() == 1;
                assert!(prefix || one_more, "{what}: no prefix of the requests");
            } else {
                (0..3).for_each(|n| check_in_place(&h, n, &got[n]));
            }
            v.close().unwrap_or_else(|e| panic!("{what}: {e}"));
            fsck(&device.snapshot());
        }
    }
}

#[test]
fn ordered_data_survives_and_stale_data_is_never_seen() {
    run(Route::Ordered, &["-t", "ext4", "-b", "4096"]);
    run(Route::Ordered, &["-t", "ext3", "-b", "1024"]);
}

#[test]
fn journaled_requests_are_a_prefix() {
    run(Route::Journal, &["-t", "ext4", "-b", "4096"]);
    run(Route::Journal, &["-t", "ext3", "-b", "1024"]);
}
