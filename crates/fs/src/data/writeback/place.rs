//! The step before the device: an operation chooses the destination and the way of each page.
//!
//! *Guarantees* F9 (docs/invariants.md): a block whose record is live in the log is not written in place; its page
//! joins the transaction instead.

use super::collect::{Collected, Destination, Piece};
use crate::data::context::Data;
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::policy::JOURNALED_BLOCKS_PER_PIECE;
use crate::records;
use crate::space::{self, Goal, Pool, Request, Reservation};
use crate::txn::Op;
use quire_device::Mutant;
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, FileBlock, Ino};

/// Chooses where each page of a group of files goes. Reservations become claims. Errors stay in what was collected.
pub(super) fn place(d: &Data, group: &mut [Collected]) {
    let limit = d.engine.journal.limit();
    let placed = d.engine.run(|op| group.iter().map(|c| place_file(op, c, limit)).collect::<Result<Vec<_>>>());
    match placed {
        Ok(places) => {
            for (c, pieces) in group.iter_mut().zip(places) {
                (c.pieces, c.reserved) = (pieces, 0);
            }
        }
        Err(e) => match group {
            // What is reserved stays so until the batch ends (F13).
            [c] => c.error = Some(e),
            group => group.chunks_mut(1).for_each(|one| place(d, one)),
        },
    }
}

/// Gives reserved blocks back.
pub(in crate::data) fn unreserve(d: &Data, blocks: Reservation) {
    if !blocks.is_nothing() {
        let given = d.engine.run(|op| {
            space::unreserve(op, blocks);
            Ok(())
        });
        given.expect("changes no block");
    }
}

/// Chooses the places of one file's pages. `transaction_limit`: the blocks that a transaction may hold.
fn place_file(op: &mut Op<'_>, c: &Collected, transaction_limit: usize) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    if c.pages.is_empty() {
        return Ok(pieces);
    }
    let inode = records::inode(op, c.ino)?;
    let mut next_goal = None;
    let mut first = 0;
    while let Some((at, _)) = c.pages.get(first) {
        let sequence = c.journaled.contains(at);
        let alike = |b: &FileBlock| c.journaled.contains(b) == sequence;
        let run = (c.pages[first..].iter().zip(at.0..)).take_while(|((b, _), n)| b.0 == *n && alike(b)).count();
        let run = u32::try_from(run).expect("a batch is smaller");
        let (to, journaled, len) = match map::lookup(op, c.ino, &inode, *at, run)? {
            Mapping::Mapped { phys, len, unwritten } => way_of_mapped(op, phys, len, unwritten, sequence),
            Mapping::Hole { len } => {
                let want = if sequence { len.min(JOURNALED_BLOCKS_PER_PIECE) } else { len };
                let (to, len) = claim_hole(op, c.ino, &inode, *at, want, &mut next_goal)?;
                (to, sequence, len)
            }
        };
        // A file with journaled data, or an earlier owner of the block, may have left an image in memory.
        if !journaled {
            op.forget(to.start(), len);
        }
        let len = usize::try_from(len).expect("a batch is smaller");
        pieces.push(Piece { at: *at, first, len, to, journaled, new_data: false });
        first += len;
    }
    space::unreserve(op, Reservation::data(c.reserved));
    log_new_data(&mut pieces, c.log_limit, transaction_limit);
    Ok(pieces)
}

/// Has the new data of a file logged with the commit if it is small enough.
fn log_new_data(pieces: &mut [Piece], log_limit: usize, transaction_limit: usize) {
    let recorded = |journaled| pieces.iter().filter(move |p| p.journaled == journaled && p.is_recorded());
    let blocks = |journaled| recorded(journaled).map(|p| p.len).sum::<usize>();
    // Together with the overwritten blocks it has to fit a transaction (F16).
    if blocks(false) <= log_limit && blocks(false) + blocks(true) <= transaction_limit / 2 {
        for p in pieces.iter_mut().filter(|p| p.is_recorded() && !p.journaled) {
            (p.journaled, p.new_data) = (true, true);
        }
    }
}

/// Chooses blocks for the start of a hole, behind the last that were chosen. Returns the place and the number of
/// blocks.
pub(in crate::data) fn claim_hole(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &Inode,
    at: FileBlock,
    len: u32,
    next_goal: &mut Option<Goal>,
) -> Result<(Destination, u32), Error> {
    let goal = match *next_goal {
        Some(goal) => goal,
        None => map::goal(op, ino, inode, at, len)?,
    };
    let claim = space::claim(op, &Request { goal, want: len, pool: Pool::Reserved, below: map::below(inode) })?;
    let run = claim.run();
    *next_goal = Some(Goal { at: run.end(), ..goal });
    Ok((Destination::Claimed(claim), run.len))
}

/// True if a mapped block must go through the log (F9, F16). Blocks of a journaled update sequence go there besides.
pub(in crate::data) fn must_be_journaled(op: &Op<'_>, b: BlockNo, unwritten: bool) -> bool {
    let overwritten = !unwritten && op.context.route.whole_requests();
    overwritten || op.is_journaled(b) && !Mutant::SequenceEndsEarly.is_on()
}

/// The way of a run of mapped blocks, and the number of blocks that go it.
fn way_of_mapped(op: &Op<'_>, phys: BlockNo, len: u32, unwritten: bool, sequence: bool) -> (Destination, bool, u32) {
    let mutant = Mutant::JournaledInPlace.is_on() || Mutant::ModeChangedInPlace.is_on();
    let way = |b| (sequence || must_be_journaled(op, b, unwritten)) && !mutant;
    let journaled = way(phys);
    let same = |n: &u64| way(phys.plus(*n)) == journaled;
    let run = u32::try_from((0..u64::from(len)).take_while(same).count()).expect("at most len");
    let to = if unwritten { Destination::Unwritten(phys) } else { Destination::Written(phys) };
    (to, journaled, if journaled { run.min(JOURNALED_BLOCKS_PER_PIECE) } else { run })
}
