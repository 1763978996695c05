//! `quire mount`: returns when the mount answers; the daemon stays.

use crate::progress::Bar;
use crate::{exit, log};
use quire_mount::daemon::{self, Forked};
use quire_mount::sandbox::broker_process;
use quire_mount::{Control, Mount, MountOptions, SandboxChoice};
use std::path::PathBuf;
use std::process::ExitCode;

/// Mount an ext4 image or block device on a directory.
///
/// The journal is replayed if need be. Returns when the mount answers; the file system is served in the background
/// until it is unmounted with `quire umount`, umount(8) or fusermount3 -u, or until the daemon gets SIGTERM. Works as
/// an ordinary user (through fusermount3), then only for that user unless allow_other is given; when root mounts,
/// everybody may use it (-o noallow_other restricts it).
#[derive(clap::Args)]
#[command(after_help = "Options (-o), besides those of mount(8) and ext4(5). BYTES may end in K, M, G or T.
  data=MODE              ordered, journal, writeback, none, overwrite, auto,
                         adaptive or selective (default: auto, or what the
                         superblock says)
  auto_threshold=BYTES   auto: new data up to this is logged with the commit
                         (default: as measured)
  write_threshold=BYTES  selective: smaller updates are journaled (default: the
                         block size)
  adaptive_default=MODE  adaptive: journal (default) or ordered
  journal_rule=P=M[,..]  adaptive: mode M for names like P (default: SQLite's
                         names); none: no rule
  profile=NAME           all of record, commit_mode, checkpoint and data: auto,
                         rfj, joj, selective, wasteless, single-io, nvj, djfs,
                         djfs4, ext4-none, ext4-writeback, ext4-ordered or
                         ext4-journal; or database: auto, and from Linux 6.6 on
                         each write(2) of up to the atomic unit is whole or
                         absent after a crash. quire stats shows the unit; a
                         write that is not aligned may have 4 KiB less
  record=KIND            block, range=data, range or delta
  commit_mode=KIND       barrier, checksum or nvram
  checkpoint=KIND        lazy, regions:N, or fsync: home at each fsync, as
                         ext4's data=journal
  nvram=PATH             the journal lies in this memory; nvram_size=BYTES,
                         nvram_latency_ns=NS
  nvram_simulated        take any file for such memory
  commit=SECONDS         commit a transaction that has been open for so long,
                         busy or not (default 5)
  max_batch_time=US      a commit waits for callers that are about to come, so
                         long at most (default 15000; below 500 none waits);
                         min_batch_time=US is what a commit's time counts as at
                         least
  checkpoint_age=SECS    write home what the log holds for so long, so that
                         recovery is short (default 30; 0: only when log space
                         or memory is needed)
  cache_size=BYTES       memory for blocks (default 64M, at least 4M)
  writethrough           each write request reaches Quire at once (default with
                         data=selective, record=range=data, profile=database);
                         writeback: through the kernel's cache (default else)
  slow_ms=MS             log requests that take so long, with what they waited
                         for (default: none)
  atomic_writes=WHICH    files that SQLite can update without its journal: asked
                         (default), all (default with profile=database) or off
  transport=WAY          how requests come: dev (auto, the default) or uring
                         (the kernel must allow it)
  readers=N              workers that take requests from /dev/fuse at once, at
                         most (default: one for two CPUs)
  sandbox=WHICH          auto (default): once it serves, the daemon gives up
                         what it does not need, as far as the kernel can; on: or
                         it does not mount; off
  without=NAMES          turn heuristics off, separated by colons: polling,
                         pieces, ... (docs/tuning.md)
  tune=host              change settings of the host while mounted: readahead,
                         dirty pages, halt polling
  errors=WHAT            continue, remount-ro or panic (ends the daemon; an
                         image cannot ask for that); data_err=ignore or abort
  remount                change the mount: ro, rw, commit, errors, data_err,
                         discard, grpid, sync, dirsync, tune, the atime, dev,
                         suid, exec and symfollow options
  ro, noload             read-only; noload (norecovery) also leaves the journal
                         alone
  offset=, sizelimit=    where the file system lies in IMAGE, in bytes
  journal_path=PATH      the external journal device (journal_dev= takes ext4's
                         number)
  fakeroot               each caller acts as root inside the image; files keep
                         their owners
  uid=UID, gid=GID       all files seem to belong to this user, group
  lockfile=PATH          a file that is there while the image is in use
  allow_other            others may use it (root's mounts: default;
                         noallow_other)
  noatime, relatime, strictatime, nodiratime, sync, dirsync, discard, noacl,
  nouser_xattr, grpid, minixdf, resuid=UID, resgid=GID

The log of data=auto is Quire's own: after a crash, mount again or run quire
recover before other tools. With record=block,commit_mode=barrier the log is
jbd2's, which the kernel and e2fsck replay, too. data=ordered, writeback,
journal and overwrite have both by default; with another record or commit_mode
their log is Quire's.

With profile=djfs and nvram=PATH (a DAX device, or a file on a DAX file system)
the journal lies in NVRAM: fsync then touches no disk, and the image is only
readable together with its NVRAM until it is unmounted. nvram_simulated takes
any file, and warns.

QUIRE_LOG=debug says more: to the system log, or with -f to standard error, or
to --log. As mount.quire (a link to this program) in /sbin it serves mount -t
quire and fstab; as fuse2fs it takes the command line of e2fsprogs' fuse2fs.

--fd N, or /dev/fd/N as DIR, serves a descriptor of /dev/fuse that the caller
has mounted. ACLs are then always on, because they make the kernel check
permissions whatever the caller's options were.

