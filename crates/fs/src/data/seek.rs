//! Where data and holes are: `SEEK_DATA`, `SEEK_HOLE`, FIEMAP.
//!
//! A pending page and a written block are data. Holes and unwritten blocks without a page are holes, as in the kernel.

use super::checks::check_file;
use super::context::Data;
use super::pages::FileState;
use crate::error::{Error, Result};
use crate::map;
use crate::policy::EXTENTS_PER_OPERATION;
use crate::records;
use quire_layout::extent::Extent;
use quire_layout::inline_data::is_inline;
use quire_layout::{BlockNo, FileBlock, Ino};

/// What to look for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    Data,
    Hole,
}

/// One run of a file on disk, as FIEMAP tells it. In bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    pub logical: u64,
    /// Place in the image; 0 if `delayed`.
    pub physical: u64,
    pub len: u64,
    /// Space without data.
    pub unwritten: bool,
    /// Data in memory, with no place on disk yet.
    pub delayed: bool,
    /// Nothing follows.
    pub last: bool,
}

/// The first byte from `offset` on that is data, or that is a hole. The end of the file counts as a hole.
///
/// # Errors
/// No such range: `offset` is at or behind the end of the file, or no data follows; corrupt block map.
pub(crate) fn seek(d: &Data, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
    let bs = d.block_size();
    let file = d.files.get(ino);
    let (_reader, s) = file.reader();
    let (size, start) = (s.size, bs.file_block(offset));
    let pages = pages_from(&s, start.unwrap_or(FileBlock(u32::MAX)));
    drop(s);
    let size = d.engine.run(|op| {
        let inode = records::inode(op, ino)?;
        check_file(&inode)?;
        Ok(size.unwrap_or(inode.size()))
    })?;
    let Some(mut at) = start.filter(|_| offset < size) else { return Err(Error::NoSuchRange) };
    let end = bs.file_block(size - 1).map_or(FileBlock(u32::MAX), |b| b.plus(1));
    // From here on `at` is where data may begin, or where the data from `offset` on ends.
    while at < end {
        let written = written_from(d, ino, at)?;
        let page = next_run(&pages, at);
        let next = match (written, page) {
            (None, None) => break,
            (Some(a), None) => a,
            (None, Some(b)) => b,
            (Some(a), Some(b)) => {
                if a.0 <= b.0 {
                    a
                } else {
                    b
                }
            }
        };
        if what == Seek::Data {
            return if next.0 < end {
                Ok(offset.max(u64::from(next.0.0) << bs.bits()))
            } else {
                Err(Error::NoSuchRange)
            };
        }
        if next.0 > at {
            break;
        }
        at = next.1;
    }
    match what {
        Seek::Data => Err(Error::NoSuchRange),
        Seek::Hole => Ok(offset.max(u64::from(at.0) << bs.bits()).min(size)),
    }
}

/// The first written run that ends behind `at`: where it begins (not before `at`) and ends.
fn written_from(d: &Data, ino: Ino, mut at: FileBlock) -> Result<Option<(FileBlock, FileBlock)>> {
    let from = at;
    loop {
        let part = d.engine.run(|op| {
            let inode = records::inode(op, ino)?;
            if is_inline(&inode) {
                // All of it is data, in no block.
                let all = Extent { at: FileBlock(0), len: 1, phys: BlockNo(0), unwritten: false };
                return Ok(vec![all]);
            }
            map::extents(op, ino, &inode, at, EXTENTS_PER_OPERATION)
        })?;
        let mut written = part.iter().filter(|e| !e.unwritten && e.end() > from);
        if let Some(first) = written.next() {
            let mut end = first.end();
            written
                .take_while(|e| {
                    let joins = e.at == end;
                    if joins {
                        end = e.end()
                    }
                    joins
                })
                .for_each(drop);
            return Ok(Some((first.at.max(from), end)));
        }
        match part.last() {
            Some(last) if part.len() == EXTENTS_PER_OPERATION => at = last.end(),
            _ => return Ok(None),
        }
    }
}

/// The runs of a file that touch a range of bytes, at most `limit`: what FIEMAP tells.
///
/// # Errors
/// Not a regular file; corrupt block map.
pub(crate) fn extents(d: &Data, ino: Ino, offset: u64, len: u64, limit: usize) -> Result<Vec<FileExtent>> {
    let bs = d.block_size();
    let file = d.files.get(ino);
    let (_reader, s) = file.reader();
    let Some(from) = bs.file_block(offset) else { return Ok(Vec::new()) };
    let delayed: Vec<FileBlock> = s.range(from, FileBlock(u32::MAX)).map(|(b, _)| b).collect();
    drop(s);
    let to = bs.file_block(offset.saturating_add(len.max(1) - 1)).unwrap_or(FileBlock(u32::MAX - 1));
    let mut mapped: Vec<Extent> = Vec::new();
    let mut at = from;
    // One more than asked for tells which is the last.
    while mapped.len() <= limit {
        let part = d.engine.run(|op| {
            let inode = records::inode(op, ino)?;
            check_file(&inode)?;
            if is_inline(&inode) { Ok(Vec::new()) } else { map::extents(op, ino, &inode, at, EXTENTS_PER_OPERATION) }
        })?;
        let whole = part.len() < EXTENTS_PER_OPERATION;
        at = part.last().map_or(at, Extent::end);
        mapped.extend(part);
        if whole {
            break;
        }
    }
    let mut out: Vec<FileExtent> = mapped
        .iter()
        .map(|e| FileExtent {
            logical: u64::from(e.at.0) << bs.bits(),
            physical: bs.offset(e.phys),
            len: u64::from(e.len) << bs.bits(),
            unwritten: e.unwritten,
            delayed: false,
            last: false,
        })
        .collect();
    let known_to =
        if mapped.len() > limit { mapped.last().map_or(FileBlock(0), |e| e.end()) } else { FileBlock(u32::MAX) };
    for b in delayed.into_iter().filter(|b| *b < known_to) {
        let i = mapped.partition_point(|e| e.end() <= b);
        if mapped.get(i).is_none_or(|e| e.at > b) {
            add_delayed(&mut out, u64::from(b.0) << bs.bits(), bs.bytes64());
        }
    }
    out.sort_unstable_by_key(|e| e.logical);
    if known_to == FileBlock(u32::MAX)
        && let Some(last) = out.last_mut()
    {
        last.last = true;
    }
    let end = (u64::from(to.0) + 1) << bs.bits();
    out.retain(|e| e.logical < end && e.logical + e.len > offset);
    out.truncate(limit);
    Ok(out)
}

fn add_delayed(out: &mut Vec<FileExtent>, logical: u64, len: u64) {
    match out.last_mut() {
        Some(e) if e.delayed && e.logical + e.len == logical => e.len += len,
        _ => out.push(FileExtent { logical, physical: 0, len, unwritten: false, delayed: true, last: false }),
    }
}

fn pages_from(s: &FileState, from: FileBlock) -> Vec<FileBlock> {
    s.range(from, FileBlock(u32::MAX)).map(|(b, _)| b).collect()
}

/// The first run of pages at or behind `at`.
fn next_run(pages: &[FileBlock], at: FileBlock) -> Option<(FileBlock, FileBlock)> {
    let i = pages.partition_point(|b| *b < at);
    let first = *pages.get(i)?;
    let len = pages[i..].iter().zip(first.0..).take_while(|(b, n)| b.0 == *n).count();
    Some((first, first.plus(u32::try_from(len).expect("a file has fewer blocks"))))
}
