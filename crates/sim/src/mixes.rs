//! Workloads: which operations a seed makes, by kind.

use crate::ops::{DIRS, MAGIC_FILL, MAX_SIZE, NAMES, PAGE, Place, SimOp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn place(rng: &mut StdRng) -> Place {
    Place { dir: rng.random_range(0..=DIRS), name: rng.random_range(0..NAMES) }
}

/// An offset that likes block edges, and a length from a byte to many blocks.
fn range(rng: &mut StdRng) -> (u32, u32) {
    let offset = match rng.random_range(0..4) {
        0 => 0,
        1 => rng.random_range(0..16) * 4096,
        2 => rng.random_range(0..64) * 1024,
        _ => rng.random_range(0..MAX_SIZE / 2),
    };
    let len = match rng.random_range(0..5) {
        0 => rng.random_range(1..64),
        1 => 1024,
        2 => 4096,
        3 => rng.random_range(1..12_000),
        _ => rng.random_range(1..8) * 4096,
    };
    (offset, len.min(MAX_SIZE - offset))
}

fn map_write(rng: &mut StdRng, place: Place) -> SimOp {
    let at = rng.random_range(0..PAGE);
    let len = rng.random_range(1..=PAGE - at).min(700);
    SimOp::MapWrite { place, page: rng.random_range(0..6), at, len, fill: rng.random_range(1..=255) }
}

/// A call on a range that is neither a write nor a hole: whole blocks where only those will do, mostly.
fn on_range(rng: &mut StdRng, place: Place, other: Place) -> SimOp {
    let (offset, len) = range(rng);
    let (first, blocks) = (rng.random_range(0..12) * 1024, rng.random_range(1..6) * 1024);
    match rng.random_range(0..10) {
        0..3 => SimOp::Zero { place, offset, len },
        3..5 => SimOp::Collapse { place, offset: first, len: blocks },
        5..7 => SimOp::Insert { place, offset: first, len: blocks },
        _ => SimOp::Copy {
            from: other,
            at: rng.random_range(0..MAX_SIZE / 4),
            to: place,
            offset,
            len: len.min(16 << 10),
        },
    }
}

fn unnamed(rng: &mut StdRng, place: Place) -> SimOp {
    SimOp::Unnamed { place, len: rng.random_range(0..9000), fill: rng.random_range(1..=255) }
}

fn one(rng: &mut StdRng) -> SimOp {
    let p = place(rng);
    match rng.random_range(0..116) {
        112..114 => SimOp::Chown(p, rng.random_range(0..200_000)),
        114..116 => SimOp::Utimes(p, rng.random_range(1..2_000_000_000)),
        100..107 => {
            let other = place(rng);
            on_range(rng, p, other)
        }
        107..110 => unnamed(rng, p),
        110..112 => SimOp::RenameDir(rng.random_range(1..=DIRS), rng.random_range(1..=DIRS)),
        0..14 => SimOp::Create(p),
        14..17 => SimOp::Mkdir(rng.random_range(1..=DIRS)),
        17..19 => SimOp::Rmdir(rng.random_range(1..=DIRS)),
        19..22 => SimOp::Symlink(p, rng.random_range(1..200)),
        22..23 => SimOp::Mknod(p),
        23..27 => SimOp::Unlink(p),
        27..29 => SimOp::UnlinkOpen(p),
        29..30 => SimOp::Release,
        30..37 => SimOp::Rename(p, place(rng)),
        37..39 => SimOp::Exchange(p, place(rng)),
        39..42 => SimOp::Link(p, place(rng)),
        42..43 => SimOp::JournalData(p, rng.random_range(0..2) == 0),
        43..47 => map_write(rng, p),
        47..50 => {
            let (len, fill) = (rng.random_range(1..6000), rng.random_range(1..=255));
            SimOp::Append { place: p, len, fill, sync: rng.random_range(0..6) == 0 }
        }
        50..66 => {
            let (offset, len) = range(rng);
            let fill = if rng.random_range(0..12) == 0 { MAGIC_FILL } else { rng.random_range(1..=255) };
            SimOp::Write { place: p, offset, len, fill, sync: rng.random_range(0..10) == 0 }
        }
        66..71 => SimOp::Truncate(p, rng.random_range(0..MAX_SIZE)),
        71..74 => {
            let (offset, len) = range(rng);
            SimOp::Punch { place: p, offset, len }
        }
        74..77 => {
            let (offset, len) = range(rng);
            SimOp::Allocate { place: p, offset, len }
        }
        77..79 => SimOp::Chmod(p, rng.random_range(0..0o1000)),
        79..83 => SimOp::SetXattr(p, rng.random_range(0..4), rng.random_range(1..300)),
        83..84 => SimOp::RemoveXattr(p, rng.random_range(0..4)),
        84..88 => SimOp::Fsync(p),
        88..90 => SimOp::Fdatasync(p),
        90..91 => SimOp::Checkpoint,
        91..93 => SimOp::FsyncDir(rng.random_range(0..=DIRS)),
        93..95 => SimOp::Sync,
        _ => SimOp::Step,
    }
}

/// What a workload is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// A little of everything.
    General,
    /// Few files, overwritten in whole blocks again and again, their data journaled or not.
    Overwrite,
    /// Small files and directories that come and go, so that the same blocks serve for one thing after another.
    Reuse,
    /// Large requests, new and over each other, in few files.
    Large,
    /// Ranges of few files are zeroed, taken out, inserted, copied; files come without names.
    Ranges,
    /// Small changes, each made durable, and hardly ever a checkpoint: the log goes round, and what is oldest in it
    /// goes home.
    Long,
    /// A little of everything, while the volume is frozen, thawed, and mounted again.
    Lifecycle,
    /// Atomic updates, mostly; hardly any data is written otherwise.
    Updates,
    /// Whole pages, and a few bytes of a page that has gone home and that no flush has covered.
    Patches,
}

