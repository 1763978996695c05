//! What an image will be after its journal is replayed, looked at before anything is written.
//!
//! *Guarantees* O3 (docs/invariants.md): a mount that is refused has not changed the image. What a mount needs (the
//! superblock, the descriptors, the journal's map, the root directory, the record of orphans) is read through
//! [`AsMounted`], which shows each block as the replay will leave it, and a torn superblock as the mount mends it.

use super::assemble;
use super::devices::Devices;
use super::recovery::{self, Pending};
use super::superblock::{check_device, read_superblock};
use crate::dir;
use crate::error::{Error, Result};
use crate::inode::check_usable;
use crate::map::{self, Mapping};
use crate::names::{self, Orphans};
use crate::records;
use crate::txn::Op;
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, Buf, Clock, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, Region, Ticket};
use quire_layout::features::Access;
use quire_layout::superblock::{OFFSET, Superblock};
use quire_layout::{BlockNo, BlockSize, Corrupt, FileBlock, Ino, Structure, inline_data};
use std::collections::HashMap;

/// A device as its mount will find it. It is only read.
struct AsMounted {
    home: Arc<dyn BlockDevice>,
    bs: BlockSize,
    /// What is to be replayed.
    pending: Option<Arc<Pending>>,
    /// The superblock as it was read, without a tear between its sectors.
    superblock: Superblock,
    done: Mutex<Outcomes>,
}

/// Outcomes of batches that nobody has waited for yet.
#[derive(Default)]
struct Outcomes {
    next: u64,
    ready: HashMap<u64, Result<Done, DeviceError>>,
}

impl AsMounted {
    fn fill(&self, at: u64, mut buf: Buf, region: Region) -> Result<Buf, DeviceError> {
        let end = at + buf.len() as u64;
        self.home.read_into(at, &mut buf, region)?;
        overlay(&mut buf, at, self.superblock.bytes(), OFFSET);
        for b in at >> self.bs.bits()..end.div_ceil(self.bs.bytes64()) {
            let failed = |e: recovery::JournalError| match e {
                recovery::JournalError::Device(e) => e,
                _ => DeviceError { op: IoOp::Read, at, len: end - at, kind: ErrorKind::Io, errno: 0 },
            };
            let image = self.pending.as_ref().map_or(Ok(None), |p| p.image_of(BlockNo(b)).map_err(failed))?;
            if let Some(image) = image {
                overlay(&mut buf, at, &image, b << self.bs.bits());
            }
        }
        Ok(buf)
    }
}

/// Puts bytes that belong at `place` of the device into a buffer of what lies at `at`, as far as they are part of it.
fn overlay(buf: &mut [u8], at: u64, bytes: &[u8], place: u64) {
    let (from, to) = (place.max(at), (place + bytes.len() as u64).min(at + buf.len() as u64));
    if from < to {
        let index = |n: u64| usize::try_from(n).expect("inside the buffer");
        buf[index(from - at)..index(to - at)].copy_from_slice(&bytes[index(from - place)..index(to - place)]);
    }
}

impl BlockDevice for AsMounted {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { read_only: true, ..self.home.info() }
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let mut reads = Vec::new();
        let mut outcome = Ok(());
        for io in batch {
            let ((at, len), op) = (io.range(), io.op());
            let one = match io {
                Io::Read { at, buf, region } => self.fill(at, buf, region).map(|buf| reads.push(buf)),
                Io::Flush => Ok(()),
                _ => Err(DeviceError { op, at, len, kind: ErrorKind::ReadOnly, errno: 0 }),
            };
            outcome = outcome.and(one);
        }
        let mut done = lock(&self.done);
        done.next += 1;
        let ticket = done.next;
        done.ready.insert(ticket, outcome.map(|()| Done { reads }));
        Ticket(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        lock(&self.done).ready.remove(&ticket.0).expect("each batch is waited for once")
    }
}

