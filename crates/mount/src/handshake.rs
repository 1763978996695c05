//! The handshake: INIT, in which kernel and mount agree on what they can do.

use crate::fail::Fail;
use crate::policy::MAX_BACKGROUND;
use crate::wire::abi::{self, MAX_WRITE, init, max_pages};
use crate::wire::{Body, Out};
use rustix::io::Errno;

/// Capabilities without which we do not work.
const NEEDED: u64 = init::BIG_WRITES | init::DONT_MASK;
/// Capabilities that we use where the kernel has them.
const WANTED: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::ATOMIC_O_TRUNC
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::NO_OPENDIR_SUPPORT
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

/// The capabilities that a mount asks the kernel for, besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requested {
    /// The kernel keeps written pages and hands them over later.
    pub writeback_cache: bool,
    /// POSIX ACLs are enforced.
    pub acl: bool,
    /// Requests come by io_uring.
    pub uring: bool,
    /// Inodes keep whole seconds only (128 bytes): the kernel must not remember more.
    pub whole_seconds: bool,
}

/// Reads INIT, writes the reply. Returns what was agreed, or `None` if the kernel is to ask again with our major
/// version.
pub(crate) fn handshake(body: &mut Body<'_>, out: &mut Out<'_>, requested: Requested) -> Result<Option<u64>, Fail> {
    let (major, minor) = (body.u32()?, body.u32()?);
    if major > abi::MAJOR {
        out.u32(abi::MAJOR)?;
        out.u32(abi::MINOR)?;
        return Ok(None);
    }
    if major < abi::MAJOR || minor < abi::MINOR_MIN {
        tracing::error!("the kernel speaks FUSE {major}.{minor}; {}.{} is needed", abi::MAJOR, abi::MINOR_MIN);
        return Err(Fail::of(Errno::PROTO));
    }
    let readahead = body.u32()?;
    let mut offered = u64::from(body.u32()?);
    if offered & init::INIT_EXT != 0 {
        offered |= u64::from(body.u32()?) << 32;
    }
    let mut wanted = NEEDED | WANTED;
    if requested.writeback_cache {
        wanted |= init::WRITEBACK_CACHE;
    }
    if requested.acl {
        wanted |= init::POSIX_ACL;
    }
    if requested.uring {
        wanted |= init::OVER_IO_URING;
    }
    let agreed = offered & wanted;
    if agreed & NEEDED != NEEDED {
        tracing::error!("the kernel's FUSE lacks capabilities {:#x}", NEEDED & !agreed);
        return Err(Fail::of(Errno::PROTO));
    }
    tracing::debug!("FUSE {major}.{minor}: offered {offered:#x}, agreed {agreed:#x}");
    let low = |v: u64| u32::try_from(v & u64::from(u32::MAX)).expect("masked");
    for v in [abi::MAJOR, abi::MINOR.min(minor), readahead.max(MAX_WRITE), low(agreed)] {
        out.u32(v)?;
    }
    out.u16(MAX_BACKGROUND)?;
    out.u16(MAX_BACKGROUND / 4 * 3)?;
    out.u32(MAX_WRITE)?;
    out.u32(if requested.whole_seconds { 1_000_000_000 } else { 1 })?; // granularity of times, in ns
    out.u16(max_pages(rustix::param::page_size()))?;
    out.u16(0)?;
    out.u32(low(agreed >> 32))?;
    out.bytes(&[0; 28])?;
    Ok(Some(agreed))
}
