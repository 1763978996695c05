//! Files inside their inode (`inline_data`): whatever changes one's bytes or size first takes it out of there.
//!
//! *Guarantees* F25 (docs/invariants.md): the operation that has the inode forget the bytes has them in a block, so
//! that a crash leaves the file in its inode or in its blocks, whole. Later writes of that block go through the log as
//! long as that holds the image (F9).

use super::blocks::Request;
use super::checks::check_change;
use super::context::Data;
use super::journaled::put_data;
use super::writeback::or_after_writeback;
use crate::error::Result;
use crate::inode::live;
use crate::records;
use crate::tables::Pool;
use crate::txn::Op;
use crate::xattr;
use quire_device::Mutant;
use quire_layout::Ino;
use quire_layout::features::incompat;
use quire_layout::inline_data::{content, is_inline};
use quire_layout::inode::{Inode, flags};

/// Takes a file out of its inode, if it is there and may be changed. The caller does not hold the file.
///
/// # Errors
/// No space; stale; corrupt; I/O; read-only.
pub(super) fn leave_inode(d: &Data, pool: Pool, ino: Ino) -> Result<()> {
    cut_from_inode(d, pool, ino, u64::MAX)
}

/// As [`leave_inode`], and cuts the file off at byte `size` if it is longer, so that bytes that go need no block.
///
/// # Errors
/// As [`leave_inode`]; not permitted, where it would be cut.
pub(super) fn cut_from_inode(d: &Data, pool: Pool, ino: Ino, size: u64) -> Result<()> {
    if !d.engine.context.sb.features().has_incompat(incompat::INLINE_DATA)
        || !d.engine.run(|op| Ok(is_to_leave(&live(op, ino)?)))?
    {
        return Ok(());
    }
    or_after_writeback(d, || leave(d, pool, ino, size))
}

fn is_to_leave(inode: &Inode) -> bool {
    inode.is_file() && is_inline(inode) && !inode.has(flags::IMMUTABLE)
}

fn leave(d: &Data, pool: Pool, ino: Ino, size: u64) -> Result<()> {
    let file = d.files.get(ino);
    let _exclusive = file.exclusive();
    let taken = d.engine.run_as(pool, |op| take_out(op, ino, size))?.0;
    if let Some(bytes) = taken {
        d.engine.commit_all()?;
        d.engine.run_as(pool, |op| {
            let mut inode = live(op, ino)?;
            put_data(op, ino, &mut inode, Request { at: 0, data: &bytes })?;
            records::put_inode(op, ino, &mut inode)
        })?;
    }
    Ok(())
}

/// One operation. Gives the bytes that it has left for another one: a mutant's.
fn take_out(op: &mut Op<'_>, ino: Ino, size: u64) -> Result<Option<Vec<u8>>> {
    let mut inode = live(op, ino)?;
    if !is_to_leave(&inode) {
        return Ok(None);
    }
    let mut bytes = content(ino, &inode)?;
    if size < inode.size() {
        check_change(&inode, true, false)?;
        bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        inode.set_size(size);
    }
    xattr::clear_inline_data(op, ino, &mut inode)?;
    let later = Mutant::InlineDataLater.is_on();
    if !later {
        put_data(op, ino, &mut inode, Request { at: 0, data: &bytes })?;
    }
    records::put_inode(op, ino, &mut inode)?;
    records::note_change(op, ino, true);
    Ok(later.then_some(bytes))
}
