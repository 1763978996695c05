//! The way to the device for what nobody waits for in particular: the pieces of long rounds.
//!
//! ```text
//! enter ─> room beside what is under way? ─> is a commit being written? it goes first ─> device ─> leave
//! ```
//! While commits come often, what is under way takes the device [`UNDER_WAY`] at most, by its measured pace: a commit waits for that much and
//! not for all that is to be written. Who enters waits for one commit at most, so that commits without end do not stop it.
//!
//! Relies on: who is in the lane waits for no handle, hold or file, and a commit that is being written does not either, nor for the lane.

use crate::volume::{Inner, Volume};
use quire_device::sync::{Condvar, Mutex, lock, wait};
use quire_device::{DeviceError, Done, Io};
use std::collections::VecDeque;
use std::time::Duration;

/// What a piece of a round takes of the device's time.
const PIECE: Duration = Duration::from_millis(2);
/// What is given to the device at once: while one piece is being written, the next is there.
const UNDER_WAY: Duration = Duration::from_millis(4);

/// So many commits, or flushes, that somebody waited for within so long are often.
const OFTEN: usize = 4;
const LATELY: Duration = Duration::from_secs(1);
/// Binary logarithm of the rounds that go by, at most, after so many have waited in vain.
const MOST_SKIPPED: u32 = 6;

/// What is in the lane.
#[derive(Default)]
pub(super) struct Lane {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    bytes: u64,
    /// When something was last complete, by the monotonic clock.
    completed: Duration,
    /// The last commits that somebody waited for, by the monotonic clock.
    commits: VecDeque<Duration>,
    /// Rounds that waited for the flush of one, in vain, since one did not.
    in_vain: u32,
    /// Rounds that are not to wait for it.
    skip: u32,
}

impl State {
    fn commits_often(&self, now: Duration) -> bool {
        self.commits.len() == OFTEN && self.commits.front().is_some_and(|first| now.saturating_sub(*first) < LATELY)
    }

    fn admit(&mut self, bytes: u64, volume: &Inner) -> bool {
        let admitted = self.bytes == 0
            || self.bytes + bytes <= volume.pace.bytes_in(UNDER_WAY)
            || !self.commits_often(volume.clock.monotonic());
        self.bytes += if admitted { bytes } else { 0 };
        admitted
    }
}

/// A write of a round, and whose it is.
type Owned = (Io, Vec<usize>);
/// A piece of a round, and what became of it.
type Written<'a> = (Result<Done, DeviceError>, &'a [Owned]);

/// Bytes in the lane until they [leave](Volume::leave_lane).
#[must_use]
pub(super) struct Entered {
    bytes: u64,
    since: Duration,
}

impl Volume {
    /// Returns when the device may be given so many bytes more.
    fn enter_lane(&self, bytes: u64) -> Entered {
        let lane = &self.inner.files.lane;
        let mut s = lock(&lane.state);
        while !s.admit(bytes, &self.inner) {
            s = wait(&lane.left, s);
        }
        drop(s);
        // There may be room for another.
        lane.left.notify_one();
        self.entered(bytes)
    }

    /// As [`Volume::enter_lane`], if there is room at once.
    pub(super) fn try_lane(&self, bytes: u64) -> Option<Entered> {
        let admitted = lock(&self.inner.files.lane.state).admit(bytes, &self.inner);
        admitted.then(|| self.entered(bytes))
    }

    /// Somebody waited for a commit, or a flush.
    pub(super) fn note_commit(&self) {
        let now = self.inner.clock.monotonic();
        let mut s = lock(&self.inner.files.lane.state);
        if s.commits.len() == OFTEN {
            s.commits.pop_front();
        }
        s.commits.push_back(now);
    }

    /// True while small changes are made durable again and again: then, what nobody waits for should not come in heaps.
    #[must_use]
    pub fn commits_often(&self) -> bool {
        lock(&self.inner.files.lane.state).commits_often(self.inner.clock.monotonic())
    }

