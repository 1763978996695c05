//! IOCTL: inode flags (lsattr, chattr), generation, FITRIM, growth, journaling modes. docs/design/fuse.md says who may.

use crate::caller::{self, Capability};
use crate::fail::Fail;
use crate::server::{Answer, Server, ino_of};
use crate::wire::abi::{HANDLE_BYPASSES, HANDLE_WRITES, IOCTL_UNRESTRICTED, init};
use crate::wire::{Body, Header, Out};
use quire_fs::{JournalingMode, Shutdown};
use quire_layout::Ino;
use quire_layout::inode::flags;
use rustix::io::Errno;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
/// The kernel sends it only after it has checked who may change which flag. It translates the number of 32-bit programs
/// to this one, so that number comes only from a caller that the kernel has not checked.
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
/// ext4's own number for the same. There is no FS_IOC_SETVERSION: the kernel takes an inode whose generation changes
/// for another one, and fails all that have it open.
const EXT4_IOC_GETVERSION: u32 = 0x8008_6603;
const FS_IOC_FSGETXATTR: u32 = 0x801C_581F;
const FS_IOC_FSSETXATTR: u32 = 0x401C_5820;
const FS_IOC_GETFSLABEL: u32 = 0x8100_9431;
const FS_IOC_SETFSLABEL: u32 = 0x4100_9432;
const FSLABEL_SIZE: usize = 256;
/// A number of blocks: what resize2fs asks of a mount.
const EXT4_IOC_RESIZE_FS: u32 = 0x4008_6610;
const FITRIM: u32 = 0xC018_5879;
/// Also EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN.
const FS_IOC_SHUTDOWN: u32 = 0x8004_587D;
/// `_IOR('Q', 6, int)`, `_IOW('Q', 7, int)`: what is said about a file's data. 0 nothing, 1 journal, 2 ordered.
const QUIRE_IOC_GET_JOURNAL: u32 = 0x8004_5106;
const QUIRE_IOC_SET_JOURNAL: u32 = 0x4004_5107;

/// The atomic writes of F2FS (`linux/f2fs.h`), which SQLite uses: docs/databases.md.
const F2FS_IOC_START_ATOMIC_WRITE: u32 = 0xF501;
const F2FS_IOC_COMMIT_ATOMIC_WRITE: u32 = 0xF502;
const F2FS_IOC_START_VOLATILE_WRITE: u32 = 0xF503;
const F2FS_IOC_ABORT_ATOMIC_WRITE: u32 = 0xF505;
const F2FS_IOC_GET_FEATURES: u32 = 0x8004_F50C;
const F2FS_FEATURE_ATOMIC_WRITE: u32 = 0x4;

/// `fsx_xflags` and the inode flag that each stands for.
const XFLAGS: &[(u32, u32)] = &[
    (0x8, flags::IMMUTABLE),
    (0x10, flags::APPEND),
    (0x20, flags::SYNC),
    (0x40, flags::NOATIME),
    (0x80, flags::NODUMP),
    (0x200, flags::PROJINHERIT),
    (0x8000, flags::DAX),
    (0x2_0000, flags::VERITY),
];
/// Bytes of `struct fsxattr` after the project.
const FSXATTR_REST: usize = 12;

/// True for a command that changes an inode, discards blocks, or begins or ends an atomic update: it waits for the end
/// of a freeze.
pub(crate) fn ioctl_changes(command: u32) -> bool {
    matches!(
        command,
        FS_IOC_SETFLAGS
            | FS_IOC_FSSETXATTR
            | FS_IOC_SETFSLABEL
            | FITRIM
            | EXT4_IOC_RESIZE_FS
            | QUIRE_IOC_SET_JOURNAL
            | F2FS_IOC_START_ATOMIC_WRITE
            | F2FS_IOC_COMMIT_ATOMIC_WRITE
    )
}

/// True for a command that may make a file immutable or append-only.
pub(crate) fn sets_flags(command: u32) -> bool {
    matches!(command, FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR)
}

pub(crate) fn shuts_down(command: u32) -> bool {
    command == FS_IOC_SHUTDOWN
}

/// True for a FS_IOC_SHUTDOWN that writes what there is first. It looks into the caller's memory, which may take as
/// long as the caller makes it.
pub(crate) fn shuts_down_clean(h: &Header, request: &[u8]) -> bool {
    let mut body = Body::new(request);
    let argument = body.header().and_then(|_| body.skip(12)).and_then(|()| Ok((body.u32()?, body.u64()?)));
    argument.is_ok_and(|(command, at)| shuts_down(command) && how_to_shut_down(h, at) == Ok(Shutdown::Clean))
}

/// The command is one that reads, so the kernel does not bring the argument with it.
fn how_to_shut_down(h: &Header, address: u64) -> Result<Shutdown, Fail> {
    match caller::argument(h.pid, address)? {
        0 => Ok(Shutdown::Clean),
        1 => Ok(Shutdown::LogFlushed),
        2 => Ok(Shutdown::AtOnce),
        _ => Err(Fail::of(Errno::INVAL)),
    }
}