/// A file among few, in the root.
fn few(rng: &mut StdRng) -> Place {
    Place { dir: 0, name: rng.random_range(0..3) }
}

fn overwrite(rng: &mut StdRng) -> SimOp {
    let place = few(rng);
    match rng.random_range(0..100) {
        0..8 => SimOp::Create(place),
        8..14 => map_write(rng, place),
        14..56 => {
            let (offset, len) = (rng.random_range(0..8) * 1024, rng.random_range(1..4) * 1024);
            let fill = if rng.random_range(0..8) == 0 { MAGIC_FILL } else { rng.random_range(1..=255) };
            SimOp::Write { place, offset, len, fill, sync: false }
        }
        56..64 => SimOp::JournalData(place, rng.random_range(0..2) == 0),
        64..84 => SimOp::Fdatasync(place),
        84..88 => SimOp::Fsync(place),
        88..90 => SimOp::Checkpoint,
        90..91 => SimOp::Sync,
        91..93 => SimOp::Truncate(place, rng.random_range(0..8) * 1024),
        _ => SimOp::Step,
    }
}

/// Largest request of [`Mix::Large`], in bytes.
const LARGE: u32 = 1 << 20;

fn large(rng: &mut StdRng) -> SimOp {
    let place = few(rng);
    match rng.random_range(0..100) {
        0..12 => SimOp::Create(place),
        12..60 => {
            let offset = rng.random_range(0..256) * 4096;
            let len = if rng.random_range(0..2) == 0 { LARGE } else { rng.random_range(1..256) * 4096 };
            SimOp::Write { place, offset, len, fill: rng.random_range(1..=255), sync: rng.random_range(0..6) == 0 }
        }
        60..66 => SimOp::Truncate(place, rng.random_range(0..512) * 4096),
        66..76 => SimOp::Fdatasync(place),
        76..84 => SimOp::Fsync(place),
        84..86 => SimOp::Checkpoint,
        86..88 => SimOp::Sync,
        _ => SimOp::Step,
    }
}

fn ranges(rng: &mut StdRng) -> SimOp {
    let place = few(rng);
    match rng.random_range(0..100) {
        0..8 => SimOp::Create(place),
        8..26 => {
            let (offset, len) = range(rng);
            SimOp::Write { place, offset, len, fill: rng.random_range(1..=255), sync: rng.random_range(0..10) == 0 }
        }
        26..60 => {
            let other = few(rng);
            on_range(rng, place, other)
        }
        60..66 => unnamed(rng, place),
        66..70 => SimOp::Unlink(place),
        70..73 => SimOp::Truncate(place, rng.random_range(0..MAX_SIZE)),
        73..76 => {
            let (offset, len) = range(rng);
            SimOp::Punch { place, offset, len }
        }
        76..78 => SimOp::JournalData(place, rng.random_range(0..2) == 0),
        78..85 => SimOp::Fdatasync(place),
        85..90 => SimOp::Fsync(place),
        90..92 => SimOp::Checkpoint,
        92..93 => SimOp::Sync,
        _ => SimOp::Step,
    }
}

