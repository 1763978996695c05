//! One way to mount an image, whoever does it: the kernel's ext4 on a loop device, fuse2fs, or Quire. And one way to
//! kill it, which leaves the image as a crash of the file system leaves it.
//!
//! Written `kernel`, `fuse2fs` or `quire`, with options after a colon: `quire:data=ordered,writethrough`. Of the
//! kernel's, two are for mke2fs: `kernel:none` has no journal, `kernel:fast_commit` has fast commits.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quire_fs::{CommitMode, Profile};
use rustix::process::{Pid, Signal, kill_process};

use crate::cmd::{command, find, have, is_root, quire, run, say, text, wait_closely, wait_until};
use crate::interrupt::{Folder, Hold};

/// Who mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Kernel,
    Fuse2fs,
    Quire,
}

/// Options of the kernel's that mke2fs decides by a feature, and that feature.
const BY_FEATURE: [(&str, &str); 2] = [("none", "^has_journal"), ("fast_commit", "fast_commit")];

/// Who mounts, with what options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounter {
    pub who: Who,
    pub options: String,
}

impl FromStr for Mounter {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        let (who, options) = text.split_once(':').unwrap_or((text, ""));
        let who = match who {
            "kernel" => Who::Kernel,
            "fuse2fs" => Who::Fuse2fs,
            "quire" => Who::Quire,
            _ => bail!("{text}: want kernel, fuse2fs or quire, with :OPTIONS"),
        };
        Ok(Self { who, options: options.to_owned() })
    }
}

impl fmt::Display for Mounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.who {
            Who::Kernel => "kernel",
            Who::Fuse2fs => "fuse2fs",
            Who::Quire => "quire",
        };
        if self.options.is_empty() { f.write_str(who) } else { write!(f, "{who}:{}", self.options) }
    }
}

/// The kernel's parameter that allows FUSE over io_uring.
const URING_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

fn uring_is_allowed() -> bool {
    fs::read_to_string(URING_PARAMETER).is_ok_and(|text| text.starts_with('Y'))
}

/// A mounted image. Dropping it kills and unmounts whatever is left.
#[derive(Debug)]
pub struct Mounted {
    who: Who,
    dir: PathBuf,
    log: PathBuf,
    daemon: Option<Child>,
    gone: bool,
    _hold: Hold,
}

impl Mounter {
    /// The kernel with `options`.
    #[must_use]
    pub fn kernel(options: &str) -> Self {
        Self { who: Who::Kernel, options: options.to_owned() }
    }

    /// Quire with `options`.
    #[must_use]
    pub fn quire(options: &str) -> Self {
        Self { who: Who::Quire, options: options.to_owned() }
    }

    /// The same with one option more.
    #[must_use]
    pub fn with(&self, option: &str) -> Self {
        let options = if self.options.is_empty() { option.to_owned() } else { format!("{},{option}", self.options) };
        Self { who: self.who, options }
    }

    /// Whether its profile needs the memory of a journal in NVRAM.
    #[must_use]
    pub fn is_journal_in_nvram(&self) -> bool {
        let profiles = self.options.split(',').filter_map(|option| option.strip_prefix("profile="));
        profiles.filter_map(|name| name.parse::<Profile>().ok()).any(|p| p.choices().commit == CommitMode::Nvram)
    }