pub(crate) fn ioctl(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let handle = b.u64()?;
    let (bits, command) = (b.u32()?, b.u32()?);
    let address = b.u64()?;
    let (in_size, out_size) = (b.u32()?, b.u32()?);
    if bits & IOCTL_UNRESTRICTED != 0 {
        return Err(Fail::of(Errno::NOSYS));
    }
    if command == FS_IOC_SHUTDOWN {
        s.demand(h, Capability::SysAdmin)?;
        s.volume.maintenance().shut_down(how_to_shut_down(h, address)?)?;
        out.bytes(&[0; 16])?;
        return Ok(Answer::StopsAll);
    }
    let mut given = Body::new(b.bytes(in_size)?);
    // `fuse_ioctl_out`: result 0, nothing to retry.
    out.bytes(&[0; 16])?;
    if let Some(answer) = atomic_write(s, h, handle, command, out) {
        return answer;
    }
    run_command(s, h, command, &mut given, out)?;
    // No more than the caller has room for.
    out.truncate(16 + usize::try_from(out_size).map_err(|_| Fail::of(Errno::INVAL))?);
    // A change sets the inode's ctime.
    Ok(if ioctl_changes(command) { Answer::Spoils(ino_of(h.node)?) } else { Answer::Reply })
}

/// The atomic writes of F2FS; `None` for another command.
fn atomic_write(s: &Server, h: &Header, handle: u64, command: u32, out: &mut Out<'_>) -> Option<Result<Answer, Fail>> {
    Some(match command {
        F2FS_IOC_GET_FEATURES => atomic_features(s, h, handle, out),
        F2FS_IOC_START_ATOMIC_WRITE => start_atomic_write(s, h, handle),
        F2FS_IOC_COMMIT_ATOMIC_WRITE => commit_atomic_write(s, h, handle),
        // As F2FS, also where there is none.
        F2FS_IOC_ABORT_ATOMIC_WRITE => {
            s.updates.abort(handle);
            Ok(Answer::Reply)
        }
        F2FS_IOC_START_VOLATILE_WRITE => Err(Fail::of(Errno::OPNOTSUPP)),
        _ => return None,
    })
}

/// A program that asks is going to use it: the next who opens the file gets a handle that can. A handle that goes
/// through the kernel's cache is told that it cannot. SQLite would begin in vain otherwise, and what it does then is
/// ordered for handles that bypass the cache alone ([`crate::fallbacks`]).
fn atomic_features(s: &Server, h: &Header, handle: u64, out: &mut Out<'_>) -> Result<Answer, Fail> {
    if !s.updates.are_offered(&s.volume) {
        return Err(Fail::of(Errno::NOTTY));
    }
    let can = handle & HANDLE_BYPASSES != 0;
    if !can && handle & HANDLE_WRITES != 0 {
        s.updates.ask(&s.volume, ino_of(h.node)?)?;
    }
    out.u32(if can { F2FS_FEATURE_ATOMIC_WRITE } else { 0 })?;
    Ok(Answer::Reply)
}

fn start_atomic_write(s: &Server, h: &Header, handle: u64) -> Result<Answer, Fail> {
    match (s.updates.are_offered(&s.volume), handle & HANDLE_WRITES != 0, handle & HANDLE_BYPASSES != 0) {
        (false, ..) => return Err(Fail::of(Errno::NOTTY)),
        (_, false, _) => return Err(Fail::of(Errno::BADF)),
        // The kernel's cache would show the update to others.
        (_, _, false) => return Err(Fail::of(Errno::OPNOTSUPP)),
        _ => s.updates.fallbacks.end(handle),
    }
    let begun = s.updates.begin(&s.acting(h), handle, ino_of(h.node)?);
    begun.inspect_err(|_| s.updates.fallbacks.begin(handle, h.pid)).map(|()| Answer::Reply)
}

/// As with F2FS, the update is durable when this is answered.
fn commit_atomic_write(s: &Server, h: &Header, handle: u64) -> Result<Answer, Fail> {
    let ino = ino_of(h.node)?;
    let failed = |_: &Fail| s.updates.fallbacks.begin(handle, h.pid);
    if s.updates.commit(handle).inspect_err(failed)? {
        return Ok(Answer::DropsPages(ino).when_durable(ino, None, false));
    }
    // With the writeback cache the size and the times that the kernel shows are its own.
    let answer = if s.has(init::WRITEBACK_CACHE) { Answer::Reply } else { Answer::Spoils(ino) };
    Ok(answer.when_durable(ino, None, false))
}

