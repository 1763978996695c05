//! `copy_file_range`: bytes from one file to another, or within one.

use super::context::Data;
use super::flags::WriteFlags;
use super::read::{Intent, read};
use super::settle::DiskAttr;
use super::write::write;
use crate::error::{Error, Result};
use crate::inode::{Attr, live};
use crate::tables::Pool;
use quire_layout::Ino;

/// A place in a file, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePlace {
    pub ino: Ino,
    pub offset: u64,
}

/// Copies up to `len` bytes; returns how many. Fewer are copied at the end of the source, or when an error stops the
/// copy after some.
///
/// # Errors
/// Invalid: overlapping ranges of one file. Otherwise as [`read`] and [`write`].
pub(crate) fn copy_range(d: &Data, pool: Pool, from: FilePlace, to: FilePlace, len: u64) -> Result<u64> {
    from.offset.checked_add(len).ok_or(Error::TooLarge)?;
    let source = d.engine.run(|op| {
        let inode = live(op, from.ino)?;
        Ok(DiskAttr::new(d, Attr::of(op.sb(), from.ino, &inode)))
    })?;
    // What the copy itself adds to the source is not copied.
    let len = len.min(source.with_pending(d).size.saturating_sub(from.offset));
    let from_end = from.offset + len;
    let to_end = to.offset.checked_add(len).ok_or(Error::TooLarge)?;
    if len > 0 && from.ino == to.ino && from.offset < to_end && to.offset < from_end {
        return Err(Error::Invalid("overlapping ranges of one file"));
    }
    let request = d.request_bytes();
    let mut buf = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(request)];
    let mut done = 0;
    while done < len {
        let n = usize::try_from(len - done).unwrap_or(usize::MAX).min(request);
        match copy_part(d, pool, from, to, done, &mut buf[..n]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn copy_part(d: &Data, pool: Pool, from: FilePlace, to: FilePlace, done: u64, buf: &mut [u8]) -> Result<u64> {
    let n = read(d, from.ino, from.offset + done, buf, Intent::Read)?;
    if n == 0 {
        return Ok(0);
    }
    Ok(write(d, pool, to.ino, to.offset + done, &buf[..n], WriteFlags::default())? as u64)
}