    /// The same with a simulated NVRAM of so many MiB, if its journal needs one, and the folder in which that lies.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn with_memory(&self, mib: u64) -> Result<(Self, Option<Folder>)> {
        if !self.is_journal_in_nvram() {
            return Ok((self.clone(), None));
        }
        let folder = Folder::in_memory("quire-nvram-")?;
        let nvram = folder.path().join("nvram");
        Ok((self.with(&format!("nvram={},nvram_simulated,nvram_size={mib}M", text(&nvram))), Some(folder)))
    }

    /// The feature that mke2fs is told (`-O`), for an image that it is going to mount.
    #[must_use]
    pub fn feature(&self) -> Option<&'static str> {
        let named = |name: &str| self.who == Who::Kernel && self.options.split(',').any(|option| option == name);
        BY_FEATURE.into_iter().find(|(name, _)| named(name)).map(|(_, feature)| feature)
    }

    /// The options of mount(8) of the kernel's file system on this image.
    fn of_kernel(&self, looped: &str) -> String {
        let of_mke2fs = |option: &&str| option.is_empty() || BY_FEATURE.iter().any(|(name, _)| name == option);
        let rest = self.options.split(',').filter(|option| !of_mke2fs(option));
        [looped].into_iter().chain(rest).collect::<Vec<_>>().join(",")
    }

    /// Why it cannot work here, if so.
    #[must_use]
    pub fn unavailable(&self) -> Option<String> {
        match self.who {
            Who::Kernel if !is_root() => Some("the kernel's ext4 needs root".into()),
            Who::Kernel if !fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("ext4")) => {
                Some("the kernel has no ext4".into())
            }
            Who::Kernel if !Path::new("/dev/loop-control").exists() => Some("no loop devices".into()),
            Who::Kernel => None,
            Who::Fuse2fs if !have("fuse2fs") => Some("no fuse2fs".into()),
            _ if File::options().read(true).write(true).open("/dev/fuse").is_err() => Some("no /dev/fuse".into()),
            _ if !is_root() && !have("fusermount3") => Some("no fusermount3".into()),
            Who::Fuse2fs => None,
            Who::Quire if self.options.contains("transport=uring") && !uring_is_allowed() => {
                Some(format!("{URING_PARAMETER} is not Y"))
            }
            Who::Quire => quire().err().map(|error| error.to_string()),
        }
    }

    /// Those of them that work here; prints why the others are skipped.
    ///
    /// # Errors
    /// None of them does.
    pub fn available(asked: &[Self]) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for mounter in asked {
            match mounter.unavailable() {
                Some(why) => println!("skipped {mounter}: {why}"),
                None => found.push(mounter.clone()),
            }
        }
        ensure!(!found.is_empty(), "nobody to measure");
        Ok(found)
    }

    fn daemon(&self, image: &Path, dir: &Path) -> Result<Command> {
        let mut options: Vec<&str> = self.options.split(',').filter(|option| !option.is_empty()).collect();
        if is_root() {
            options.push("allow_other");
        }
        let mut command = match self.who {
            Who::Quire => {
                let mut command = Command::new(quire()?);
                command.arg("mount").arg(image).arg(dir).arg("-f");
                command
            }
            _ => {
                let mut command = command("fuse2fs");
                command.arg("-f").arg(image).arg(dir);
                options.push("default_permissions");
                command
            }
        };
        if !options.is_empty() {
            command.arg("-o").arg(options.join(","));
        }
        Ok(command)
    }

    /// Mounts `image` (a file or a block device) on `dir`, which is made when it is not there.
    pub fn mount(&self, image: &Path, dir: &Path) -> Result<Mounted> {
        fs::create_dir_all(dir)?;
        let log = dir.with_extension("log");
        let (who, _hold) = (self.who, Hold::new()?);
        let mut mounted = Mounted { who, dir: dir.to_owned(), log: log.clone(), daemon: None, gone: false, _hold };
        if self.who == Who::Kernel {
            let looped = if fs::metadata(image)?.is_file() { "loop" } else { "rw" };
            let options = self.of_kernel(looped);
            if let Err(error) = run(command("mount").args(["-t", "ext4", "-o", &options]).arg(image).arg(dir)) {
                mounted.gone = true;
                return Err(error);
            }
            return Ok(mounted);
        }
        let mut command = self.daemon(image, dir)?;
        let out = File::options().create(true).append(true).open(&log)?;
        let daemon = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn();
        let mut daemon = daemon.with_context(|| format!("cannot start {command:?}"))?;
        let mut ended = None;
        let up = wait_closely(Duration::from_secs(120), || {
            ended = daemon.try_wait().ok().flatten();
            ended.is_some() || is_mount_point(dir)
        });
        mounted.daemon = Some(daemon);
        if let Some(status) = ended {
            mounted.gone = true;
            bail!("{command:?} ended with {status}:\n{}", mounted.log_tail());
        }
        ensure!(up, "{command:?} did not mount in 120 s:\n{}", mounted.log_tail());
        Ok(mounted)
    }
}

