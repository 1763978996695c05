//! Numbers of the protocol: operation codes, flags.

use rustix::fs::OFlags;

/// Bytes of file data in one request.
pub(crate) const MAX_WRITE: u32 = 1 << 20;

/// Pages of file data in one request, on a machine whose pages have so many bytes.
pub(crate) fn max_pages(page_size: usize) -> u16 {
    let bytes = usize::try_from(MAX_WRITE).expect("1 MiB");
    u16::try_from(bytes / page_size).unwrap_or(u16::MAX).max(1)
}

/// What the kernel asks for.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const BMAP: u32 = 37;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;

    /// Most numbers; others are asked for once, since they are answered ENOSYS.
    pub(crate) const COUNT: usize = 64;

    /// Operations that always change the volume.
    pub(crate) const CHANGES: [u32; 16] = [
        SETATTR,
        SYMLINK,
        MKNOD,
        MKDIR,
        CREATE,
        TMPFILE,
        UNLINK,
        RMDIR,
        RENAME,
        RENAME2,
        LINK,
        WRITE,
        FALLOCATE,
        COPY_FILE_RANGE,
        SETXATTR,
        REMOVEXATTR,
    ];

    /// What an operation is called in statistics.
    pub(crate) fn name(op: usize) -> &'static str {
        const NAMES: [&str; 53] = [
            "other",
            "lookup",
            "forget",
            "getattr",
            "setattr",
            "readlink",
            "symlink",
            "other",
            "mknod",
            "mkdir",
            "unlink",
            "rmdir",
            "rename",
            "link",
            "open",
            "read",
            "write",
            "statfs",
            "release",
            "other",
            "fsync",
            "setxattr",
            "getxattr",
            "listxattr",
            "removexattr",
            "flush",
            "init",
            "opendir",
            "readdir",
            "releasedir",
            "fsyncdir",
            "other",
            "other",
            "other",
            "other",
            "create",
            "interrupt",
            "bmap",
            "destroy",
            "ioctl",
            "other",
            "other",
            "batch_forget",
            "fallocate",
            "readdirplus",
            "rename",
            "lseek",
            "copy_file_range",
            "other",
            "other",
            "syncfs",
            "tmpfile",
            "statx",
        ];
        NAMES.get(op).unwrap_or(&"other")
    }
}

/// Abilities that both sides agree on in INIT; the upper half travels in a second word.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// FUSE over io_uring: what an entry's header and a command are made of (`fuse_uring_req_header`,
/// `fuse_uring_ent_in_out`, `fuse_uring_cmd_req`). Offsets and sizes in bytes.
pub(crate) mod uring {
    /// Commands: an entry is made known to the kernel; a reply is taken, and the entry gets the next request.
    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
    /// The header of an entry: a request's or reply's own header, the operation's fixed part, and what the kernel says
    /// of the entry.
    pub(crate) const HEADER: usize = 288;
    pub(crate) const OP_IN_AT: usize = 128;
    pub(crate) const OP_IN_MAX: usize = 128;
    pub(crate) const COMMIT_ID_AT: usize = 256 + 8;
    pub(crate) const PAYLOAD_SIZE_AT: usize = 256 + 16;
    /// The command of a submission.
    pub(crate) const CMD: usize = 80;
    pub(crate) const CMD_COMMIT_ID_AT: usize = 8;
    pub(crate) const CMD_QUEUE_AT: usize = 16;
}

/// Which fields of a SETATTR count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    /// There is a file handle.
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of a WRITE.
pub(crate) mod write {
    /// From the kernel's page cache: the sizes and times are the kernel's.
    pub(crate) const CACHE: u32 = 1 << 0;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 2;
}

/// Data is durable when a write returns, and what is needed to find it. `OFlags::DSYNC` of rustix 1.1 is `O_SYNC`,
/// which has this bit and another.
pub(crate) const O_DSYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC.cast_unsigned());

/// What our file handles say: opened by one who may use reserved blocks,
pub(crate) const HANDLE_RESERVE: u64 = 1;
/// and opened for writing.
pub(crate) const HANDLE_WRITES: u64 = 2;
/// and bypasses the kernel's cache; the rest of such a handle is a number of its own.
pub(crate) const HANDLE_BYPASSES: u64 = 4;
/// What it changes is durable when it returns (`O_SYNC`, `O_DSYNC`).
pub(crate) const HANDLE_SYNC: u64 = 8;
pub(crate) const HANDLE_NUMBER_SHIFT: u32 = 8;
/// `read_flags`: a program reads. Without it the kernel fills its page cache.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// `getattr_flags`: the request has a file handle.
pub(crate) const GETATTR_HANDLE: u32 = 1;
/// `fsync_flags`: data only.
pub(crate) const FSYNC_DATASYNC: u32 = 1;
/// `setxattr_flags`: the set-group-id bit goes with this ACL.
pub(crate) const ACL_KILL_SGID: u32 = 1;
/// `ioctl flags`: not restricted to what the command encodes (CUSE only).
pub(crate) const IOCTL_UNRESTRICTED: u32 = 1 << 1;

/// The node number of the root directory.
pub(crate) const ROOT_NODE: u64 = 1;
/// The protocol that we speak; the minor number is the newest whose structures we know.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 41;
/// The oldest minor whose structures have the sizes that we expect (Linux 5.4).
pub(crate) const MINOR_MIN: u32 = 31;

#[cfg(test)]
mod tests {
    #[test]
    fn a_request_has_as_many_bytes_whatever_a_page_is() {
        assert_eq!([4096, 16_384, 65_536, 4 << 20].map(super::max_pages), [256, 64, 16, 1]);
    }
}
