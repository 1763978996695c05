//! What a power cut may leave at one moment, and which of it has been seen before.

use quire_device::Clock;
use quire_device::sync::Arc;
use quire_fs::{Devices, recovery};
use quire_layout::superblock::{self, Superblock};
use quire_layout::{BlockSize, LogBlock};
use quire_testkit::{Crash, CrashPoint, Image, PowerLossDevice, PowerLossOptions, VirtualClock};
use std::ops::Range;

/// How much is explored.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Calls in a run.
    pub calls: usize,
    /// About so many moments of a run, chosen by seed; 0: all of them.
    pub moments: u64,
    /// Outcomes made of each moment by seed.
    pub outcomes: u64,
    /// Where a moment has at most so many outcomes, all of them are made.
    pub all: u64,
    /// One in so many states is given to e2fsck.
    pub fsck_every: u64,
    /// One in so many states loses power again during recovery, and then again.
    pub double_every: u64,
    /// It does so at each step of its recovery, not at one of them.
    pub every_cut: bool,
}

/// Every outcome where there are at most [`Effort::all`]: each unit of each write survives or not. Where the units are
/// too many but the writes are few, each write survives or not, and some are torn by seed; else all is by seed, after
/// the `edges` where these are asked for.
pub(crate) fn outcomes(
    point: &CrashPoint,
    effort: Effort,
    edges: bool,
    seed: u64,
) -> Box<dyn Iterator<Item = Crash> + '_> {
    let some = move |n| (0..n).map(move |i| point.crash(seed.wrapping_mul(0x9E37_79B9).wrapping_add(i)));
    match exhausted(point, effort) {
        Exhausted::Units => Box::new(point.unit_subsets().expect("few")),
        Exhausted::Writes => Box::new(point.write_subsets().expect("few").chain(some(effort.outcomes))),
        Exhausted::Nothing if edges => Box::new(edges_of(point).chain(some(effort.outcomes))),
        Exhausted::Nothing => Box::new(some(effort.outcomes)),
    }
}

/// Each prefix of the writes (from none to all), each write lost alone, and each surviving alone.
fn edges_of(point: &CrashPoint) -> impl Iterator<Item = Crash> + '_ {
    let writes = point.pending.len();
    let prefixes = (0..=writes).map(|n| point.crash_with(|w, _| w < n));
    let lost = (0..writes).map(|n| point.crash_with(|w, _| w != n));
    let alone = (0..writes).map(|n| point.crash_with(|w, _| w == n));
    prefixes.chain(lost).chain(alone)
}

/// What of a moment is tried in every combination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exhausted {
    Units,
    Writes,
    Nothing,
}

pub(crate) fn exhausted(point: &CrashPoint, effort: Effort) -> Exhausted {
    let few = |n: u64| n < 16 && 1 << n <= effort.all;
    match point.choices() {
        (_, units) if few(units) => Exhausted::Units,
        (writes, _) if few(writes) => Exhausted::Writes,
        _ => Exhausted::Nothing,
    }
}

/// Identifies the bytes of an image among those that go back to one base: two sums over what differs from it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Digest {
    /// Of every block.
    pub(crate) all: u64,
    /// Without the blocks of the log behind its superblock, which nobody looks at when the log is empty.
    pub(crate) without_log: u64,
}

/// The blocks of a log, but for its superblock, as byte ranges.
#[derive(Clone, Debug)]
pub(crate) struct LogArea(Vec<Range<u64>>);

/// Unit of digests in bytes: the smallest block.
const UNIT: usize = 1024;

impl LogArea {
    /// Where an image has its log.
    ///
    /// # Errors
    /// It has none, or is not sound.
    pub(crate) fn of(image: &Image) -> Result<Self, String> {
        let device = Arc::new(PowerLossDevice::from_image(image.clone(), PowerLossOptions::default()));
        let mut raw = vec![0; superblock::SIZE];
        image.read(superblock::OFFSET, &mut raw);
        let sb = Superblock::decode(&raw).map_err(|e| e.to_string())?;
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let found = recovery::find_journal(&Devices::one(device), &clock, &sb).map_err(|e| e.to_string())?;
        let geometry = found.ok_or("the image has no journal")?.log.geometry().clone();
        let bs: BlockSize = sb.block_size();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for at in (1..).map_while(|n| geometry.locate(LogBlock(n))).map(|b| bs.offset(b)) {
            match ranges.last_mut() {
                Some(r) if r.end == at => r.end += bs.bytes64(),
                _ => ranges.push(at..at + bs.bytes64()),
            }
        }
        Ok(LogArea(ranges))
    }

    fn holds(&self, at: u64) -> bool {
        self.0.iter().any(|r| r.contains(&at))
    }
}

impl Digest {
    /// The digest of `image`, if this is that of `of`. Costs as much as they do not share.
    pub(crate) fn after(self, of: &Image, image: &Image, log: &LogArea) -> Digest {
        let mut d = self;
        for (at, new, old) in image.unshared(of) {
            for (at, (new, old)) in (at..).step_by(UNIT).zip(new.chunks(UNIT).zip(old.chunks(UNIT))) {
                if new == old {
                    continue;
                }
                let more = hash(at, new).wrapping_sub(hash(at, old));
                d.all = d.all.wrapping_add(more);
                if !log.holds(at) {
                    d.without_log = d.without_log.wrapping_add(more);
                }
            }
        }
        d
    }
}

/// 64 bits of a block at its place.
fn hash(at: u64, bytes: &[u8]) -> u64 {
    let mix = |h: u64, w: u64| {
        let x = (h ^ w).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x ^ (x >> 29)
    };
    let word = |w: &[u8]| u64::from_le_bytes(w.try_into().expect("eight bytes"));
    let h = bytes.chunks_exact(8).fold(mix(0x5152_4531, at), |h, w| mix(h, word(w)));
    mix(mix(h, at), 0xD6E8_FEB8_6659_FD93)
}

/// 64 bits of many bytes.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    (0..).step_by(UNIT).zip(bytes.chunks(UNIT)).fold(0, |sum: u64, (at, b)| sum.wrapping_add(hash(at, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_images_have_equal_digests_on_every_way() {
        let log = LogArea(vec![8192..12288, 12288..16384]);
        let base = Image::from_bytes(&vec![7; 1 << 16]);
        let zero = Digest::default();
        let (mut a, mut b) = (base.clone(), base.clone());
        a.write(1024, &[1; 512]);
        let first = zero.after(&base, &a, &log);
        a.write(20_000, &[2; 512]);
        b.write(20_000, &[2; 512]);
        b.write(1024, &[1; 512]);
        let two_steps = first.after(
            &{
                let mut i = base.clone();
                i.write(1024, &[1; 512]);
                i
            },
            &a,
            &log,
        );
        assert_eq!(two_steps, zero.after(&base, &b, &log));
        assert_ne!(two_steps.all, first.all);
        b.write(9000, &[3; 1]);
        let in_log = zero.after(&base, &b, &log);
        assert!(in_log.all != two_steps.all && in_log.without_log == two_steps.without_log);
        b.write(9000, &[7; 1]);
        assert_eq!(zero.after(&base, &b, &log), two_steps);
        // The same bytes at another place are another image.
        let (mut c, mut d) = (base.clone(), base.clone());
        c.write(30_720, &[9; 512]);
        d.write(31_744, &[9; 512]);
        assert_ne!(zero.after(&base, &c, &log), zero.after(&base, &d, &log));
    }
}
