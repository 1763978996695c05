//! The last step of a batch: operations put bitmaps, extents, sizes, times and journaled pages into the transaction.
//!
//! *Guarantees* (docs/invariants.md):
//! - F8: extents and size join a transaction only when the data that they expose is complete, so that the flush before
//!   the commit makes the data durable first. No reader ever sees what a block held before;
//! - F3: a size joins no earlier than zeros behind the old end that went in place before;
//! - F13: blocks of the map are taken from what is reserved;
//! - F16: where requests are whole, overwritten blocks join one transaction with the extents and the size.

use super::collect::{Collected, Destination, Piece};
use crate::data::context::Data;
use crate::error::{Error, Result};
use crate::map;
use crate::policy::RECORDS_PER_OPERATION;
use crate::records;
use crate::space::{self, Claim, Pool};
use crate::txn::Op;

/// Puts a group of files into the running transaction. Errors stay in what was collected.
pub(in crate::data) fn record(d: &Data, group: &mut [Collected]) {
    for c in group.iter_mut() {
        c.reserved += drop_claims(d, c, &c.lost);
        if c.error.is_some() {
            c.reserved += drop_claims(d, c, &c.pieces);
        }
    }
    for c in group.iter_mut().filter(|c| c.size.is_some()) {
        // Zeros behind the old end may have gone in place with an earlier batch, which nothing names (F3).
        c.written = c.written.max(d.files.unflushed(c.ino));
    }
    let todo: Vec<&mut Collected> = group.iter_mut().filter(|c| c.error.is_none() && c.needs_record()).collect();
    let cost = |c: &Collected| c.pieces.iter().map(Piece::cost).sum::<usize>() + 1;
    if todo.iter().map(|c| cost(c)).sum::<usize>() <= RECORDS_PER_OPERATION {
        let all = run(d, |op| todo.iter().try_for_each(|c| record_file(op, c, 0, c.pieces.len())));
        if all.is_ok() {
            return;
        }
    }
    for c in todo {
        if d.whole_requests() {
            record_whole(d, c);
        } else {
            record_in_parts(d, c);
        }
    }
}

/// Runs an operation that takes blocks of the map from what is reserved (F13).
fn run(d: &Data, f: impl FnMut(&mut Op<'_>) -> Result<()>) -> Result<()> {
    d.engine.run_as(Pool::Reserved, f).map(|((), _)| ())
}

/// Records one file in one operation (F16). Only if its new blocks lie in so many places that no transaction has room
/// for the bitmaps, it takes several, those of the log first.
fn record_whole(d: &Data, c: &mut Collected) {
    match run(d, |op| record_file(op, c, 0, c.pieces.len())) {
        Err(Error::Journal(quire_journal::Error::TooLarge { .. })) => record_in_parts(d, c),
        Err(e) => {
            c.error = Some(e);
            c.reserved += drop_claims(d, c, &c.pieces);
        }
        Ok(()) => {}
    }
}

/// Records one file in as many operations as it takes. Each makes the size reach as far as its pieces.
fn record_in_parts(d: &Data, c: &mut Collected) {
    let most = RECORDS_PER_OPERATION.min(d.engine.journal.limit() / 4).max(1);
    let mut from = 0;
    while c.error.is_none() {
        let mut cost = 0;
        let mut to = from;
        while to < c.pieces.len() && (to == from || cost + c.pieces[to].cost() <= most) {
            cost += c.pieces[to].cost();
            to += 1;
        }
        if let Err(e) = run(d, |op| record_file(op, c, from, to)) {
            c.error = Some(e);
            c.reserved += drop_claims(d, c, &c.pieces[from..]);
        }
        from = to;
        if from == c.pieces.len() {
            break;
        }
    }
}

/// Gives back the claims of pieces that are not recorded. Those of pages become reservations again, until the batch
/// ends (F13); returns how many blocks that are.
fn drop_claims(d: &Data, c: &Collected, pieces: &[Piece]) -> u64 {
    let claims = || pieces.iter().filter_map(claim_of);
    if claims().next().is_none() {
        return 0;
    }
    let kept = if c.pages.is_empty() { 0 } else { claims().map(|claim| u64::from(claim.run().len)).sum() };
    let dropped = d.engine.run(|op| {
        claims().for_each(|c| space::drop_claim(op, c));
        space::reserve_dropped(op, kept);
        Ok(())
    });
    dropped.expect("changes no block");
    kept
}

fn claim_of(p: &Piece) -> Option<&Claim> {
    if let Destination::Claimed(c) = &p.to { Some(c) } else { None }
}

/// Records some of the pieces of a file, and its size as far as they reach; with the last of them, its times.
fn record_file(op: &mut Op<'_>, c: &Collected, from: usize, to: usize) -> Result<()> {
    if let Some(epoch) = c.written {
        op.after_data(epoch);
    }
    let mut inode = records::inode(op, c.ino)?;
    let before = inode.clone();
    for p in &c.pieces[from..to] {
        let start = p.to.start();
        match &p.to {
            Destination::Written(_) => {}
            Destination::Unwritten(_) => map::convert_written(op, c.ino, &mut inode, p.at, p.blocks())?,
            Destination::Claimed(claim) => {
                space::mark_claimed(op, claim)?;
                map::insert(op, c.ino, &mut inode, p.at, start, p.blocks(), false)?;
            }
        }
        if p.journaled {
            for (n, (_, image)) in (0..).zip(&c.pages[p.first..p.first + p.len]) {
                let (b, image) = (start.plus(n), image.clone());
                if p.new_data { op.block_put_new_data(b, image)? } else { op.block_put(b, image)? }
            }
        }
    }
    let bits = op.sb().block_size().bits();
    let size_so_far = match c.pieces[..to].last().filter(|_| to < c.pieces.len()) {
        // The data of all pieces is complete, and what is mapped lies within the size.
        Some(p) => c.size.map(|size| size.min((u64::from(p.at.0) + u64::from(p.blocks())) << bits)),
        None => c.size,
    };
    if let Some(size) = size_so_far.filter(|size| *size > inode.size()) {
        inode.set_size(size);
    }
    if let Some(times) = c.times.filter(|_| to == c.pieces.len()) {
        times.put(&mut inode);
    }
    // Overwritten blocks alone change nothing in the inode.
    if inode != before {
        records::put_inode(op, c.ino, &mut inode)?;
    }
    records::note_change(op, c.ino, true);
    Ok(())
}
