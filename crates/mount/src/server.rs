//! Answers requests: the one place where FUSE meets the engine.
//!
//! Relies on `default_permissions`: the kernel checks modes and ACLs before a request is sent. Guarantees: a request is
//! answered once; a node that the kernel learns costs one reference, which FORGET or a failed reply gives back; while
//! the volume is frozen, requests that would change it are kept and answered after the thaw, so that no worker waits
//! for it (L2).

use crate::caller::{Caller, Capability, Keeper};
use crate::fail::Fail;
use crate::refused::Refused;
use crate::wire::abi::{self, init, opcode};
use crate::wire::{Body, Header, Out};
use quire_device::sync::atomic::{AtomicU64, Ordering};
use quire_device::sync::{Mutex, lock};
use quire_fs::{Admitted, Attr, Cred, Volume};
use quire_layout::Ino;
use quire_layout::number_map::NumberMap;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the kernel may believe names and attributes. We are the only writer, so only memory pressure limits it.
pub(crate) const VALID: Duration = Duration::from_secs(24 * 60 * 60);
/// The same for attributes of a file that is open for writing while the kernel keeps what is written: it does not
/// notice that the file takes more blocks when it hands pages over. With the last close it has handed over all.
const VALID_WHILE_WRITTEN: Duration = Duration::from_secs(1);

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Nothing is sent.
    None,
    /// The reply is in the buffer.
    Reply,
    /// The same, and it gives the kernel a reference on this inode.
    Gives(Ino),
    /// The same, and what the kernel remembers of this inode's attributes is wrong. Only for requests on an open file:
    /// the kernel keeps its inode meanwhile.
    Spoils(Ino),
    /// An empty reply, sent when this file is durable, or the error that keeps it from being so. No thread waits.
    WhenDurable { ino: Ino, data_only: bool },
}

/// Whether a request is answered now.
pub(crate) enum Admission<'v> {
    /// Now. With a guard, a freeze waits for the end of the request.
    Now(Option<Admitted<'v>>),
    /// The request was kept for the thaw.
    AfterThaw,
}

/// How requests are to be answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manner {
    /// Reading a directory does not count as access.
    pub no_dir_atime: bool,
    /// Reading does not count as access at all (also read-only mounts).
    pub no_atime: bool,
    /// Every change of a directory is made durable before the reply.
    pub dir_sync: bool,
    /// Decides who may what the kernel leaves to us.
    pub keeper: Keeper,
    /// What `quire umount` and others want to know.
    pub about: crate::control::About,
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

    fn has(&self, ino: Ino) -> bool {
        lock(&self.0).contains_key(&ino)
    }

    /// All of them.
    pub(crate) fn files(&self) -> Vec<Ino> {
        lock(&self.0).keys().copied().collect()
    }
}

/// How many requests there were of each kind.
pub(crate) type Requests = BTreeMap<String, u64>;

/// Makes the figures of a mount as JSON, given the requests.
pub(crate) type StatsFn = Box<dyn Fn(Requests) -> String + Send + Sync>;

/// A volume that answers requests.
pub(crate) struct Server {
    pub(crate) volume: Volume,
    pub(crate) manner: Manner,
    /// How many there were, by operation code; the last counts what has none of ours.
    requests: [AtomicU64; opcode::COUNT],
    agreed: AtomicU64,
    /// Files that are open for writing.
    pub(crate) writers: Openers,
    /// Files that are open at all.
    pub(crate) openers: Openers,
    pub(crate) refused: Refused,
    /// Requests that wait for the thaw, whole.
    parked: Mutex<Vec<Vec<u8>>>,
    closed: Mutex<Option<Result<(), quire_fs::Error>>>,
    /// Makes the figures of `stats`, given the requests.
    stats: StatsFn,
}

impl Server {
    /// `stats` makes the figures that `quire stats` shows, as JSON.
    #[must_use]
    pub(crate) fn new(volume: Volume, manner: Manner, stats: StatsFn) -> Self {
        Server {
            volume,
            manner,
            requests: [const { AtomicU64::new(0) }; opcode::COUNT],
            agreed: AtomicU64::new(0),
            writers: Openers::default(),
            openers: Openers::default(),
            refused: Refused::default(),
            parked: Mutex::default(),
            closed: Mutex::new(None),
            stats,
        }
    }

    /// The volume for a request's changes: on its user's account.
    pub(crate) fn acting(&self, h: &Header) -> Volume {
        self.volume.on_account_of(Cred { uid: h.uid, gid: h.gid })
    }

