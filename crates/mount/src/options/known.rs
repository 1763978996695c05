//! Every option that a user may write after `-o`, and what becomes of it: one table, from which the parser, the refusal
//! of unknown names and docs/mount.md are made.

/// What becomes of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The mount does what it says; the text says what that is.
    Honoured(&'static str),
    /// It has no effect, and users need not be told: mount(8) keeps it for itself, or what it asks for holds anyway.
    Quiet(&'static str),
    /// It has no effect, and the mount says so in one line.
    Ignored(&'static str),
    /// The mount fails, and says why.
    Refused(&'static str),
}

use Fate::{Honoured, Ignored, Quiet, Refused};

/// Names with one fate. The first lists bare options, the second options with a value, each as an example.
#[derive(Debug)]
pub struct Known {
    pub bare: &'static [&'static str],
    pub valued: &'static [&'static str],
    pub fate: Fate,
}

const fn known(bare: &'static [&'static str], valued: &'static [&'static str], fate: Fate) -> Known {
    Known { bare, valued, fate }
}

/// The name of an option, without its value.
pub(super) fn name_of(option: &str) -> &str {
    option.split_once('=').map_or(option, |(name, _)| name)
}

/// The table, in the order of docs/mount.md.
#[rustfmt::skip]
pub const OPTIONS: &[Known] = &[
    // mount(8)
    known(&["defaults", "auto", "noauto", "nofail", "nouser", "_netdev", "loop", "silent", "loud"],
        &["comment=a", "uhelper=a", "helper=a"], Quiet("mount(8) and fstab keep it for themselves; so are all names that begin with `x-` or `X-`")),
    known(&["ro", "rw"], &[], Honoured("nothing is written (a journal is replayed); or the image is writable")),
    known(&["atime", "noatime", "relatime", "norelatime", "strictatime", "nostrictatime"], &[],
        Honoured("when a read is an access; `relatime` by default")),
    known(&["diratime", "nodiratime"], &[], Honoured("whether listing a directory is an access")),
    known(&["dev", "nodev", "suid", "nosuid", "exec", "noexec"], &[], Honoured("as in mount(8)")),
    known(&["user", "users", "owner", "group"], &["user=a"], Honoured("who may mount, by mount(8); implies `nodev`, `nosuid` and, for `user` and `users`, `noexec`")),
    known(&["sync", "async", "dirsync"], &[], Honoured("whether each write, or change of a directory, is durable when it returns")),
    known(&["nolazytime", "nomand", "noiversion"], &[], Quiet("it is so anyway")),
    known(&["lazytime"], &[], Ignored("times are written with the inode")),
    known(&["mand", "iversion", "i_version"], &[], Ignored("FUSE does not carry it")),
    known(&["symfollow", "nosymfollow"], &[], Honoured("whether symbolic links are followed")),
    known(&["remount"], &[], Honoured("changes [what can change while mounted](#what-a-remount-changes)")),
    known(&["context", "fscontext", "defcontext", "rootcontext"], &["context=a", "fscontext=a", "defcontext=a", "rootcontext=a"],
        Ignored("labels come from the security.selinux attributes of the files")),
    // ext4(5): the journal
    known(&[], &["data=ordered"], Honoured("the route of file data: docs/design.md")),
    known(&[], &["commit=30"], Honoured("a transaction that has been open for so many seconds is committed, whether it is busy or not; 0 is the default of 5")),
    known(&["noload", "norecovery"], &[], Honoured("the journal is left alone, and the mount is read-only")),
    known(&[], &["errors=continue"], Honoured("`continue`, `remount-ro` or `panic`")),
    known(&[], &["data_err=abort"], Honoured("`ignore`, or `abort`: data that cannot be written makes the mount read-only")),
    known(&[], &["journal_path=/dev/null", "journal_dev=0x0801"], Honoured("the device of an external journal")),
    known(&["barrier"], &["barrier=1"], Quiet("commits are flushed")),
    known(&["nobarrier"], &["barrier=0"], Ignored("without flushes nothing that fsync promises would hold")),
    known(&["journal_checksum"], &[], Quiet("logs have checksums")),
    known(&["nojournal_checksum"], &[], Ignored("logs have checksums")),
    known(&["journal_async_commit"], &[], Ignored("jbd2's asynchronous commits are read, never written; commit_mode=checksum also saves a flush")),
    known(&[], &["max_batch_time=15000", "min_batch_time=0"],
        Honoured("for how long a commit may wait for callers that are about to come, in microseconds: at most for the time that a commit takes, which counts as no less and no more than these; with a `max_batch_time=` below 500 no commit waits")),
    known(&[], &["journal_ioprio=3"], Ignored("it tunes the kernel's journal threads")),
    // ext4(5): space and inodes
    known(&["discard", "nodiscard"], &[], Honoured("whether freed blocks are discarded")),
    known(&["grpid", "bsdgroups", "nogrpid", "sysvgroups"], &[], Honoured("the group of a new file")),
    known(&[], &["resuid=1000", "resgid=1000"], Honoured("who besides root may use reserved blocks")),
    known(&["minixdf", "bsddf"], &[], Honoured("what `df` counts")),
    known(&["acl", "noacl", "user_xattr", "nouser_xattr"], &[], Honoured("whether there are ACLs and `user.` attributes")),
    known(&["block_validity", "delalloc", "orlov", "quiet", "auto_da_alloc"], &["auto_da_alloc=1"], Quiet("it is so anyway")),
    known(&["noblock_validity", "nodelalloc", "oldalloc", "noauto_da_alloc", "dioread_lock", "dioread_nolock",
            "mblk_io_submit", "nomblk_io_submit", "init_itable", "noinit_itable", "nombcache", "no_mbcache", "mb_optimize_scan",
            "prefetch_block_bitmaps", "no_prefetch_block_bitmaps"],
        &["init_itable=10", "mb_optimize_scan=1", "stripe=4", "inode_readahead_blks=32", "max_dir_size_kb=4"],
        Ignored("it tunes the kernel's ext4")),
    known(&["noquota"], &[], Quiet("it is so anyway")),
    known(&["quota", "usrquota", "grpquota", "prjquota"], &["usrjquota=a", "grpjquota=a", "jqfmt=vfsv1"],
        Ignored("quotas are neither kept nor enforced; an image with the feature quota or project is mounted read-only")),
    known(&[], &["dax=never", "dax=inode"], Quiet("files are not mapped from the device")),
    known(&["dax"], &["dax=always"], Refused("a file system in user space cannot map the device")),
    known(&["debug"], &[], Ignored("QUIRE_LOG=debug with --log or -f says more")),
    known(&["abort"], &[], Refused("quire has no test that aborts the journal at mount")),
    known(&[], &["sb=32768"], Refused("only the primary superblock is used; if it is damaged, repair it with e2fsck -b first")),
    // FUSE and fuse2fs
    known(&[], &["offset=1048576", "sizelimit=1G"], Honoured("where the file system lies in the image, in bytes")),
    known(&["allow_other", "noallow_other", "no_allow_other"], &[], Honoured("whether others than the user who mounts may use it")),
    known(&["default_permissions", "direct", "nonempty", "hard_remove", "use_ino", "readdir_ino", "big_writes", "no_default_opts"], &[],
        Quiet("it is so anyway")),
    known(&["fakeroot"], &[], Honoured("each caller acts as root inside the image; implies `nodev` and `nosuid` (`dev`, `suid` or `kernel` behind it is refused), and `noallow_other` unless `allow_other` is set")),
    known(&["kernel"], &[], Honoured("as root's mounts by the kernel: `allow_other`, `dev`, `suid`")),
    known(&[], &["uid=1000", "gid=1000"], Honoured("the user and group that all files seem to belong to")),
    known(&[], &["lockfile=/run/image.lock"], Honoured("a file that must not exist; it is there as long as the image is in use")),
    known(&[], &["user_id=0", "group_id=0", "rootmode=40000", "blksize=4096"],
        Quiet("the kernel shows them in /proc/mounts, and mount(8) gives them back in a remount")),
    known(&[], &["fsname=a", "subtype=a"], Ignored("the mount names its image and its profile")),
    known(&["fuse2fs_debug"], &[], Ignored("QUIRE_LOG=debug with --log or -f says more")),
    known(&["kernel_cache", "auto_cache", "noauto_cache", "direct_io", "auto_unmount", "clone_fd", "intr", "async_read", "sync_read",
            "atomic_o_trunc", "splice_read", "splice_write", "splice_move", "no_splice_read", "no_splice_write", "no_splice_move",
            "no_remote_lock", "no_remote_flock", "no_remote_posix_lock", "noforget"],
        &["entry_timeout=1", "attr_timeout=1", "ac_attr_timeout=1", "negative_timeout=0", "max_read=131072", "max_write=131072",
            "max_readahead=131072", "max_background=12", "congestion_threshold=9", "max_idle_threads=10", "max_threads=10", "remember=0",
            "umask=022", "modules=a"],
        Ignored("it tunes libfuse, which Quire does without")),
    // Quire
    known(&[], &["checkpoint_age=30"], Honoured("seconds until what the log holds is written home; 0: only when space or memory is needed")),
    known(&[], &["profile=rfj", "record=range", "commit_mode=checksum", "checkpoint=lazy"], Honoured("the four choices: docs/design.md")),
    known(&[], &["auto_threshold=64K", "write_threshold=4K", "adaptive_default=journal", "journal_rule=*.db=journal"],
        Honoured("what a route asks: docs/tuning.md")),
    known(&["nvram_simulated"], &["nvram=/dev/dax0.0", "nvram_size=64M", "nvram_latency_ns=100"], Honoured("the memory of a journal in NVRAM; without `commit_mode=nvram`, or a profile that has it, only a log that is there is recovered from it: docs/tuning.md")),
    known(&[], &["profile=database"],
        Honoured("`auto`, and each write(2) of a database's page is one request, whole after a crash (Linux 6.6 or later): docs/databases.md")),
    known(&["writethrough", "writeback", "writeback_cache"], &[], Honoured("whether the kernel keeps dirty pages: docs/tuning.md")),
    known(&[], &["atomic_writes=asked", "atomic_writes=all", "atomic_writes=off"],
        Honoured("which files SQLite can update without a journal of its own: docs/databases.md")),
    known(&[], &["cache_size=64M"], Honoured("memory for blocks, 4M at least")),
    known(&[], &["slow_ms=500"], Honoured("requests that take so many milliseconds are logged with what they waited for; 0, the default: none: docs/monitoring.md")),
    known(&[], &["transport=auto", "transport=dev", "transport=uring"], Honoured("which way requests come, io_uring or /dev/fuse: docs/tuning.md")),
    known(&[], &["readers=1"], Honoured("workers that take requests from /dev/fuse at once, at most; one for two CPUs by default: docs/tuning.md")),
    known(&[], &["sandbox=auto", "sandbox=on", "sandbox=off"],
        Honoured("whether the daemon gives up what it does not need once it serves, by Landlock and seccomp; `on`: or there is no mount: [The sandbox](#the-sandbox)")),
    known(&[], &["without=polling:pieces"], Honoured("heuristics that are turned off, to see what each brings: docs/tuning.md")),
    known(&[], &["tune=host", "tune=none"], Honoured("whether settings of the host are changed while the mount is served: docs/tuning.md")),
];