fn run_command(s: &Server, h: &Header, command: u32, given: &mut Body<'_>, out: &mut Out<'_>) -> Result<(), Fail> {
    let ino = ino_of(h.node)?;
    match command {
        FS_IOC_GETFLAGS => {
            // Four bytes, whatever size the command has: callers give an `int`.
            out.u32(s.volume.inode_flags().get(ino)?)
        }
        FS_IOC_SETFLAGS => set_flags(s, h, ino, given.u32()?),
        FS_IOC_GETVERSION | EXT4_IOC_GETVERSION => out.u32(s.volume.inode_flags().generation(ino)?),
        FS_IOC_FSGETXATTR => fs_get_xattr(s, ino, out),
        FS_IOC_FSSETXATTR => fs_set_xattr(s, h, ino, given),
        FS_IOC_GETFSLABEL => padded(&s.volume.maintenance().label()?, FSLABEL_SIZE, out),
        FS_IOC_SETFSLABEL => set_label(s, h, given),
        FITRIM => fitrim(s, h, given, out),
        EXT4_IOC_RESIZE_FS => resize(s, h, given),
        QUIRE_IOC_GET_JOURNAL => out.u32(match s.volume.inode_flags().journaling_mode(ino)?.0 {
            None => 0,
            Some(JournalingMode::Journal) => 1,
            Some(JournalingMode::Ordered) => 2,
        }),
        QUIRE_IOC_SET_JOURNAL => set_journal(s, h, ino, given.u32()?),
        _ => Err(Fail::of(Errno::NOTTY)),
    }
}

/// Since Linux 5.13, which has the long SETXATTR, too, the kernel has checked who may, but for this: journaling of data
/// takes resources from all.
fn set_flags(s: &Server, h: &Header, ino: Ino, wanted: u32) -> Result<(), Fail> {
    let changed = wanted ^ s.volume.inode_flags().get(ino)?;
    if !s.has_setxattr_ext() {
        s.demand_owner(h, ino)?;
        if changed & (flags::IMMUTABLE | flags::APPEND) != 0 {
            s.demand(h, Capability::LinuxImmutable)?;
        }
    }
    if changed & flags::JOURNAL_DATA != 0 {
        s.demand(h, Capability::SysResource)?;
    }
    Ok(s.volume.inode_flags().set(ino, wanted)?)
}

/// A label without a NUL in its 256 bytes is too long in any case.
fn set_label(s: &Server, h: &Header, given: &mut Body<'_>) -> Result<(), Fail> {
    s.demand(h, Capability::SysAdmin)?;
    Ok(s.volume.maintenance().set_label(given.name().map_err(|_| Fail::of(Errno::INVAL))?)?)
}

/// As the attribute `user.quire.journal`.
fn set_journal(s: &Server, h: &Header, ino: Ino, wanted: u32) -> Result<(), Fail> {
    s.demand_owner(h, ino)?;
    if wanted == 1 {
        s.demand(h, Capability::SysResource)?;
    }
    let mode = match wanted {
        0 => None,
        1 => Some(JournalingMode::Journal),
        2 => Some(JournalingMode::Ordered),
        _ => return Err(Fail::of(Errno::INVAL)),
    };
    Ok(s.volume.inode_flags().set_journaling_mode(ino, mode)?)
}

/// The kernel does not check who may.
fn fs_get_xattr(s: &Server, ino: Ino, out: &mut Out<'_>) -> Result<(), Fail> {
    let have = s.volume.inode_flags().get(ino)?;
    out.u32(XFLAGS.iter().filter(|(_, f)| have & f != 0).map(|(x, _)| x).sum())?;
    // No hints for the size of extents.
    out.u32(0)?;
    out.u32(0)?;
    out.u32(s.volume.inode_flags().project(ino)?)?;
    out.bytes(&[0; FSXATTR_REST])
}

fn fs_set_xattr(s: &Server, h: &Header, ino: Ino, given: &mut Body<'_>) -> Result<(), Fail> {
    let wanted = given.u32()?;
    given.skip(8)?;
    let project = given.u32()?;
    let known: u32 = XFLAGS.iter().map(|(x, _)| x).sum();
    if wanted & !known != 0 || project != s.volume.inode_flags().project(ino)? {
        return Err(Fail::of(Errno::OPNOTSUPP));
    }
    let have = s.volume.inode_flags().get(ino)?;
    let flags = XFLAGS.iter().fold(have, |flags, (x, f)| if wanted & x != 0 { flags | f } else { flags & !f });
    set_flags(s, h, ino, flags)
}

fn resize(s: &Server, h: &Header, given: &mut Body<'_>) -> Result<(), Fail> {
    s.demand(h, Capability::SysResource)?;
    let bytes = given.u64()?.checked_mul(s.volume.superblock().block_size().bytes64());
    s.volume.maintenance().grow(bytes.ok_or(Fail::of(Errno::INVAL))?)?;
    Ok(())
}

fn fitrim(s: &Server, h: &Header, given: &mut Body<'_>, out: &mut Out<'_>) -> Result<(), Fail> {
    s.demand(h, Capability::SysAdmin)?;
    let (start, len, min) = (given.u64()?, given.u64()?, given.u64()?);
    let trimmed = s.volume.maintenance().trim(start, len, min)?;
    for v in [start, trimmed, min] {
        out.u64(v)?;
    }
    Ok(())
}

/// A text, filled up with NULs.
fn padded(text: &[u8], size: usize, out: &mut Out<'_>) -> Result<(), Fail> {
    let room = out.space(size)?;
    room.fill(0);
    // The last byte stays NUL.
    let n = text.len().min(size - 1);
    room[..n].copy_from_slice(&text[..n]);
    Ok(())
}
