//! The asking side of the control socket.

use super::{About, Reply, Request, place};
use crate::mountinfo::{MountEntry, Mounts};
use crate::mounting;
use crate::policy::CONTROL_BUSY_TIMEOUT;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A mounted file system, seen from another process.
pub struct Control {
    mount: MountEntry,
    /// What hides the mount: the type of a file system that is mounted over it.
    cover: Option<String>,
    socket: PathBuf,
}

/// Why a mount could not be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("{}: {}", path.display(), crate::fail::words(*source))]
    Open { path: PathBuf, source: Errno },
    #[error("{}: not a Quire mount", .0.display())]
    NotQuire(PathBuf),
    #[error(
        "{}: the daemon's control socket cannot be reached ({}); is it of another namespace or container?",
        dir.display(), crate::fail::words(*source)
    )]
    NoSocket { dir: PathBuf, image: PathBuf, source: Errno },
    #[error("{what}: {}", crate::fail::words(*source))]
    Refused { what: &'static str, source: Errno },
    #[error("{what}: {why}")]
    Because { what: &'static str, why: String },
    #[error("the mount gave an answer that cannot be understood (another version?)")]
    Garbled,
}

impl Control {
    /// Finds the mount that `dir` is in. A mount point is found without asking its file system, also under another.
    ///
    /// # Errors
    /// There is no such directory, no Quire there, or its daemon does not answer.
    pub fn open(dir: &Path) -> Result<(Control, About), ControlError> {
        let failed = |e: std::io::Error| ControlError::Open { path: dir.to_owned(), source: errno(&e) };
        let mounts = Mounts::read().map_err(failed)?;
        let mount = match at_mount_point(&mounts, dir).map_err(failed)? {
            Some(mount) => mount,
            None => {
                let path = dir.canonicalize().map_err(failed)?;
                let found = mounts.containing(&path).filter(|m| m.is_quire());
                found.ok_or_else(|| ControlError::NotQuire(dir.to_owned()))?
            }
        };
        let mut control = Control {
            mount: mount.clone(),
            cover: mounts.cover_of(mount).map(|m| m.kind.clone()),
            socket: PathBuf::new(),
        };
        match control.find() {
            Ok(about) => Ok((control, about)),
            Err(ControlError::Refused { source, .. }) => Err(control.unreachable(source)),
            Err(e) => Err(e),
        }
    }

    /// True for a directory on which Quire has mounted something, told without asking the file system there, which may
    /// be frozen, hung or another user's.
    #[must_use]
    pub fn is_mount_point(dir: &Path) -> bool {
        Mounts::read().is_ok_and(|mounts| at_mount_point(&mounts, dir).is_ok_and(|found| found.is_some()))
    }

    /// Asks each place where the socket may be.
    fn find(&mut self) -> Result<About, ControlError> {
        let mut first = None;
        for socket in place::candidates(&self.mount) {
            self.socket = socket;
            match self.ask("control", Request::About) {
                Ok(Reply::About(about)) => return Ok(about),
                Ok(_) => return Err(ControlError::Garbled),
                Err(e) => {
                    // What is more telling than that there is none.
                    let absent = matches!(e, ControlError::Refused { source: Errno::NOENT, .. });
                    if first.is_none() || !absent {
                        first = Some(e);
                    }
                }
            }
        }
        Err(first.unwrap_or(ControlError::Garbled))
    }

    /// The daemon has died, or lives where we do not see its socket.
    fn unreachable(&self, source: Errno) -> ControlError {
        let dir = self.mount.mount_point.clone();
        match rustix::fs::statfs(&dir) {
            Err(source) if mounting::is_dead(source) => ControlError::Open { path: dir, source },
            _ => ControlError::NoSocket { dir, image: self.mount.source.clone(), source },
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount.mount_point
    }

    /// The type of the file system that is mounted over it and hides it.
    #[must_use]
    pub fn hidden_by(&self) -> Option<&str> {
        self.cover.as_deref()
    }

    /// The figures of the mount, as JSON.
    ///
    /// # Errors
    /// The mount does not answer.
    pub fn stats(&self) -> Result<String, ControlError> {
        match self.ask("stats", Request::Stats)? {
            Reply::Stats(text) => Ok(text),
            _ => Err(ControlError::Garbled),
        }
    }

    /// Makes everything durable: what the kernel still holds, then what the volume does.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn sync(&self) -> Result<(), ControlError> {
        self.write_cached("sync")?;
        self.tell("sync", Request::Sync)
    }

    /// Brings the image into a clean state and holds it there, with what the kernel holds.
    ///
    /// # Errors
    /// Frozen already, not permitted, or something could not be written.
    pub fn freeze(&self) -> Result<(), ControlError> {
        // A frozen volume takes no pages, so handing them over would wait for the thaw.
        self.tell("freeze", Request::MayFreeze)?;
        self.write_cached("freeze")?;
        self.tell("freeze", Request::Freeze)
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// Not frozen, not permitted.
    pub fn thaw(&self) -> Result<(), ControlError> {
        self.tell("thaw", Request::Thaw)
    }

    /// Makes the file system of the mount so many bytes large.
    ///
    /// # Errors
    /// Not permitted; it would not grow; it cannot grow so far.
    pub fn resize(&self, bytes: u64) -> Result<(), ControlError> {
        self.tell("resize", Request::Resize { bytes })
    }

    /// Changes options of the mount: those that the kernel keeps, then those of the daemon. `ro` returns when the image
    /// is clean.
    ///
    /// # Errors
    /// Not permitted; an option is unknown or cannot change.
    pub fn remount(&self, options: &str) -> Result<(), ControlError> {
        const WHAT: &str = "remount";
        let ask = |only_check| self.ask(WHAT, Request::Remount { options: options.to_owned(), only_check });
        let Reply::Flags(flags) = ask(true)? else { return Err(ControlError::Garbled) };
        if let Some(flags) = flags {
            mounting::set_kernel_flags(&self.mount.mount_point, flags).map_err(|source| match source {
                Errno::PERM => {
                    let why = "only root may change ro, rw, nodev, noatime and others that the kernel keeps".to_owned();
                    ControlError::Because { what: WHAT, why }
                }
                source => ControlError::Refused { what: WHAT, source },
            })?;
        }
        match ask(false)? {
            Reply::Flags(_) => Ok(()),
            _ => Err(ControlError::Garbled),
        }
    }

    /// The kernel hands over the pages that it holds. syncfs(2), where it reaches the mount, has it begin with all of
    /// them; since Linux 6.18 it does not wait for them on FUSE, as the daemon does. Root may not look into a user's
    /// mount without `allow_other`, and does without.
    fn write_cached(&self, what: &'static str) -> Result<(), ControlError> {
        if self.cover.is_none() {
            match self.root().and_then(rustix::fs::syncfs) {
                Ok(()) | Err(Errno::ACCESS) => {}
                Err(source) => return Err(ControlError::Refused { what, source }),
            }
        }
        self.tell(what, Request::WriteBack)
    }

    fn root(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.mount.mount_point, flags, Mode::empty())
    }

    fn tell(&self, what: &'static str, request: Request) -> Result<(), ControlError> {
        match self.ask(what, request)? {
            Reply::Done => Ok(()),
            _ => Err(ControlError::Garbled),
        }
    }

    fn ask(&self, what: &'static str, request: Request) -> Result<Reply, ControlError> {
        let start = Instant::now();
        loop {
            match self.ask_once(&request) {
                Err(e) => return Err(ControlError::Refused { what, source: errno(&e) }),
                Ok(None) => return Err(ControlError::Garbled),
                Ok(Some(Reply::Refused(number))) => match Errno::from_raw_os_error(number) {
                    Errno::AGAIN if start.elapsed() < CONTROL_BUSY_TIMEOUT => {
                        std::thread::sleep(Duration::from_millis(20))
                    }
                    source => return Err(ControlError::Refused { what, source }),
                },
                Ok(Some(Reply::Because(why))) => return Err(ControlError::Because { what, why }),
                Ok(Some(reply)) => return Ok(reply),
            }
        }
    }

    fn ask_once(&self, request: &Request) -> std::io::Result<Option<Reply>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        let server = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
        if server != 0 && server != self.mount.user {
            return Err(Errno::PERM.into());
        }
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        // A daemon that refuses at once may have closed already; its answer is there to read.
        stream.write_all(&line).ok();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer).ok())
    }
}

/// The Quire mount on a directory, by its name as it is given or without links.
fn at_mount_point<'m>(mounts: &'m Mounts, dir: &Path) -> std::io::Result<Option<&'m MountEntry>> {
    match mounts.quire_on(&std::path::absolute(dir)?) {
        Some(mount) => Ok(Some(mount)),
        None => Ok(mounts.quire_on(&dir.canonicalize()?)),
    }
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}