    /// Refuses a request whose caller lacks a capability (P1).
    pub(crate) fn demand(&self, h: &Header, capability: Capability) -> Result<(), Fail> {
        let caller = Caller { uid: h.uid, pid: h.pid };
        if self.manner.keeper.allows(caller, capability) { Ok(()) } else { Err(Fail::of(Errno::PERM)) }
    }

    /// Refuses a request whose caller neither owns the file nor may act as its owner.
    pub(crate) fn demand_owner(&self, h: &Header, ino: Ino) -> Result<(), Fail> {
        if h.uid == self.volume.getattr(ino)?.uid { Ok(()) } else { self.demand(h, Capability::Fowner) }
    }

    /// How long the kernel may believe these attributes.
    pub(crate) fn valid(&self, a: &Attr) -> Duration {
        let written = self.has(init::WRITEBACK_CACHE) && self.writers.has(a.ino);
        if written { VALID_WHILE_WRITTEN } else { VALID }
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

    pub(crate) fn stats(&self) -> String {
        let mut requests = Requests::new();
        for (op, n) in self.requests.iter().enumerate() {
            let n = n.load(Ordering::Relaxed);
            if n > 0 {
                *requests.entry(opcode::name(op).to_owned()).or_default() += n;
            }
        }
        (self.stats)(requests)
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

    /// The reply that gave this reference did not arrive.
    pub(crate) fn take_back(&self, ino: Ino) {
        self.forget(ino, 1);
    }

    /// The file of which the kernel must hand over its dirty pages before this request is answered: it looks for data,
    /// or sets flags that refuse data.
    pub(crate) fn needs_writeback(&self, h: &Header, request: &[u8]) -> Option<Ino> {
        let looks = h.opcode == opcode::LSEEK || h.opcode == opcode::IOCTL && ioctl_is(request, crate::ops::sets_flags);
        // Without a writer there are no dirty pages: a mapping keeps its file open.
        ino_of(h.node).ok().filter(|ino| looks && self.writers.has(*ino))
    }

    /// True if a change found no space, and space may become free without anybody doing something for it.
    pub(crate) fn may_get_space(&self, h: &Header, answer: &Result<Answer, Fail>) -> bool {
        let full = *answer == Err(Fail::of(Errno::NOSPC)) && ALWAYS_CHANGE.contains(&h.opcode);
        let may = full && self.volume.maintenance().unlinked().into_iter().any(|ino| !self.openers.has(ino));
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

    /// Admits a request to the volume, for as long as the guard lives. If the request would change a frozen volume, it
    /// is kept for the thaw instead. An unmounted volume admits it as well, and its calls are refused.
    pub(crate) fn admit(&self, h: &Header, request: &[u8]) -> Admission<'_> {
        if !changes(h, request) {
            return Admission::Now(None);
        }
        match self.volume.try_admit() {
            Ok(admitted) => return Admission::Now(Some(admitted)),
            Err(quire_fs::Error::Frozen) => {}
            Err(_) => return Admission::Now(None),
        }
        let mut parked = lock(&self.parked);
        // Asked again under the lock, under which the worker that thaws takes the kept requests.
        match self.volume.try_admit() {
            Ok(admitted) => Admission::Now(Some(admitted)),
            Err(quire_fs::Error::Frozen) => {
                parked.push(request.to_vec());
                Admission::AfterThaw
            }
            Err(_) => Admission::Now(None),
        }
    }

    /// The requests that were kept for the thaw, once it has come.
    pub(crate) fn unparked(&self) -> Vec<Vec<u8>> {
        let mut parked = lock(&self.parked);
        let waits = parked.is_empty() || matches!(self.volume.try_admit(), Err(quire_fs::Error::Frozen));
        if waits { Vec::new() } else { std::mem::take(&mut *parked) }
    }

    /// Answers a request: fills `out`, or returns the error to send.
    pub(crate) fn answer(&self, h: &Header, mut body: Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let kind = usize::try_from(h.opcode).unwrap_or(usize::MAX).min(opcode::COUNT - 1);
        self.requests[kind].fetch_add(1, Ordering::Relaxed);
        let b = &mut body;
        match h.opcode {
            opcode::LOOKUP => self.lookup(h, b, out),
            opcode::FORGET => self.forget_one(h, b),
            opcode::BATCH_FORGET => self.forget_many(b),
            opcode::GETATTR => self.getattr(h, b, out),
            opcode::STATX => self.statx(h, out),
            opcode::SETATTR => self.setattr(h, b, out),
            opcode::READLINK => self.readlink(h, out),
            opcode::SYMLINK => self.symlink(h, b, out),
            opcode::MKNOD => self.mknod(h, b, out),
            opcode::MKDIR => self.mkdir(h, b, out),
            opcode::CREATE => self.create(h, b, out),
            opcode::TMPFILE => self.tmpfile(h, b, out),
            opcode::UNLINK => self.unlink(h, b),
            opcode::RMDIR => self.rmdir(h, b),
            opcode::RENAME => self.rename(h, b, false),
            opcode::RENAME2 => self.rename(h, b, true),
            opcode::LINK => self.link(h, b, out),
            opcode::OPEN => self.open(h, b, out),
            opcode::READ => self.read(h, b, out),
            opcode::WRITE => self.write(h, b, out),
            opcode::FALLOCATE => self.fallocate(h, b),
            opcode::LSEEK => self.lseek(h, b, out),
            opcode::BMAP => self.bmap(h, b, out),
            opcode::COPY_FILE_RANGE => self.copy_file_range(h, b, out),
            opcode::FSYNC | opcode::FSYNCDIR => self.fsync(h, b),
            opcode::SYNCFS => self.syncfs(),
            opcode::STATFS => self.statfs(out),
            opcode::READDIR => self.readdir(h, b, out),
            opcode::READDIRPLUS => self.readdirplus(h, b, out),
            opcode::GETXATTR => self.getxattr(h, b, out),
            opcode::SETXATTR => self.setxattr(h, b),
            opcode::LISTXATTR => self.listxattr(h, b, out),
            opcode::REMOVEXATTR => self.removexattr(h, b),
            opcode::IOCTL => self.ioctl(h, b, out),
            opcode::RELEASE => self.release(h, b),
            opcode::RELEASEDIR => Ok(Answer::Reply),
            opcode::DESTROY => self.destroy(),
            opcode::INTERRUPT => Ok(Answer::None),
            // The kernel remembers this and does not ask again (OPENDIR, FLUSH, ...), or does it itself (locks).
            _ => Err(Fail::of(Errno::NOSYS)),
        }
    }

    /// The last request of a block device's mount: umount(2) waits for the answer, and then finds a clean image.
    fn destroy(&self) -> Result<Answer, Fail> {
        self.close()?;
        Ok(Answer::Reply)
    }
}

/// The inode of a node number.
pub(crate) fn ino_of(node: u64) -> Result<Ino, Fail> {
    match node {
        abi::ROOT_NODE => Ok(Ino::ROOT),
        n => u32::try_from(n).map(Ino).map_err(|_| Fail::of(Errno::STALE)),
    }
}

/// True for requests that may change the volume. FSYNC and SYNCFS are not among them: on a frozen volume they have
/// nothing to do.
fn changes(h: &Header, request: &[u8]) -> bool {
    match h.opcode {
        opcode::OPEN => truncates(request),
        opcode::IOCTL => ioctl_is(request, crate::ops::ioctl_changes),
        op => ALWAYS_CHANGE.contains(&op),
    }
}

const ALWAYS_CHANGE: [u32; 16] = [
    opcode::SETATTR,
    opcode::SYMLINK,
    opcode::MKNOD,
    opcode::MKDIR,
    opcode::CREATE,
    opcode::TMPFILE,
    opcode::UNLINK,
    opcode::RMDIR,
    opcode::RENAME,
    opcode::RENAME2,
    opcode::LINK,
    opcode::WRITE,
    opcode::FALLOCATE,
    opcode::COPY_FILE_RANGE,
    opcode::SETXATTR,
    opcode::REMOVEXATTR,
];

/// True for the flags of an OPEN that truncates.
fn truncates(request: &[u8]) -> bool {
    let mut body = Body::new(request);
    let flags = body.header().and_then(|_| body.u32());
    flags.is_ok_and(|f| OFlags::from_bits_retain(f).contains(OFlags::TRUNC))
}

/// True for an IOCTL whose command has a property.
fn ioctl_is(request: &[u8], property: impl FnOnce(u32) -> bool) -> bool {
    let mut body = Body::new(request);
    let command = body.header().and_then(|_| body.skip(12)).and_then(|()| body.u32());
    command.is_ok_and(property)
}