/// Whether something is mounted on `dir`; a mount whose daemon is dead counts.
#[must_use]
pub fn is_mount_point(dir: &Path) -> bool {
    let parent = dir.parent().and_then(|parent| fs::metadata(parent).ok());
    match (fs::metadata(dir), parent) {
        (Ok(here), Some(parent)) => here.dev() != parent.dev(),
        (Err(error), Some(_)) => error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()),
        _ => false,
    }
}

/// Bytes that a line of `/proc/PID/status` tells, such as `VmHWM:`.
pub(crate) fn memory_of(pid: u32, field: &str) -> Option<u64> {
    bytes_in(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, field)
}

fn bytes_in(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

impl Mounted {
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The daemon's process, if there is one.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// The largest resident set of the daemon so far, in bytes (VmHWM).
    #[must_use]
    pub fn peak_memory(&self) -> Option<u64> {
        self.memory("VmHWM:")
    }

    /// The resident memory of the daemon that is of no file, in bytes (RssAnon).
    #[must_use]
    pub fn anonymous_memory(&self) -> Option<u64> {
        self.memory("RssAnon:")
    }

    fn memory(&self, field: &str) -> Option<u64> {
        memory_of(self.pid()?, field)
    }

    /// The end of what the daemon printed.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Unmounts; when it returns, the image is clean and nobody holds it.
    pub fn unmount(mut self) -> Result<()> {
        self.gone = true;
        let (mut umount, how) = match self.who {
            Who::Quire => (Command::new(quire()?), Some("umount")),
            Who::Fuse2fs if !is_root() => (command("fusermount3"), Some("-u")),
            Who::Kernel | Who::Fuse2fs => (command("umount"), None),
        };
        run_when_unused(umount.args(how).arg(&self.dir))?;
        if let Some(mut daemon) = self.daemon.take() {
            let mut status = None;
            wait_until(Duration::from_secs(120), || {
                status = daemon.try_wait().ok().flatten();
                status.is_some()
            });
            match status {
                None => {
                    daemon.kill()?;
                    daemon.wait()?;
                    bail!("the daemon did not end within 120 s of the unmount:\n{}", self.log_tail());
                }
                Some(status) => ensure!(status.success(), "the daemon ended with {status}:\n{}", self.log_tail()),
            }
        }
        Ok(())
    }

    /// Stops the file system dead: SIGKILL to the daemon; for the kernel, a shutdown without flushing the log.
    /// Everything that uses the mount fails from now on. `detach` follows.
    pub fn kill(&mut self) -> Result<()> {
        match &mut self.daemon {
            Some(daemon) => {
                ensure!(
                    daemon.try_wait()?.is_none(),
                    "the daemon had ended before it was killed:\n{}",
                    self.log_tail()
                );
                let daemon = self.daemon.as_mut().expect("seen above");
                daemon.kill()?;
                daemon.wait()?;
            }
            None => shut_down(&self.dir)?,
        }
        Ok(())
    }

    /// Takes a killed mount off its directory, once nobody uses it.
    pub fn detach(mut self) -> Result<()> {
        self.gone = true;
        detach(&self.dir, self.who)
    }

    /// Asks the daemon to end (SIGTERM): it syncs and unmounts.
    pub fn terminate(mut self) -> Result<()> {
        let mut daemon = self.daemon.take().context("no daemon")?;
        kill_process(Pid::from_child(&daemon), Signal::TERM)?;
        let mut status = None;
        let ended = wait_until(Duration::from_secs(60), || {
            status = daemon.try_wait().ok().flatten();
            status.is_some()
        });
        self.gone = ended && !is_mount_point(&self.dir);
        ensure!(ended, "the daemon did not end within 60 s of SIGTERM");
        ensure!(self.gone, "still mounted after SIGTERM");
        let status = status.expect("ended");
        ensure!(status.success(), "the daemon ended with {status}:\n{}", self.log_tail());
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // Nothing to report to: we are cleaning up after a failure.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if !self.gone {
            let _ = detach(&self.dir, self.who);
        }
    }
}

