//! What a power cut leaves: some of the sectors that were not yet durable.
//!
//! A [`CrashPoint`] is what the device holds at a moment: the durable image, and the writes after it in the order in
//! which they completed. Any set of their sectors may have reached the media. A sector is written whole or not at all;
//! of several versions of one sector the last one that survives stays. A *forced* write (FUA) always survives.
//!
//! ```text
//! durable ── w1 [k][ ] ── w2 [k] ── w3 FUA [k][k] ── w4 [ ][k]     k: survives
//!                 └ torn                                └ reordered after a loss
//! ```

use crate::image::Image;
use crate::rng::Rng;
use quire_device::buf::{Buf, SECTOR};
use quire_device::sync::Arc;

/// A write that a device's cache holds.
#[derive(Clone, Debug)]
pub struct CachedWrite {
    /// Number of the step that it was: see [`crate::PowerLossDevice::steps`].
    pub step: u64,
    /// Byte offset; a multiple of 512.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Durable, although the writes before it need not be.
    pub forced: bool,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Data(Vec<Arc<Buf>>),
    Fill(u8),
}

impl CachedWrite {
    /// Calls `f` for each 512-byte sector with its place and bytes.
    fn each_sector(&self, mut f: impl FnMut(u64, &[u8])) {
        let mut at = self.at;
        let mut give = |sector: &[u8]| {
            f(at, sector);
            at += sector.len() as u64;
        };
        match &self.content {
            Content::Data(pieces) => pieces.iter().flat_map(|p| p.chunks(SECTOR)).for_each(&mut give),
            Content::Fill(byte) => (0..self.len / SECTOR as u64).for_each(|_| give(&[*byte; SECTOR])),
        }
    }

    pub(crate) fn apply(&self, image: &mut Image) {
        match &self.content {
            Content::Data(pieces) => {
                let mut at = self.at;
                for piece in pieces {
                    image.write(at, piece);
                    at += piece.len() as u64;
                }
            }
            Content::Fill(_) => self.each_sector(|at, bytes| image.write(at, bytes)),
        }
    }

    /// Units of `unit` bytes that it touches.
    fn units(&self, unit: u64) -> u64 {
        if self.len == 0 { 0 } else { (self.at + self.len - 1) / unit - self.at / unit + 1 }
    }
}

/// What a device holds at a moment when its power may go.
#[derive(Clone, Debug)]
pub struct CrashPoint {
    /// What is durable whatever happens.
    pub durable: Image,
    /// Later writes, in order of completion, those in flight last.
    pub pending: Vec<CachedWrite>,
    /// Bytes that are written whole or not at all.
    pub unit: u64,
}

/// What was left.
#[derive(Clone, Debug)]
pub struct Crash {
    pub image: Image,
    /// Writes of which nothing survived.
    pub lost: u64,
    /// Writes of which a part survived.
    pub torn: u64,
    /// Writes that survived, at least in part, though one before them was lost or torn.
    pub reordered: u64,
}

/// Most writes or units for which all subsets are listed.
pub const MAX_SUBSETS: u64 = 16;

impl CrashPoint {
    /// The outcome that `survives` chooses: asked for each unit of each write that is not forced, by index of the
    /// write in `pending` and of the unit within the write.
    pub fn crash_with(&self, mut survives: impl FnMut(usize, u64) -> bool) -> Crash {
        let mut image = self.durable.clone();
        let (mut lost, mut torn, mut reordered, mut gap) = (0, 0, 0, false);
        for (index, write) in self.pending.iter().enumerate() {
            let units = write.units(self.unit);
            if write.forced {
                write.apply(&mut image);
                reordered += u64::from(gap);
                continue;
            }
            let kept: Vec<bool> = (0..units).map(|u| survives(index, u)).collect();
            let count = kept.iter().filter(|k| **k).count();
            if count == kept.len() {
                write.apply(&mut image);
                reordered += u64::from(gap && units > 0);
                continue;
            }
            let first = write.at / self.unit;
            write.each_sector(|at, bytes| {
                let unit = usize::try_from(at / self.unit - first).expect("counted in memory");
                if kept[unit] {
                    image.write(at, bytes);
                }
            });
            if count == 0 {
                lost += 1;
            } else {
                torn += 1;
                reordered += u64::from(gap);
            }
            gap = true;
        }
        Crash { image, lost, torn, reordered }
    }

    /// One outcome, chosen by a seed: the same seed on the same point always gives the same. Seeds take turns with
    /// nothing or everything surviving, prefixes, single losses, single survivors, and random writes and units.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Crash {
        let mut rng = Rng::new(seed);
        let writes = self.pending.len() as u64;
        let one = rng.below(writes.max(1));
        let one_unit = self.pending.get(index(one)).map_or(0, |w| rng.below(w.units(self.unit).max(1)));
        let eighths = 1 + rng.below(7);
        match rng.below(10) {
            0 => self.crash_with(|_, _| false),
            1 => self.crash_with(|_, _| true),
            2 => self.crash_with(|w, _| (w as u64) < one),
            3 => self.crash_with(|w, u| (w as u64, u) < (one, one_unit)),
            4 => self.crash_with(|w, _| w as u64 != one),
            5 => self.crash_with(|w, u| (w as u64, u) != (one, one_unit)),
            6 => self.crash_with(|w, _| w as u64 == one),
            7 => {
                let whole: Vec<bool> = (0..writes).map(|_| rng.below(8) < eighths).collect();
                self.crash_with(|w, _| whole[w])
            }
            8 => self.crash_with(|w, _| (w as u64) < one || rng.below(8) < eighths),
            _ => self.crash_with(|_, _| rng.below(8) < eighths),
        }
    }

    /// Every outcome in which each write survives whole or not at all; None if there are more than
    /// [`MAX_SUBSETS`] writes to choose from.
    #[must_use]
    pub fn write_subsets(&self) -> Option<impl Iterator<Item = Crash> + '_> {
        let (bit, number) = self.numbered(|_| 1);
        (number <= MAX_SUBSETS)
            .then(|| (0..1u64 << number).map(move |chosen| self.crash_with(|w, _| chosen >> bit[w] & 1 == 1)))
    }

    /// Numbers the choices: the first one of each write, and how many there are. Forced writes leave no choice.
    fn numbered(&self, choices: impl Fn(&CachedWrite) -> u64) -> (Vec<u64>, u64) {
        let mut number = 0;
        let first = |w: &CachedWrite| {
            let first = number;
            number += if w.forced { 0 } else { choices(w) };
            first
        };
        (self.pending.iter().map(first).collect(), number)
    }

    /// How many writes, and how many units of them, may be lost.
    #[must_use]
    pub fn choices(&self) -> (u64, u64) {
        let open = self.pending.iter().filter(|w| !w.forced);
        open.fold((0, 0), |(writes, units), w| (writes + 1, units + w.units(self.unit)))
    }

    /// Every outcome; None if there are more than [`MAX_SUBSETS`] units to choose from.
    #[must_use]
    pub fn unit_subsets(&self) -> Option<impl Iterator<Item = Crash> + '_> {
        let (base, number) = self.numbered(|w| w.units(self.unit));
        (number <= MAX_SUBSETS)
            .then(|| (0..1u64 << number).map(move |chosen| self.crash_with(|w, u| chosen >> (base[w] + u) & 1 == 1)))
    }
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
