//! A volume that answers requests, and what a mount keeps besides: open files, refused data, requests that wait for a
//! thaw.
//!
//! Guarantees: while the volume is frozen, requests that would change it are kept and answered after the thaw, so that
//! no worker waits for it (L2).

use crate::bypassed::Bypassed;
use crate::caller::{Caller, Capability, Keeper};
use crate::changing::Changing;
use crate::fail::Fail;
use crate::meter::Meter;
use crate::policy::{ATTRIBUTES_VALID_WHILE_WRITTEN, CLOSE_IS_TOLD, NAMES_VALID};
use crate::refused::Refused;
use crate::reply_buffers::ReplyBuffers;
use crate::updates::{AtomicWrites, Updates};
use crate::wire::abi::{self, init, opcode};
use crate::wire::{Header, ShownOwner};
use crate::without::Without;
use crate::workers::Blocked;
use quire_device::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use quire_device::sync::{Arc, Mutex, lock};
use quire_fs::{Admitted, Attr, Cred, DeviceRead, Volume, commit_left, leaving_commits};
use quire_layout::number_map::NumberMap;
use quire_layout::{Ino, Tid};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nothing is sent.
    None,
    /// The reply is in the buffer.
    Reply,
    /// The same, and it gives the kernel a reference on this inode.
    Gives(Ino),
    /// As `Gives`, and the kernel has the file open.
    Opens { ino: Ino, writes: bool },
    /// As `Reply`, and what the kernel remembers of this inode's attributes is wrong. Only for requests on this inode
    /// whose caller waits for the reply: the kernel keeps the inode meanwhile.
    Spoils(Ino),
    /// As `Reply`, and what the kernel remembers of open files' data must not be read any more. Not from a worker.
    StopsAll,
    /// As `Spoils`, when files are durable, for a request whose reply has no content, and the kernel is to drop its
    /// pages of the file first. A thread that is no worker waits for that.
    DropsPages(Ino),
    /// The device's bytes are the reply, when it has read them. No thread waits.
    OnDevice(DeviceRead),
    /// The reply in the buffer is sent when files are durable, or the error that keeps one from being so. No thread
    /// waits.
    WhenDurable(Durable),
}

/// A reply that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Durable {
    pub need: Need,
    pub sent: Sent,
}

/// What has to be durable before a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    Everything,
    /// A file, and maybe another.
    Files {
        ino: Ino,
        and: Option<Ino>,
        data_only: bool,
    },
    /// A transaction.
    Commit(Tid),
}

/// What a reply that waits does when it is sent: as the [`Answer`]s of these names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    Reply,
    Gives(Ino),
    Opens {
        ino: Ino,
        writes: bool,
    },
    Spoils(Ino),
    DropsPages(Ino),
    /// The reply to an OPEN, for writing or not, of a file that was truncated; it spoils or not.
    Opened {
        ino: Ino,
        writes: bool,
        spoils: bool,
    },
}

impl Sent {
    pub(crate) fn answer(self) -> Answer {
        match self {
            Sent::Reply => Answer::Reply,
            Sent::Gives(ino) => Answer::Gives(ino),
            Sent::Opens { ino, writes } => Answer::Opens { ino, writes },
            Sent::Spoils(ino) => Answer::Spoils(ino),
            Sent::DropsPages(ino) => Answer::DropsPages(ino),
            Sent::Opened { ino, spoils: true, .. } => Answer::Spoils(ino),
            Sent::Opened { spoils: false, .. } => Answer::Reply,
        }
    }
}

impl Answer {
    /// The same answer when these files are durable. For an answer that is a reply.
    pub(crate) fn when_durable(self, ino: Ino, and: Option<Ino>, data_only: bool) -> Answer {
        self.when(Need::Files { ino, and, data_only })
    }

    /// The same answer when that is durable. For an answer that is a reply.
    pub(crate) fn when(self, need: Need) -> Answer {
        let sent = match self {
            Answer::Gives(ino) => Sent::Gives(ino),
            Answer::Opens { ino, writes } => Sent::Opens { ino, writes },
            Answer::Spoils(ino) => Sent::Spoils(ino),
            Answer::DropsPages(ino) => Sent::DropsPages(ino),
            Answer::Reply | Answer::StopsAll | Answer::None | Answer::OnDevice(_) | Answer::WhenDurable(_) => {
                Sent::Reply
            }
        };
        Answer::WhenDurable(Durable { need, sent })
    }