Exit codes as mount(8): 0 mounted, 1 wrong usage or not permitted, 2 system
error, 32 mount failed.

Examples:
  quire mount disk.img /mnt
  quire mount -o data=journal,noatime disk.img /mnt
  quire mount -o ro,offset=1048576 whole-disk.img /mnt
  quire mount -o profile=djfs,nvram=/dev/dax0.0 disk.img /mnt
  quire mount -f /dev/sdb1 /mnt
  quire mount -o remount,ro /mnt
  quire mount -o fakeroot rootfs.img /tmp/root
  quire mount disk.img --fd 5")]
#[derive(Debug)]
pub(crate) struct Args {
    /// The image file or block device
    pub image: PathBuf,
    /// The directory to mount it on; not needed with --fd and with -o remount, which may name the directory alone
    pub dir: Option<PathBuf>,
    /// Mount options, separated by commas; may be repeated
    #[arg(short, value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Serve a connection that the caller has opened (/dev/fuse) and mounted, instead of a directory
    #[arg(long, value_name = "N", conflicts_with = "dir")]
    pub fd: Option<u32>,
    /// Stay in the foreground; messages go to standard error
    #[arg(short, long)]
    pub foreground: bool,
    /// Append the daemon's messages to this file
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Messages of the level debug, to standard error.
    #[arg(skip)]
    pub debug: bool,
}

impl Args {
    /// The directory, or the path of the caller's connection.
    fn place(&self) -> Option<PathBuf> {
        self.dir.clone().or_else(|| self.fd.map(|fd| format!("/dev/fd/{fd}").into()))
    }
}

const NAME: &str = "mount";

/// Exit codes of mount(8).
pub(crate) fn run(args: &Args) -> ExitCode {
    let options = match MountOptions::parse(&args.options.join(",")) {
        Ok(options) => options,
        Err(e) => return exit::fail(NAME, exit::USAGE, e),
    };
    for (option, why) in &options.ignored {
        exit::tell(NAME, format_args!("{option} is ignored: {why}"));
    }
    if options.nvram_simulated {
        exit::tell(NAME, format_args!("warning: {}", quire_mount::SIMULATED_NVRAM));
    }
    if options.remount {
        return remount(args);
    }
    let Some(dir) = args.place() else {
        return exit::fail(NAME, exit::USAGE, "the directory to mount on is missing");
    };
    let mount = Mount { image: args.image.clone(), dir, options };
    if args.foreground {
        start_broker(&mount.options);
        return match start_log(args) {
            Ok(()) => {
                let code = serve(&mount, || {});
                log::flush();
                code.into()
            }
            Err(code) => code,
        };
    }
    match daemon::fork() {
        Err(e) => exit::fail(NAME, exit::SYSTEM, format_args!("cannot start a daemon: {}", std::io::Error::from(e))),
        Ok(Forked::Parent(Some(code))) => ExitCode::from(code),
        Ok(Forked::Parent(None)) => exit::fail(NAME, exit::FAILURE, "the daemon ended unexpectedly"),
        Ok(Forked::Daemon(readiness)) => {
            start_broker(&mount.options);
            if let Err(code) = start_log(args) {
                readiness.tell(exit::USAGE);
                return code;
            }
            let mut readiness = Some(readiness);
            let code = serve(&mount, || {
                log::flush();
                if let Some(r) = readiness.take()
                    && let Err(e) = r.detach_and_tell()
                {
                    tracing::warn!("cannot let go of the terminal: {e}");
                }
            });
            log::flush();
            if let Some(r) = readiness {
                r.tell(code);
            }
            code.into()
        }
    }
}

/// As mount(8) has it: the image need not be named.
fn remount(args: &Args) -> ExitCode {
    let dir = args.dir.as_ref().unwrap_or(&args.image);
    match Control::open(dir).and_then(|(control, _)| control.remount(&args.options.join(","))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => exit::fail(NAME, exit::FAILURE, format_args!("{}: {e}", dir.display())),
    }
}

/// Before there is a second thread. Without a broker there is no sandbox, which the mount tells.
fn start_broker(options: &MountOptions) {
    if options.sandbox != SandboxChoice::Off
        && let Err(e) = broker_process::start()
    {
        exit::tell(NAME, format_args!("no broker for the sandbox: {e}"));
    }
}

fn start_log(args: &Args) -> Result<(), ExitCode> {
    // Before the log has a thread: one that does not hold them back would take the signals.
    daemon::hold_stops();
    daemon::before_exit(log::flush);
    let started = match &args.log {
        Some(path) => {
            log::to_file(path).map_err(|e| exit::fail(NAME, exit::USAGE, format_args!("{}: {e}", path.display())))?;
            Ok(())
        }
        None if args.foreground => log::to_stderr(if args.debug { "debug" } else { "info" }),
        None => log::to_syslog(),
    };
    started.map_err(|e| exit::fail(NAME, exit::SYSTEM, format_args!("cannot start the log: {e}")))?;
    log::log_panics();
    Ok(())
}

fn serve(mount: &Mount, ready: impl FnOnce()) -> u8 {
    let bar = Bar::new();
    let outcome = quire_mount::run(mount, &mut |p| bar.show(p), || {
        bar.clear();
        ready();
    });
    match outcome {
        Ok(()) => 0,
        Err(e) => {
            // Standard error leads nowhere once the daemon has let go of the terminal; the log stays.
            tracing::info!("mount ended: {e}");
            exit::fail(NAME, e.exit_code(), &e);
            e.exit_code()
        }
    }
}
