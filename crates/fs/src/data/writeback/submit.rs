//! The second step of a batch: the pages that go in place are written to the device, merged, in pieces, and complete.
//!
//! *Guarantees*: when [`submit`] returns, every write is complete or its file has the error and knows the pages. A
//! batch goes in pieces of [`PIECE_DEVICE_TIME`], [`PIECES_AT_ONCE`] at a time. Where no caller waits for the batch, a
//! piece waits for the commit that is being written, and for one only, so that commits without end do not stop it.

use super::collect::{Collected, CollectedPage};
use crate::data::context::Data;
use crate::error::Error;
use crate::policy::{PAGES_PER_WRITE, PIECE_DEVICE_TIME, PIECES_AT_ONCE};
use quire_device::sync::lock;
use quire_device::{DeviceError, Done, Io, Region};
use quire_layout::{BlockNo, BlockSize};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// A device write, and the files (by index) whose pages it holds.
type OwnedWrite = (Io, Vec<usize>);
/// A piece of a batch, and its outcome.
type WrittenPiece<'a> = (Result<Done, DeviceError>, &'a [OwnedWrite]);

/// Writes all pages that go in place, merged where their blocks are neighbours, and waits. `background`: no caller
/// waits for the batch. Errors stay in what was collected.
pub(super) fn submit(d: &Data, batch: &mut [Collected], background: bool) {
    let mut runs: Vec<(BlockNo, usize, &[CollectedPage])> = Vec::new();
    for (i, c) in batch.iter().enumerate() {
        for p in c.pieces.iter().filter(|p| !p.journaled) {
            runs.push((p.to.start(), i, &c.pages[p.first..p.first + p.len]));
        }
    }
    if runs.is_empty() {
        return;
    }
    runs.sort_unstable_by_key(|(b, ..)| *b);
    let writes = merge(d.block_size(), &runs);
    let gate = d.engine.journal.gate();
    // Pieces of two batches would only send a disk's head back and forth.
    let _alone = background.then(|| lock(&d.files.background_write));
    let mut failed: Vec<(usize, Range<BlockNo>, Error)> = Vec::new();
    for (done, writes) in write_pieces(d, &writes, background) {
        if done.is_err() {
            // Each write by itself tells which pages the error hit.
            for (io, owners) in writes {
                if let Err(e) = gate.device().run(vec![io.clone()]) {
                    let blocks = blocks_of(d.block_size(), io);
                    failed.extend(owners.iter().map(|i| (*i, blocks.clone(), Error::from(e.clone()))));
                }
            }
        }
    }
    let epoch = gate.stamp();
    let blocks = |pages: &[CollectedPage]| u32::try_from(pages.len()).expect("a batch is smaller");
    d.engine.journal.written_in_place(runs.iter().map(|(b, _, pages)| (*b, blocks(pages))));
    let mut written: Vec<usize> = runs.iter().map(|(_, i, _)| *i).collect();
    written.sort_unstable();
    written.dedup();
    for i in written {
        batch[i].written = Some(epoch);
        d.files.written(batch[i].ino, epoch);
    }
    for (i, blocks, e) in failed {
        batch[i].lose(&blocks, &e, d.whole_requests());
    }
}

/// The blocks of a device write.
fn blocks_of(bs: BlockSize, io: &Io) -> Range<BlockNo> {
    let (at, len) = io.range();
    BlockNo(at >> bs.bits())..BlockNo((at + len) >> bs.bits())
}

/// Makes device writes of runs that come in the order of the disk.
fn merge(bs: BlockSize, runs: &[(BlockNo, usize, &[CollectedPage])]) -> Vec<OwnedWrite> {
    let mut writes: Vec<OwnedWrite> = Vec::new();
    for (start, owner, pages) in runs {
        let mut at = bs.offset(*start);
        for (_, image) in *pages {
            match writes.last_mut() {
                Some((io, owners)) if joins(io, at) => {
                    if let Io::Write { data, .. } = io {
                        data.push(image.clone());
                    }
                    if owners.last() != Some(owner) {
                        owners.push(*owner);
                    }
                }
                _ => {
                    let io = Io::Write { at, data: vec![image.clone()], region: Region::Data, fua: false };
                    writes.push((io, vec![*owner]));
                }
            }
            at += bs.bytes64();
        }
    }
    writes
}

/// True if a write that begins at `at` can be part of this one.
fn joins(io: &Io, at: u64) -> bool {
    let (start, len) = io.range();
    matches!(io, Io::Write { data, .. } if data.len() < PAGES_PER_WRITE) && start + len == at
}

/// Writes a batch piece by piece. Returns when all pieces are complete, or have failed.
fn write_pieces<'a>(d: &Data, writes: &'a [OwnedWrite], background: bool) -> Vec<WrittenPiece<'a>> {
    let device = d.engine.journal.gate().device();
    let ios_of = |piece: &[OwnedWrite]| piece.iter().map(|(io, _)| io.clone()).collect::<Vec<Io>>();
    let pieces = if d.without().pieces { vec![writes] } else { cut(d, writes) };
    if let ([piece], false) = (&pieces[..], background) {
        // A caller waits for it, and there is nothing to submit meanwhile: no thread has to wake.
        return vec![(device.run(ios_of(piece)), *piece)];
    }
    let (mut done, mut under_way) = (Vec::with_capacity(pieces.len()), VecDeque::new());
    let complete = |(ticket, begun, piece)| {
        let complete = device.wait(ticket);
        note_pace(d, begun, piece);
        (complete, piece)
    };
    for piece in pieces {
        if under_way.len() == PIECES_AT_ONCE {
            done.extend(under_way.pop_front().map(complete));
        }
        if background && !d.without().commit_first {
            d.engine.journal.await_commit_in_flight();
        }
        let begun = d.engine.clock.monotonic();
        under_way.push_back((device.submit(ios_of(piece)), begun, piece));
    }
    done.extend(under_way.into_iter().map(complete));
    done
}

/// A piece is complete: the pace learns how long all that are under way took together.
fn note_pace(d: &Data, begun: Duration, piece: &[OwnedWrite]) {
    let now = d.engine.clock.monotonic();
    let since = std::mem::replace(&mut *lock(&d.piece_completed), now).max(begun);
    d.pace.wrote(piece.iter().map(|(io, _)| io.range().1).sum(), now.saturating_sub(since));
}

/// Cuts a batch into pieces of [`PIECE_DEVICE_TIME`] each, by the measured pace of the device; one write at least.
fn cut<'a>(d: &Data, writes: &'a [OwnedWrite]) -> Vec<&'a [OwnedWrite]> {
    let (write, bandwidth) = (d.pace.write(), d.pace.bandwidth());
    let cost = |io: &Io| write + Duration::from_nanos(io.range().1 * 1_000_000_000 / bandwidth);
    let (mut pieces, mut first, mut took) = (Vec::new(), 0, Duration::ZERO);
    for (n, (io, _)) in writes.iter().enumerate() {
        took += cost(io);
        if took >= PIECE_DEVICE_TIME {
            pieces.push(&writes[first..=n]);
            (first, took) = (n + 1, Duration::ZERO);
        }
    }
    if first < writes.len() {
        pieces.push(&writes[first..]);
    }
    pieces
}
