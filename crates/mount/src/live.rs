//! A mount that is served, and how it is stopped.
//!
//! ```text
//! signal while it opens:   what is attached is detached, the process ends; the next recovery begins again
//! signal while it serves:  thaw ─> the kernel writes back ─> detach this mount ─> (grace) ─> close: the image is clean
//! ```
//!
//! *Guarantees*: SIGTERM, SIGINT and SIGHUP are heard at any time. They end the mount that this process has made,
//! wherever it was moved, and no other (H5): one that is hidden under another mount, or has mounts in it, is left as a
//! dead mount point instead, because its removal would take theirs with it.

use crate::control;
use crate::control::listener::{Hooks, Listener};
use crate::daemon;
use crate::error::MountError;
use crate::mountinfo::{MountEntry, Mounts};
use crate::mounting::{self, DetachError};
use crate::openers::Openers;
use crate::options::MountOptions;
use crate::policy::BUSY_MOUNT_TIMEOUT;
use crate::remount::Remounter;
use crate::sandbox::SandboxError;
use crate::sandbox::apply::{self, Files};
use crate::sandbox::broker;
use crate::server::Server;
use crate::session::Session;
use crate::watch::Watch;
use quire_device::Lease;
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_fs::Phase;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// mount(8): interrupted by its user.
const INTERRUPTED: i32 = 8;

type OnSignal = Box<dyn FnMut(i32) + Send>;

/// What a signal does now.
enum Stage {
    /// Not served yet: nothing is lost if the process ends. What is attached already is named.
    Opening(Option<PathBuf>),
    Serving(OnSignal),
}

/// The signals that end a mount, from before recovery to its end.
#[derive(Clone)]
pub(crate) struct Stops(Arc<Mutex<Stage>>);

impl Stops {
    /// Listens for signals, which are held back from all other threads. One that comes before the mount is served also
    /// removes the lock file.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn watch(lock_file: Option<PathBuf>) -> std::io::Result<Stops> {
        let stops = Stops(Arc::new(Mutex::new(Stage::Opening(None))));
        let stage = stops.0.clone();
        let watch = move || {
            loop {
                let signal = daemon::wait_stop();
                match &mut *lock(&stage) {
                    Stage::Serving(act) => act(signal),
                    Stage::Opening(attached) => {
                        tracing::warn!("interrupted by signal {signal}; the next mount begins again");
                        if let Some(dir) = attached {
                            mounting::detach_own(dir, None).ok();
                        }
                        if let Some(path) = &lock_file {
                            std::fs::remove_file(path).ok();
                        }
                        daemon::exit(INTERRUPTED);
                    }
                }
            }
        };
        thread::Builder::new().name("quire-signals".to_owned()).spawn(watch)?;
        Ok(stops)
    }

    /// Attaches; a signal waits meanwhile, and then knows of it.
    pub(crate) fn attach<T, E>(&self, dir: &Path, attach: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut stage = lock(&self.0);
        let attached = attach()?;
        *stage = Stage::Opening(Some(dir.to_owned()));
        Ok(attached)
    }

    /// Takes away what was attached for a mount that did not come to be served.
    pub(crate) fn detach_unless_served(&self) {
        if let Stage::Opening(attached @ Some(_)) = &mut *lock(&self.0)
            && let Some(dir) = attached.take()
        {
            mounting::detach_own(&dir, None).ok();
        }
    }

    fn serve(&self, act: OnSignal) {
        *lock(&self.0) = Stage::Serving(act);
    }
}

/// A session that is being served.
pub(crate) struct Live {
    pub(crate) image: PathBuf,
    pub(crate) dir: PathBuf,
    /// This mount among all others.
    pub(crate) entry: Option<MountEntry>,
    pub(crate) server: Arc<Server>,
    pub(crate) session: Session,
    pub(crate) stops: Stops,
    pub(crate) options: MountOptions,
    /// The image file, to hold back those who open it when it is unmounted.
    pub(crate) lease: Option<Arc<Lease>>,
}

