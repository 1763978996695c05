//! An atomic update of one file: bytes that wait in memory, private to the update, and then join one transaction.
//!
//! ```text
//! begin ──> stage, stage, ... (memory alone) ──commit──> file lock ─> pending pages written back ─> one operation
//!                └────────────abort, drop──> gone
//! ```
//! *Guarantees* (docs/invariants.md): F22: a crash leaves all bytes of an update or none; no other reader sees one
//! before the commit. F23: a file has one update at a time, and what all updates hold in memory is bounded.
//!
//! An update is a set of bytes, not a snapshot: what other callers write, cut off or rename meanwhile happens at once,
//! and the commit writes over it. The bytes go through the journal whatever the file's route is, because only there one
//! operation has all of them.

use super::blocks::Request;
use super::checks::{check_change, check_file, max_size, touch};
use super::context::Data;
use super::inline::leave_inode;
use super::journaled::put_data;
use super::preallocated::or_in_written;
use super::settle::settle_pages;
use super::staged::Staged;
use crate::error::{Error, Result};
use crate::inode::{Privileges, drop_privileges, live};
use crate::records;
use crate::tables::Pool;
use crate::txn::Op;
use quire_device::Mutant;
use quire_device::sync::lock;
use quire_layout::{BlockSize, FileBlock, Ino};

fn blocks_of(bs: BlockSize, at: u64, len: usize) -> Result<impl Iterator<Item = FileBlock> + Clone> {
    let last = at.checked_add(len as u64 - 1).and_then(|end| bs.file_block(end)).ok_or(Error::TooLarge)?;
    let first = bs.file_block(at).ok_or(Error::TooLarge)?;
    Ok((first.0..=last.0).map(FileBlock))
}

/// The blocks of data that one update may change: half a transaction. The rest is for what maps them.
fn most_blocks(d: &Data) -> usize {
    (d.engine.journal.limit() / 2).max(1)
}

/// True if files can be updated atomically: there is a log.
pub(crate) fn can_update(d: &Data) -> bool {
    d.engine.context.route.has_log()
}

/// Begins an update of a file.
///
/// # Errors
/// Busy: there is one. Not supported: there is no journal. Not a regular file; immutable; read-only; corrupt; I/O.
pub(crate) fn begin_update(d: &Data, ino: Ino) -> Result<Staged> {
    d.engine.write_gate.check()?;
    if !can_update(d) {
        return Err(Error::NotSupported("atomic updates without a journal"));
    }
    d.engine.run(|op| {
        let inode = live(op, ino)?;
        check_file(&inode)?;
        check_change(&inode, false, false)
    })?;
    if !d.updates.begin(ino) {
        return Err(Error::Busy(format!("inode {} is being updated atomically", ino.0)));
    }
    Ok(Staged::default())
}

/// Stages bytes.
///
/// # Errors
/// Too large: for a file. [`Error::UpdateFull`]: more than one transaction holds, or than all updates may have in
/// memory.
pub(crate) fn stage(d: &Data, staged: &mut Staged, at: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let touched = blocks_of(d.block_size(), at, bytes.len())?;
    let more = touched.clone().filter(|b| !staged.blocks.contains(b)).count();
    let limit = most_blocks(d);
    if staged.blocks.len() + more > limit || !d.updates.take(more, 2 * limit) {
        return Err(Error::UpdateFull { limit });
    }
    staged.blocks.extend(touched);
    staged.put(at, bytes);
    Ok(())
}

/// Ends an update: another one of the file may begin.
pub(crate) fn end_update(d: &Data, ino: Ino, staged: &Staged) {
    d.updates.end(ino, staged);
}

/// Makes the staged bytes the file's, in one transaction (F22). The caller makes it durable.
///
/// # Errors
/// No space; too large; not permitted; read-only; corrupt; I/O. The file is then as it was.
pub(crate) fn commit_update(d: &Data, pool: Pool, ino: Ino, staged: &Staged) -> Result<()> {
    d.engine.write_gate.check()?;
    let extents: Vec<Request<'_>> = staged.extents.iter().map(|(at, data)| Request { at: *at, data }).collect();
    if extents.is_empty() {
        return Ok(());
    }
    if Mutant::UpdateTorn.is_on() {
        for one in &extents {
            join(d, pool, ino, std::slice::from_ref(one), staged.privileges)?;
            d.engine.commit_all()?;
        }
        return Ok(());
    }
    match or_in_written(d, ino, &extents, false, || join(d, pool, ino, &extents, staged.privileges)) {
        Err(Error::Journal(quire_journal::Error::TooLarge { .. })) => Err(Error::UpdateFull { limit: most_blocks(d) }),
        joined => joined,
    }
}

/// One operation that writes all of these bytes.
fn join(d: &Data, pool: Pool, ino: Ino, extents: &[Request<'_>], privileges: Privileges) -> Result<()> {
    leave_inode(d, pool, ino)?;
    let file = d.files.get(ino);
    let mut s = file.exclusive();
    settle_pages(d, ino, &mut s)?;
    lock(&d.files.clean).drop_from(ino, FileBlock(0));
    d.engine.run_as(pool, |op| write_all(op, ino, extents, privileges))?;
    Ok(())
}

fn write_all(op: &mut Op<'_>, ino: Ino, extents: &[Request<'_>], privileges: Privileges) -> Result<()> {
    let mut inode = live(op, ino)?;
    let most = max_size(op, &inode);
    for r in extents {
        check_change(&inode, r.at < inode.size(), false)?;
        if r.end() > most {
            return Err(Error::TooLarge);
        }
        put_data(op, ino, &mut inode, *r)?;
        if r.end() > inode.size() {
            inode.set_size(r.end());
        }
    }
    touch(op, &mut inode);
    drop_privileges(op, ino, &mut inode, privileges)?;
    records::put_inode(op, ino, &mut inode)?;
    records::note_change(op, ino, true);
    Ok(())
}