fn long(rng: &mut StdRng) -> SimOp {
    let place = Place { dir: rng.random_range(0..=1), name: rng.random_range(0..4) };
    match rng.random_range(0..200) {
        0..30 => SimOp::Create(place),
        30..80 => {
            let (offset, len) = (rng.random_range(0..8000), rng.random_range(1..2500));
            SimOp::Write { place, offset, len, fill: rng.random_range(1..=255), sync: rng.random_range(0..8) == 0 }
        }
        80..90 => SimOp::SetXattr(place, rng.random_range(0..2), rng.random_range(1..60)),
        90..96 => SimOp::Unlink(place),
        96..102 => SimOp::Truncate(place, rng.random_range(0..6000)),
        102..104 => SimOp::Chmod(place, rng.random_range(0..0o1000)),
        104..106 => SimOp::Chown(place, rng.random_range(0..200_000)),
        106..108 => SimOp::Utimes(place, rng.random_range(1..2_000_000_000)),
        108..112 => SimOp::JournalData(place, rng.random_range(0..2) == 0),
        112..196 => SimOp::Fsync(place),
        196..199 => SimOp::Step,
        _ => SimOp::FsyncDir(place.dir),
    }
}

fn updates(rng: &mut StdRng) -> SimOp {
    let place = few(rng);
    match rng.random_range(0..100) {
        0..10 => SimOp::Create(place),
        10..56 => {
            let (first, second) = (range(rng), range(rng));
            let (fill, commits) = (rng.random_range(1..=255), rng.random_range(0..4) > 0);
            SimOp::Update { place, first, second, fill, commits }
        }
        56..62 => SimOp::Truncate(place, rng.random_range(0..MAX_SIZE)),
        // Of one file, so that the others have nothing but updates.
        62..66 => {
            let (offset, len) = range(rng);
            SimOp::Write { place: Place { dir: 0, name: 1 }, offset, len, fill: rng.random_range(1..=255), sync: false }
        }
        66..70 => SimOp::Unlink(place),
        70..73 => SimOp::Rename(place, few(rng)),
        73..82 => SimOp::Fdatasync(place),
        82..87 => SimOp::Fsync(place),
        87..90 => SimOp::Checkpoint,
        90..92 => SimOp::Sync,
        _ => SimOp::Step,
    }
}

fn lifecycle(rng: &mut StdRng) -> SimOp {
    match rng.random_range(0..100) {
        0..9 => SimOp::Freeze,
        9..24 => SimOp::Thaw,
        24..29 => SimOp::Remount,
        _ => one(rng),
    }
}

fn reuse(rng: &mut StdRng) -> SimOp {
    let p = Place { dir: rng.random_range(0..=DIRS), name: rng.random_range(0..4) };
    match rng.random_range(0..100) {
        0..15 => SimOp::Create(p),
        15..40 => SimOp::Write {
            place: p,
            offset: rng.random_range(0..4) * 1024,
            len: rng.random_range(1..7) * 1024,
            fill: rng.random_range(1..=255),
            sync: rng.random_range(0..8) == 0,
        },
        40..55 => SimOp::Unlink(p),
        55..60 => SimOp::Mkdir(rng.random_range(1..=DIRS)),
        60..66 => SimOp::Rmdir(rng.random_range(1..=DIRS)),
        66..70 => SimOp::SetXattr(p, 0, 290),
        70..76 => SimOp::Truncate(p, 0),
        76..82 => SimOp::Symlink(p, 199),
        82..86 => SimOp::Fdatasync(p),
        86..90 => SimOp::Fsync(p),
        90..92 => SimOp::Checkpoint,
        92..94 => SimOp::FsyncDir(p.dir),
        _ => SimOp::Step,
    }
}

fn patches(rng: &mut StdRng) -> SimOp {
    let place = few(rng);
    match rng.random_range(0..100) {
        0..6 => SimOp::Create(place),
        6..36 => {
            let (first, pages) = (rng.random_range(0..5), rng.random_range(1..=2));
            SimOp::Write {
                place,
                offset: first * PAGE,
                len: pages * PAGE,
                fill: rng.random_range(1..=255),
                sync: false,
            }
        }
        36..56 => map_write(rng, place),
        56..80 => SimOp::WriteBack,
        80..90 => SimOp::Fdatasync(place),
        90..94 => SimOp::Checkpoint,
        _ => SimOp::Step,
    }
}

/// The operations that a seed stands for. They begin with directories, so that paths exist.
#[must_use]
pub fn generate(mix: Mix, seed: u64, len: usize) -> Vec<SimOp> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut ops: Vec<SimOp> = (1..=DIRS).map(SimOp::Mkdir).collect();
    let make = match mix {
        Mix::General => one,
        Mix::Overwrite => overwrite,
        Mix::Reuse => reuse,
        Mix::Large => large,
        Mix::Ranges => ranges,
        Mix::Long => long,
        Mix::Lifecycle => lifecycle,
        Mix::Updates => updates,
        Mix::Patches => patches,
    };
    ops.extend((0..len).map(|_| make(&mut rng)));
    ops
}