/// What a signal has said.
#[derive(Default)]
struct Stopping {
    asked: AtomicBool,
    /// The mount point stays: the session ends at once.
    at_once: AtomicBool,
}

impl Live {
    pub(crate) fn serve(self, ready: impl FnOnce()) -> Result<(), MountError> {
        if let Err(e) = self.confine() {
            self.server.close().ok();
            return Err(e.into());
        }
        let background = self.server.volume.maintenance().spawn_background();
        let device = self.entry.as_ref().map(|e| e.device.clone());
        let remounter = Arc::new(Remounter::new(self.options.clone(), self.server.clone(), device));
        // Before the first request is answered: who sees the mount can ask it.
        let listener = self.listen(remounter.clone());
        self.session.spawn()?;
        remounter.begin()?;
        let stopping = Arc::new(Stopping::default());
        self.stop_by_signal(stopping.clone());
        let (watch, _openers) = (self.watch(), self.openers());
        tracing::info!("{} mounted on {}", self.image.display(), self.dir.display());
        // From here on neither process looks at the directory before the caller has been told.
        broker::leave_session();
        ready();
        let ended = self.wait(&stopping);
        remounter.end();
        drop((listener, watch));
        // A broken connection is no reason to leave the image dirty.
        let clean = self.server.close();
        // The thread that commits for suspended callers goes on while others sync; now they are refused.
        drop(background);
        tracing::info!("{} unmounted", self.dir.display());
        clean.map_err(|source| MountError::NotClean { image: self.image.clone(), source })?;
        ended.map_err(MountError::Session)
    }

    /// Gives up what is not needed any more, before the first request of a user is read.
    fn confine(&self) -> Result<(), SandboxError> {
        let device = self.entry.as_ref().map(|e| e.device.clone());
        let files = Files {
            control_dir: device.as_deref().and_then(control::socket_directory),
            lock_dir: self.options.lock_file.as_deref().and_then(apply::directory_of),
            device,
            may_tune: rustix::process::geteuid().is_root(),
        };
        apply::confine(self.options.sandbox, &files, self.entry.as_ref())
    }

    /// The control socket. A mount without one works, but cannot be asked.
    fn listen(&self, remounter: Arc<Remounter>) -> Option<Listener> {
        let device = &self.entry.as_ref()?.device;
        let (writes, answers) = (self.session.clone(), self.session.clone());
        let hooks = Hooks {
            write_back: Box::new(move || writes.write_back()),
            after_thaw: Box::new(move || answers.answer_thawed()),
            remount: Box::new(move |list, only_check| match only_check {
                true => remounter.check(list),
                false => remounter.apply(list).map(|()| None),
            }),
        };
        match Listener::start(device, self.server.clone(), hooks) {
            Ok(listener) => Some(listener),
            Err(e) => {
                tracing::warn!("no control socket: {e}; quire stats, freeze and others cannot reach this mount");
                None
            }
        }
    }

    /// Answers those who open the image. Without leases they are not held back.
    fn openers(&self) -> Option<Openers> {
        let lease = self.lease.clone()?;
        let openers = Openers::start(lease, self.session.clone());
        openers.inspect_err(|e| tracing::debug!("no lease on {}: {e}", self.image.display())).ok()
    }

    /// Sees what others do to the mount.
    fn watch(&self) -> Option<Watch> {
        let entry = self.entry.clone()?;
        let watch = Watch::start(entry, self.server.clone(), self.session.clone());
        watch.inspect_err(|e| tracing::warn!("the mount is not watched: {e}")).ok()
    }

    /// Waits for the end. A signal's unmount of a busy mount gets some time, then the mount is over for its users.
    fn wait(&self, stopping: &Stopping) -> Result<(), Errno> {
        let mut grace = BUSY_MOUNT_TIMEOUT;
        let step = Duration::from_millis(500);
        loop {
            if self.session.wait(Some(step))? {
                return Ok(());
            }
            if stopping.at_once.load(Ordering::Acquire) {
                return Ok(());
            }
            if stopping.asked.load(Ordering::Acquire) {
                grace = grace.saturating_sub(step);
                if grace.is_zero() {
                    tracing::warn!("{} is still in use; its users lose it now", self.dir.display());
                    return Ok(());
                }
            }
        }
    }