/// Unmounts, after whoever looks at the mount at this moment: an indexer that passes by is not to fail a study of
/// hours.
fn run_when_unused(umount: &mut Command) -> Result<()> {
    const PASSES_BY: Duration = Duration::from_secs(30);
    let mut said = say(umount)?;
    wait_until(PASSES_BY, || {
        let is_used = said.code != 0 && ["busy", "in use"].iter().any(|words| said.text.contains(words));
        if is_used && let Ok(again) = say(umount) {
            said = again;
        }
        !is_used
    });
    ensure!(said.code == 0, "{umount:?} exited with {}:\n{}", said.code, said.text);
    Ok(())
}

fn detach(dir: &Path, who: Who) -> Result<()> {
    if who == Who::Kernel {
        // Not lazily: the image must be free when we return. A process that was just killed may hold it for a moment.
        let freed = wait_until(Duration::from_secs(20), || {
            say(command("umount").arg(dir)).is_ok_and(|said| said.code == 0) || !is_mount_point(dir)
        });
        ensure!(freed, "{} cannot be unmounted", dir.display());
    } else if is_root() {
        run(command("umount").arg("-l").arg(dir))?;
    } else {
        run(command("fusermount3").args(["-u", "-z"]).arg(dir))?;
    }
    Ok(())
}

/// EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH: the file system stops at once, as if it had lost power.
fn shut_down(dir: &Path) -> Result<()> {
    const SHUTDOWN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);
    const WITHOUT_LOG_FLUSH: u32 = 2;
    let dir = File::open(dir)?;
    // SAFETY: the opcode takes a pointer to a u32 that it only reads (fs/ext4 documentation; the same as
    // XFS_IOC_GOINGDOWN).
    unsafe { rustix::ioctl::ioctl(&dir, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(WITHOUT_LOG_FLUSH))? };
    Ok(())
}

/// Which of these mounters work here, and for the others why not.
#[must_use]
pub fn describe_tools() -> String {
    ["mke2fs", "e2fsck", "debugfs", "fuse2fs", "fusermount3", "pjdfstest", "fsx"]
        .map(|tool| format!("{tool}: {}", find(tool).map_or("missing".into(), |path| path.display().to_string())))
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmount_waits_for_who_looks_at_the_mount() {
        let dir = tempfile::tempdir().unwrap();
        let tried = dir.path().join("tried");
        let script = "test -e $0 || { touch $0; echo target is busy; exit 32; }; echo $1; exit $2";
        let umount = |code: &str| run_when_unused(command("sh").args(["-c", script]).arg(&tried).args(["gone", code]));
        umount("0").unwrap();
        assert!(tried.exists());
        assert!(umount("1").unwrap_err().to_string().ends_with("exited with 1:\ngone\n"));
    }

    #[test]
    fn the_peak_is_read_from_a_status_file() {
        assert_eq!(bytes_in("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 12 kB\n", "VmHWM:"), Some(2 << 20));
        assert_eq!(bytes_in("Name:\tx\n", "VmHWM:"), None);
    }

    #[test]
    fn what_mke2fs_decides_is_no_option_of_the_kernels_mount() {
        let of = |text: &str| text.parse::<Mounter>().map(|m| (m.feature(), m.of_kernel("rw"))).unwrap();
        assert_eq!(of("kernel:none,noatime"), (Some("^has_journal"), "rw,noatime".to_owned()));
        assert_eq!(of("kernel:fast_commit,data=ordered"), (Some("fast_commit"), "rw,data=ordered".to_owned()));
        assert_eq!((of("kernel"), of("quire:none").0), ((None, "rw".to_owned()), None));
    }

    #[test]
    fn profiles_with_a_journal_in_nvram_get_the_memory_and_others_do_not() {
        let of = |text: &str| text.parse::<Mounter>().unwrap().is_journal_in_nvram();
        assert!(["quire:profile=nvj", "quire:profile=djfs", "quire:noatime,profile=djfs4"].into_iter().all(of));
        assert!(!["quire:profile=auto", "quire:profile=database", "kernel:none", "quire"].into_iter().any(of));
    }
}