    /// The same answer when the commit is made that a call through this handle has left; if it has left none, when
    /// what `otherwise` says is durable.
    pub(crate) fn after_commit(self, by: &Volume, otherwise: Option<Need>) -> Answer {
        match commit_left(by).map(Need::Commit).or(otherwise) {
            Some(need) => self.when(need),
            None => self,
        }
    }
}

/// Whether a request is answered now.
pub(crate) enum Admission<'v> {
    /// Now. With a guard, a freeze waits for the end of the request.
    Now(Option<Admitted<'v>>),
    /// The request was kept for the thaw.
    AfterThaw,
    /// It is refused: the mount is read-only, until somebody makes it writable.
    ReadOnly,
}

/// How requests are to be answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServeOptions {
    /// Which files can be updated atomically.
    pub atomic_writes: AtomicWrites,
    /// Decides who may what the kernel leaves to us.
    pub keeper: Keeper,
    /// Each caller counts as root inside the image (P3).
    pub fake_root: bool,
    /// The owner that attributes are shown with.
    pub owner: ShownOwner,
    /// What `quire umount` and others want to know.
    pub about: crate::control::About,
    /// Heuristics that are off.
    pub without: Without,
    /// Requests that take so long are logged.
    pub slow: Option<Duration>,
    /// Workers that take requests from /dev/fuse at once, at most; `None`: as the CPUs suggest.
    pub readers: Option<usize>,
}

/// Files that are open, and how many times.
#[derive(Default)]
pub(crate) struct Openers(Mutex<NumberMap<Ino, u32>>);

impl Openers {
    pub(crate) fn opened(&self, ino: Ino) {
        *lock(&self.0).entry(ino).or_default() += 1;
    }

    /// True if it was the last.
    pub(crate) fn closed(&self, ino: Ino) -> bool {
        let mut files = lock(&self.0);
        let Some(n) = files.get_mut(&ino) else { return false };
        *n -= 1;
        let last = *n == 0;
        if last {
            files.remove(&ino);
        }
        last
    }

    pub(crate) fn has(&self, ino: Ino) -> bool {
        lock(&self.0).contains_key(&ino)
    }

    /// All of them.
    pub(crate) fn files(&self) -> Vec<Ino> {
        lock(&self.0).keys().copied().collect()
    }
}

/// Makes the statistics of a mount as JSON, given the requests and how many wait for a thaw.
pub(crate) type StatsFn = Box<dyn Fn(&Meter, usize) -> String + Send + Sync>;

/// A volume that answers requests.
pub(crate) struct Server {
    pub(crate) volume: Volume,
    /// The same for calls that do not wait for metadata: the request is suspended when it is missing. Before such a
    /// call a request has changed nothing.
    suspending: Volume,
    pub(crate) options: ServeOptions,
    pub(crate) changing: Changing,
    pub(crate) meter: Meter,
    /// The session's workers.
    pub(crate) blocked: Arc<Blocked>,
    pub(crate) reply_buffers: ReplyBuffers,
    agreed: AtomicU64,
    /// Files that are open for writing.
    pub(crate) writers: Openers,
    /// Files that are open at all.
    pub(crate) openers: Openers,
    pub(crate) refused: Refused,
    pub(crate) bypassed: Bypassed,
    pub(crate) updates: Updates,
    /// Requests that wait for the thaw, whole.
    parked: Mutex<Vec<Vec<u8>>>,
    /// There are such requests: each worker asks after each request, without the lock.
    has_parked: AtomicBool,
    /// When a file was last removed.
    removed: Mutex<Option<Instant>>,
    /// The mount was made read-only, and the volume is frozen for that.
    remounted_read_only: AtomicBool,
    closed: Mutex<Option<Result<(), quire_fs::Error>>>,
    /// Makes what `stats` shows, given the requests.
    stats: StatsFn,
}

impl Server {
    /// `stats` makes the statistics that `quire stats` shows, as JSON.
    #[must_use]
    pub(crate) fn new(volume: Volume, options: ServeOptions, stats: StatsFn) -> Self {
        Server {
            updates: Updates::new(options.atomic_writes),
            suspending: quire_fs::without_waiting(&volume),
            volume,
            meter: Meter::new(options.slow),
            options,
            changing: Changing::default(),
            blocked: Arc::default(),
            reply_buffers: ReplyBuffers::default(),
            agreed: AtomicU64::new(0),
            writers: Openers::default(),
            openers: Openers::default(),
            refused: Refused::default(),
            bypassed: Bypassed::default(),
            parked: Mutex::default(),
            has_parked: AtomicBool::new(false),
            removed: Mutex::default(),
            remounted_read_only: AtomicBool::new(false),
            closed: Mutex::new(None),
            stats,
        }
    }