    /// On a signal: everything is written, then the mount is taken away.
    fn stop_by_signal(&self, stopping: Arc<Stopping>) {
        let (entry, server, session) = (self.entry.clone(), self.server.clone(), self.session.clone());
        let dir = self.dir.clone();
        self.stops.serve(Box::new(move |signal| {
            tracing::info!("signal {signal}: unmounting {}", dir.display());
            let again = stopping.asked.load(Ordering::Acquire);
            // An unmount ends a freeze: the kernel's dirty pages would wait for the thaw for ever.
            let mut stays_frozen = false;
            if !server.is_remounted_read_only() {
                match server.volume.maintenance().thaw() {
                    Ok(()) => tracing::warn!("{} was frozen; thawed to unmount it", dir.display()),
                    Err(e) => stays_frozen = stays_frozen_by(&server, &dir, &e),
                }
                session.answer_thawed();
            }
            let place = where_it_is(entry.as_ref());
            match &place {
                // The kernel hands its dirty pages over before the mount is gone, many files at once by syncfs(2),
                // which need not wait for them. A frozen volume would not take them.
                Place::At(dir) if !again && !stays_frozen => {
                    if let Err(e) = mounting::sync_own(dir) {
                        tracing::error!("write back what {} has in memory: {e}", dir.display());
                    }
                    session.write_back();
                }
                Place::At(_) => {}
                Place::Hidden(_) | Place::Gone => session.write_back(),
            }
            stopping.asked.store(true, Ordering::Release);
            let end_at_once = || {
                session.wait_for_thawed(BUSY_MOUNT_TIMEOUT);
                stopping.at_once.store(true, Ordering::Release);
            };
            match place {
                Place::At(dir) => match mounting::detach_own(&dir, entry.as_ref().map(|e| e.id)) {
                    // An earlier signal has done it.
                    Ok(()) | Err(DetachError::NotMounted) => {}
                    Err(e @ DetachError::NoBroker) => {
                        tracing::error!(
                            "{}: {e}: the image is clean, the mount point is dead: unmount it later",
                            dir.display()
                        );
                        end_at_once();
                    }
                    Err(e) => tracing::error!("unmount: {e}"),
                },
                Place::Hidden(kind) => {
                    tracing::warn!(
                        "{}: {kind} is mounted over or within it and stays; the image is clean, the mount point is dead: \
                         unmount it later",
                        dir.display()
                    );
                    end_at_once();
                }
                // Taken away by others; those who still use it have the grace.
                Place::Gone => {}
            }
        }));
    }
}

/// True if the volume is frozen and cannot be thawed: what the kernel holds of it is lost, and whoever waits for the
/// thaw has the grace.
fn stays_frozen_by(server: &Server, dir: &Path, e: &quire_fs::Error) -> bool {
    let frozen = server.volume.status().phase == Phase::Frozen;
    if frozen {
        tracing::error!("{} cannot be thawed to unmount it: {e}", dir.display());
    }
    frozen
}

/// Where a mount is now.
enum Place {
    At(PathBuf),
    /// It has mounts over it or within it, of this type.
    Hidden(String),
    Gone,
}

fn where_it_is(entry: Option<&MountEntry>) -> Place {
    let unknown = |e: &std::io::Error| tracing::error!("/proc/self/mountinfo: {e}; where the mount is is not known");
    let Some((entry, mounts)) = entry.zip(Mounts::read().inspect_err(unknown).ok()) else { return Place::Gone };
    match (mounts.by_id(entry.id, &entry.device), mounts.child_of(entry.id)) {
        (Some(_), Some(child)) => Place::Hidden(child.kind.clone()),
        (Some(now), None) => Place::At(now.mount_point.clone()),
        (None, _) => Place::Gone,
    }
}
