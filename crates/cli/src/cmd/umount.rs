//! `quire umount`: returns when the image is clean.

use crate::exit;
use indicatif::{ProgressBar, ProgressStyle};
use quire_device::{BlockDevice, FileDevice, Holder, OpenError, OpenOptions, Region};
use quire_layout::features::incompat;
use quire_layout::superblock::{self, Superblock, state};
use quire_mount::mounting::{self, DetachError};
use quire_mount::{About, Control, ControlError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Unmount, and return when the image is clean.
///
/// umount(8) and fusermount3 -u work as well, but (except for block devices mounted by root) they return while the
/// daemon is still writing.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire umount /mnt && cp disk.img backup.img")]
pub(crate) struct Args {
    /// The directory that it is mounted on
    pub dir: PathBuf,
    /// Detach now, even if it is in use; it ends, and this returns, when nobody uses it any more
    #[arg(short, long)]
    pub lazy: bool,
}

const NAME: &str = "umount";

/// The daemon of a mount.
struct Served {
    process: Result<OwnedFd, Errno>,
    about: About,
    /// It has told about itself.
    is_told: bool,
}

/// Exit codes of mount(8).
pub(crate) fn run(args: &Args) -> ExitCode {
    let fail = |what: String| exit::fail(NAME, exit::FAILURE, format_args!("{}: {what}", args.dir.display()));
    let served = match Control::open(&args.dir) {
        Ok((control, about)) => {
            if let Some(kind) = control.hidden_by() {
                return fail(format!("hidden under another mount ({kind}): unmount that first"));
            }
            Served { process: watch(about.pid), about, is_told: true }
        }
        // It is gone, or going as we asked.
        Err(ControlError::Open { source, .. }) if mounting::is_dead(source) => return dead(args),
        Err(ControlError::NoSocket { image, .. }) => without_socket(image),
        Err(e) => return exit::fail(NAME, exit::FAILURE, e),
    };
    let dir = match args.dir.canonicalize() {
        Ok(dir) => dir,
        Err(e) => return fail(e.to_string()),
    };
    if let Err(e) = detach(&dir, args.lazy) {
        return fail(if e.is_busy() { "in use (see fuser -m or lsof)".to_owned() } else { e.to_string() });
    }
    match &served.process {
        Ok(daemon) => wait(daemon, &served.about),
        // Gone already.
        Err(Errno::SRCH) if served.is_told => {}
        Err(Errno::SRCH) => {
            return fail("unmounted; its daemon cannot be found, and may still be writing".to_owned());
        }
        Err(e) => return fail(format!("unmounted, but the daemon cannot be watched: {}", std::io::Error::from(*e))),
    }
    match unclean(&served) {
        None => ExitCode::SUCCESS,
        Some(why) => exit::fail(NAME, exit::FAILURE, format_args!("{}: {why}", served.about.image.display())),
    }
}

/// The daemon of a mount whose control socket cannot be reached: the process that holds the image.
fn without_socket(image: PathBuf) -> Served {
    let pid = match FileDevice::open(&image, OpenOptions { direct: false, ..OpenOptions::default() }) {
        Err(OpenError::Busy { holder: Holder::Process { pid, .. }, .. }) => pid,
        _ => 0,
    };
    Served { process: watch(pid), about: About { pid, image, ..About::default() }, is_told: false }
}

/// How long a busy mount is asked for again: a df(1) that runs, and a process between fork and exec that still has the
/// files of its parent, are gone soon.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

fn detach(dir: &Path, lazy: bool) -> Result<(), DetachError> {
    let start = Instant::now();
    loop {
        match mounting::detach(dir, lazy) {
            Err(e) if e.is_busy() && start.elapsed() < BUSY_TIMEOUT => std::thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

/// The daemon has died: only the mount point is left.
fn dead(args: &Args) -> ExitCode {
    let what = match mounting::detach(&args.dir, true) {
        Ok(()) => "unmounted; its daemon had died: the next mount, or quire recover, replays the journal".to_owned(),
        Err(e) => e.to_string(),
    };
    exit::fail(NAME, exit::FAILURE, format_args!("{}: {what}", args.dir.display()))
}

fn watch(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// Waits for the daemon's end; on a terminal, with what it has written so far.
fn wait(daemon: &OwnedFd, about: &About) {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a valid template"));
    let tick = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    let start = written(about.pid);
    loop {
        let mut fds = [PollFd::new(daemon, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&tick)) {
            Ok(0) | Err(Errno::INTR) => {}
            _ => break,
        }
        let so_far = written(about.pid).saturating_sub(start) >> 20;
        bar.set_message(format!("writing {}: {so_far} MiB", about.image.display()));
        bar.tick();
    }
    bar.finish_and_clear();
}

/// Bytes that a process has written, where we may know.
fn written(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = io.lines().find_map(|l| l.strip_prefix("write_bytes: "));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// Why the image is not clean now, if it is not and was not shut down. An image that we may not read is believed,
/// and one of which we know no more than its path is believed if nothing is found at its start.
fn unclean(served: &Served) -> Option<String> {
    let about = &served.about;
    if about.read_only || about.shut_down {
        return None;
    }
    let how = OpenOptions { read_only: true, offset: about.offset, lock: false, direct: false, size: None };
    let device = FileDevice::open(&about.image, how).ok()?;
    let raw = match device.read(superblock::OFFSET, superblock::SIZE, Region::Superblock) {
        Ok(raw) => raw,
        Err(e) => return Some(e.to_string()),
    };
    match Superblock::decode(&raw) {
        Err(_) if !served.is_told => None,
        Err(e) => Some(e.to_string()),
        Ok(sb) if sb.features().has_incompat(incompat::RECOVER) => Some(needs_recovery(&sb, about)),
        Ok(sb) if sb.state() & state::ERROR != 0 => {
            Some("unmounted; errors were found in the file system: run e2fsck".to_owned())
        }
        Ok(_) => None,
    }
}

fn needs_recovery(sb: &Superblock, about: &About) -> String {
    let what = if sb.state() & state::ERROR != 0 {
        "errors were found in the file system, and it"
    } else {
        "not everything could be written (see the daemon's log), and it"
    };
    let others = if sb.features().has_incompat(incompat::QUIRE_LOG) {
        "; e2fsck and the kernel refuse it until then"
    } else {
        ""
    };
    let path = about.image.display();
    format!("unmounted; {what} needs recovery: run quire recover {path}, then e2fsck -f{others}")
}