    /// How long a round that could wait so long for a flush of others is to: not at all for a while after it was in vain, and for longer each
    /// time, since commits may be often and yet further apart than that.
    pub(super) fn patience(&self, could: Duration) -> Duration {
        let mut s = lock(&self.inner.files.lane.state);
        if could.is_zero() || s.skip == 0 {
            return could;
        }
        s.skip -= 1;
        Duration::ZERO
    }

    /// A round waited for a flush of others.
    pub(super) fn waited(&self, in_vain: bool) {
        let mut s = lock(&self.inner.files.lane.state);
        s.in_vain = if in_vain { (s.in_vain + 1).min(MOST_SKIPPED) } else { 0 };
        s.skip = (1 << s.in_vain) - 1;
    }

    fn entered(&self, bytes: u64) -> Entered {
        self.inner.journal.let_commit_pass();
        Entered { bytes, since: self.inner.clock.monotonic() }
    }

    /// It is complete: others may go, and the pace is told what all that was under way took together.
    pub(super) fn leave_lane(&self, entered: Entered) {
        let lane = &self.inner.files.lane;
        let now = self.inner.clock.monotonic();
        let mut s = lock(&lane.state);
        let since = s.completed.max(entered.since);
        s.completed = now;
        s.bytes -= entered.bytes;
        drop(s);
        lane.left.notify_one();
        self.inner.pace.wrote(entered.bytes, now.saturating_sub(since));
    }

    /// Writes a round piece by piece, two at a time at most. Returns when all of it is complete, or has failed.
    pub(super) fn write_pieces<'a>(&self, ios: &'a [Owned], sweep: bool) -> Vec<Written<'a>> {
        let device = self.inner.journal.gate().device();
        let of = |piece: &[Owned]| piece.iter().map(|(io, _)| io.clone()).collect::<Vec<Io>>();
        let pieces = self.pieces(ios);
        if let ([piece], false) = (&pieces[..], sweep) {
            // Somebody waits for it; there is nothing to submit meanwhile, and no thread has to wake.
            return vec![(device.run(of(piece)), *piece)];
        }
        let (mut done, mut under_way) = (Vec::with_capacity(pieces.len()), VecDeque::new());
        let complete = |(ticket, entered, piece)| {
            let complete = device.wait(ticket);
            self.leave_lane(entered);
            (complete, piece)
        };
        for piece in pieces {
            let bytes = piece.iter().map(|(io, _)| io.range().1).sum();
            let entered = loop {
                // What there is no room beside may be its own.
                let entered = match under_way.len() {
                    0 => Some(self.enter_lane(bytes)),
                    1 => self.try_lane(bytes),
                    _ => None,
                };
                match entered {
                    Some(entered) => break entered,
                    None => done.extend(under_way.pop_front().map(complete)),
                }
            };
            under_way.push_back((device.submit(of(piece)), entered, piece));
        }
        done.extend(under_way.into_iter().map(complete));
        done
    }

    /// Cuts a round into pieces of [`PIECE`] each, by what this device was seen to take; one write at least.
    fn pieces<'a>(&self, ios: &'a [Owned]) -> Vec<&'a [Owned]> {
        let (write, bandwidth) = (self.inner.pace.write(), self.inner.pace.bandwidth());
        let cost = |io: &Io| write + Duration::from_nanos(io.range().1 * 1_000_000_000 / bandwidth);
        let (mut pieces, mut first, mut took) = (Vec::new(), 0, Duration::ZERO);
        for (n, (io, _)) in ios.iter().enumerate() {
            took += cost(io);
            if took >= PIECE {
                pieces.push(&ios[first..=n]);
                (first, took) = (n + 1, Duration::ZERO);
            }
        }
        if first < ios.len() {
            pieces.push(&ios[first..]);
        }
        pieces
    }
}