    /// The volume for a request's first call.
    pub(crate) fn volume_for(&self, h: &Header) -> &Volume {
        if h.waits { &self.volume } else { &self.suspending }
    }

    /// The volume for a request's changes: on its user's account.
    pub(crate) fn acting(&self, h: &Header) -> Volume {
        self.volume.on_account_of(Cred { uid: h.uid, gid: h.gid })
    }

    /// The same for the first change of a request: the call does not wait for metadata, nor for a commit. The answer
    /// waits for a commit that [is left](quire_fs::commit_left).
    pub(crate) fn first_change(&self, h: &Header) -> Volume {
        leaving_commits(&self.volume_for(h).on_account_of(Cred { uid: h.uid, gid: h.gid }))
    }

    /// The request as it is answered: with `fakeroot` its caller is root.
    pub(crate) fn inside(&self, h: &Header) -> Header {
        if self.options.fake_root { Header { uid: 0, gid: 0, ..*h } } else { *h }
    }

    /// Refuses a request whose caller lacks a capability (P1).
    pub(crate) fn demand(&self, h: &Header, capability: Capability) -> Result<(), Fail> {
        if self.options.fake_root {
            return Ok(());
        }
        let caller = Caller { uid: h.uid, pid: h.pid };
        if self.options.keeper.allows(caller, capability) { Ok(()) } else { Err(Fail::of(Errno::PERM)) }
    }

    /// Refuses a request whose caller neither owns the file nor may act as its owner.
    pub(crate) fn demand_owner(&self, h: &Header, ino: Ino) -> Result<(), Fail> {
        let [owner, _] = self.options.owner.of(&self.volume.getattr(ino)?);
        if h.uid == owner { Ok(()) } else { self.demand(h, Capability::Fowner) }
    }

    /// How long the kernel may believe these attributes.
    pub(crate) fn valid(&self, a: &Attr) -> Duration {
        let written = self.has(init::WRITEBACK_CACHE) && self.writers.has(a.ino);
        if written { ATTRIBUTES_VALID_WHILE_WRITTEN } else { NAMES_VALID }
    }

    pub(crate) fn agreed(&self, flags: u64) {
        self.agreed.store(flags, Ordering::Relaxed);
    }

    /// True if the handshake agreed on this ability.
    pub(crate) fn has(&self, flag: u64) -> bool {
        self.agreed.load(Ordering::Relaxed) & flag != 0
    }

    pub(crate) fn has_setxattr_ext(&self) -> bool {
        self.has(init::SETXATTR_EXT)
    }

    /// How many requests there were.
    pub(crate) fn total_requests(&self) -> u64 {
        self.meter.begun().values().sum()
    }

    pub(crate) fn stats(&self) -> String {
        (self.stats)(&self.meter, lock(&self.parked).len())
    }

    /// Makes the image clean; once. Later calls tell what the first one has met.
    ///
    /// # Errors
    /// As [`Volume::close`].
    pub(crate) fn close(&self) -> Result<(), quire_fs::Error> {
        let mut closed = lock(&self.closed);
        if let Some(outcome) = &*closed {
            return outcome.clone();
        }
        let outcome = self.volume.close();
        *closed = Some(outcome.clone());
        outcome
    }

    /// The reply that gave the kernel something did not arrive.
    pub(crate) fn take_back(&self, sent: Sent) {
        match sent {
            Sent::Gives(ino) => self.forget(ino, 1),
            Sent::Opens { ino, writes } => {
                if writes {
                    self.writers.closed(ino);
                }
                self.openers.closed(ino);
                self.forget(ino, 1);
            }
            Sent::Opened { ino, writes, .. } => {
                if writes {
                    self.writers.closed(ino);
                }
                self.openers.closed(ino);
            }
            Sent::Reply | Sent::Spoils(_) | Sent::DropsPages(_) => {}
        }
    }

    /// The kernel gives references back.
    pub(crate) fn forget(&self, ino: Ino, n: u64) {
        // The root is never given up.
        if ino != Ino::ROOT {
            self.volume.forget(ino, n);
            self.bypassed.forget(ino);
        }
    }