/// What a mount will find.
pub struct Outlook {
    /// Why Quire will not write to the image, if there is a reason in its features.
    pub(super) only_read: Option<String>,
    /// The error: why their record cannot be used.
    pub(super) orphans: Result<Orphans>,
}

impl Outlook {
    /// Why Quire only reads the image, if it does: the features that it does not write, or a record of orphans that is
    /// corrupt or cannot be read.
    #[must_use]
    pub fn why_read_only(&self) -> Option<String> {
        self.only_read.clone().or_else(|| self.orphans.as_ref().err().map(ToString::to_string))
    }
}

/// Looks at what the image will be when `pending` is replayed. Writes nothing.
///
/// # Errors
/// Corrupt or unsupported: a mount would be refused. I/O.
pub fn look(
    devices: &Devices,
    pending: Option<&Arc<Pending>>,
    clock: &Arc<dyn Clock>,
    before: &Superblock,
) -> Result<Outlook> {
    let (home, bs, superblock) = (devices.fs.clone(), before.block_size(), before.clone());
    let replayed = pending.filter(|p| p.writes_home()).cloned();
    let is_replayed = replayed.is_some();
    let view: Arc<dyn BlockDevice> =
        Arc::new(AsMounted { home, bs, pending: replayed, superblock, done: Mutex::default() });
    let sb = superblock_after(&*view, before)?;
    if is_replayed {
        let after = Devices { fs: view.clone(), ..devices.clone() };
        if let Err(Error::Corrupt(_)) = recovery::find_journal(&after, clock, &sb) {
            let why = "the replay of the journal would make the journal itself unusable";
            return Err(Corrupt::new(Structure::JournalInode, why).of(sb.journal_ino().0).into());
        }
    }
    let only_read = only_read(&sb)?;
    let engine = assemble::read_only_engine(view, clock.clone(), sb);
    assemble::load_space(&engine)?;
    engine.run(check_root)?;
    let orphans = match names::find_orphans(&engine) {
        Err(e) if !e.is_damage() => return Err(e),
        found => found,
    };
    Ok(Outlook { only_read, orphans })
}

/// The superblock after recovery, which may have replaced it. It must belong to the same file system.
///
/// # Errors
/// Corrupt; unsupported; I/O.
pub(super) fn superblock_after(device: &dyn BlockDevice, before: &Superblock) -> Result<Superblock> {
    let sb = read_superblock(device)?;
    let same = |sb: &Superblock| (sb.block_size(), sb.inode_size(), sb.journal_ino(), sb.first_data_block());
    if same(&sb) != same(before) {
        return Err(Corrupt::new(Structure::Superblock, "the journal held another file system's").into());
    }
    check_device(&sb, device)?;
    Ok(sb)
}

/// Why the image's features allow no writes, if they do not.
pub(super) fn only_read(sb: &Superblock) -> Result<Option<String>> {
    Ok(match sb.features().access()? {
        Access::ReadOnly(names) => {
            let plural = if names.len() == 1 { "" } else { "s" };
            Some(format!("Quire only reads the image's feature{plural} {}", names.join(", ")))
        }
        Access::ReadWrite => None,
    })
}

/// Refuses an image whose root directory cannot be used: nothing in it could be reached, not even to unmount it.
fn check_root(op: &mut Op<'_>) -> Result<()> {
    let bad = |why| Corrupt::new(Structure::Inode, why).of(Ino::ROOT.0);
    let root = records::inode(op, Ino::ROOT)?;
    if !root.is_dir() || root.links() == 0 {
        return Err(bad("the root directory is no directory").into());
    }
    check_usable(op, Ino::ROOT, &root)?;
    if inline_data::is_inline(&root) {
        // Its records are read as a whole.
        return dir::lookup(op, Ino::ROOT, &root, b"..").map(drop);
    }
    if root.size() == 0 {
        return Err(bad("the root directory is empty").into());
    }
    match map::lookup(op, Ino::ROOT, &root, FileBlock(0), 1)? {
        Mapping::Mapped { unwritten: false, .. } => Ok(()),
        _ => Err(bad("the root directory has no first block").into()),
    }
}