/// mount(8)'s comments for itself and others.
fn is_comment(name: &str) -> bool {
    ["x-", "X-"].iter().any(|p| name.starts_with(p))
}

/// What becomes of an option, as it was written. A value that a row names decides before the name alone does.
pub(super) fn fate(option: &str) -> Option<Fate> {
    let name = name_of(option);
    if is_comment(name) {
        return Some(Quiet(""));
    }
    let has_value = name.len() < option.len();
    let whole = OPTIONS.iter().find(|k| has_value && k.valued.contains(&option));
    let by_name = || {
        OPTIONS.iter().find(|k| match has_value {
            true => k.valued.iter().any(|v| name_of(v) == name),
            false => k.bare.contains(&name),
        })
    };
    whole.or_else(by_name).map(|k| k.fate)
}

/// The known name that is most like an unknown one, if one is.
pub(super) fn nearest(option: &str) -> Option<&'static str> {
    let name = name_of(option);
    let names = OPTIONS.iter().flat_map(|k| k.bare.iter().copied().chain(k.valued.iter().map(|v| name_of(v))));
    let with_distance = names.map(|known| (strsim::damerau_levenshtein(name, known), known));
    // A third of the letters may differ; else it is another word.
    with_distance.filter(|(d, known)| *d <= known.len().min(name.len()).div_ceil(3)).min().map(|(_, known)| known)
}