    /// Reading counts as access, by the rules of the mount. Never a reason to fail.
    pub(crate) fn touch_atime(&self, ino: Ino) {
        if self.changing.no_atime() {
            return;
        }
        if let Err(e) = self.volume.touch_atime(ino) {
            tracing::debug!("access time of inode {}: {e}", ino.0);
        }
    }

    /// A name is taken from a file, and may be its last.
    pub(crate) fn note_removal(&self) {
        *lock(&self.removed) = Some(Instant::now());
    }

    /// True if a change found no space, and space may become free without anybody doing something for it: a file that
    /// was removed is not open any more, or may be closed already.
    pub(crate) fn may_get_space(&self, h: &Header, answer: &Result<Answer, Fail>) -> bool {
        let full = answer.as_ref().is_err_and(|e| *e == Fail::of(Errno::NOSPC)) && opcode::CHANGES.contains(&h.opcode);
        let lately = || lock(&self.removed).is_some_and(|at| at.elapsed() < CLOSE_IS_TOLD);
        let may =
            full && self.volume.maintenance().unlinked().into_iter().any(|ino| !self.openers.has(ino) || lately());
        if may && let Ok(ino) = ino_of(h.node) {
            self.refused.forget(ino);
        }
        may
    }

    /// The file whose WRITE this was, if it was refused for want of space.
    pub(crate) fn refused_by(&self, h: &Header) -> Option<Ino> {
        let written = ino_of(h.node).ok().filter(|_| h.opcode == opcode::WRITE)?;
        Some(written).filter(|ino| self.refused.has(*ino))
    }

    /// The file whose WRITE this was, if the file's flags have refused it: it is append-only or immutable. Pages that
    /// the kernel keeps of it are not the file's.
    pub(crate) fn forbidden_by(h: &Header, error: &Fail) -> Option<Ino> {
        ino_of(h.node).ok().filter(|_| h.opcode == opcode::WRITE && *error == Fail::of(Errno::PERM))
    }

    /// What `quire umount` and others want to know.
    pub(crate) fn about(&self) -> crate::control::About {
        crate::control::About { shut_down: self.volume.maintenance().is_shut_down(), ..self.options.about.clone() }
    }

    /// True if the volume is frozen because the mount was made read-only.
    pub(crate) fn is_remounted_read_only(&self) -> bool {
        self.remounted_read_only.load(Ordering::Acquire)
    }

    pub(crate) fn set_remounted_read_only(&self, is: bool) {
        self.remounted_read_only.store(is, Ordering::Release);
    }

    /// Admits a request that would change the volume, for as long as the guard lives. If the volume is frozen, the
    /// request is kept for the thaw instead. An unmounted volume admits it as well, and its calls are refused.
    pub(crate) fn admit_change(&self, request: &[u8]) -> Admission<'_> {
        match self.volume.try_admit() {
            Ok(admitted) => return Admission::Now(Some(admitted)),
            Err(quire_fs::Error::Frozen) => {}
            Err(_) => return Admission::Now(None),
        }
        let mut parked = lock(&self.parked);
        // Asked again under the lock, under which the thread that thaws takes the kept requests. Said before: that
        // thread, which asks for it after the thaw, sees it if this one does not see the thaw.
        self.has_parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let admitted = self.volume.try_admit();
        if matches!(admitted, Err(quire_fs::Error::Frozen)) {
            parked.push(request.to_vec());
            return Admission::AfterThaw;
        }
        self.has_parked.store(!parked.is_empty(), Ordering::Relaxed);
        Admission::Now(admitted.ok())
    }

    pub(crate) fn is_frozen(&self) -> bool {
        matches!(self.volume.try_admit(), Err(quire_fs::Error::Frozen))
    }

    /// The requests that were kept for the thaw, once it has come.
    pub(crate) fn unparked(&self) -> Vec<Vec<u8>> {
        fence(Ordering::SeqCst);
        if !self.has_parked.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut parked = lock(&self.parked);
        if self.is_frozen() {
            return Vec::new();
        }
        self.has_parked.store(false, Ordering::Relaxed);
        std::mem::take(&mut *parked)
    }
}

/// The inode of a node number.
pub(crate) fn ino_of(node: u64) -> Result<Ino, Fail> {
    match node {
        abi::ROOT_NODE => Ok(Ino::ROOT),
        n => u32::try_from(n).map(Ino).map_err(|_| Fail::of(Errno::STALE)),
    }
}
