//! Finds the journal of a file system, replays it, and opens it for writing.
//!
//! *Guarantees*: nothing else of the image is used before the log has been replayed; `needs_recovery` is cleared only
//! when everything is home (R2). A log that the superblock says is not needed is emptied, as the kernel does, unless it
//! is one of Quire's (Q8).
//!
//! ```text
//! journal inode ─> its map ─> LogGeometry ─┐
//! s_journal_uuid ─> the other device ──────┴─> UnrecoveredLog ─> Plan ─> CleanLog ─> Log
//! ```

use super::assemble::read_only_engine;
use super::devices::Devices;
use super::superblock::{check_device, check_sectors};
use crate::config::Choices;
use crate::error::{Error, Result};
use crate::map;
use crate::records;
use quire_device::sync::Arc;
use quire_device::{Buf, Clock, FlushGate, Nvram};
pub(super) use quire_journal::Error as JournalError;
use quire_journal::geometry::LogGeometry;
use quire_journal::recover::{CleanLog, Plan, Progress, UnrecoveredLog, open_external};
use quire_journal::{Log, LogRun, NvramLayout, NvramLog};
use quire_layout::features::{compat, incompat};
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, Corrupt, FileBlock, Ino, LogBlock, Structure, Tid, Unsupported};

/// Most extents that a journal inode may have. A larger map belongs to no journal.
const MAX_RUNS: usize = 65_536;

/// The journal of a file system as it was found.
pub struct FoundJournal {
    pub log: UnrecoveredLog,
    /// The file system's superblock says that the log must be replayed.
    pub needed: bool,
}

/// What to do about a log that is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDamage {
    /// Write nothing: what is missing may be anything.
    Refuse,
    /// Replay what is whole, and mark the file system as having errors.
    Replay,
}

/// Finds the journal. `None`: the file system has none.
///
/// # Errors
/// Corrupt journal inode or superblock, a journal device that is missing or another's, unsupported features, I/O.
pub fn find_journal(devices: &Devices, clock: &Arc<dyn Clock>, sb: &Superblock) -> Result<Option<FoundJournal>> {
    let f = sb.features();
    if !f.has_compat(compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let geometry = match (&devices.journal, sb.journal_ino()) {
        (Some(device), Ino(0)) => {
            check_sectors(sb.block_size(), &**device)?;
            open_external(device.clone(), sb.block_size(), sb.journal_uuid())?
        }
        (_, ino) if ino != Ino(0) && sb.journal_dev() != 0 => {
            return Err(Corrupt::new(Structure::Superblock, "the journal has both an inode and a device").into());
        }
        (None, Ino(0)) => return Err(Error::Invalid("the journal is on a device of its own: name it (journal_path=)")),
        (Some(_), _) => return Err(Error::Invalid("the journal is inside the image: no journal_path= is needed")),
        (None, ino) => internal(devices, clock, sb, ino)?,
    };
    let log = UnrecoveredLog::open(geometry)?.with_home(devices.fs.clone());
    let log = log.with_nvram(devices.nvram.clone(), sb.uuid());
    let needed = f.has_incompat(incompat::RECOVER) || f.has_incompat(incompat::QUIRE_LOG);
    Ok(Some(FoundJournal { log, needed }))
}

/// The map of the journal's inode, read without its log: the inode itself is never in the log.
fn internal(devices: &Devices, clock: &Arc<dyn Clock>, sb: &Superblock, ino: Ino) -> Result<LogGeometry> {
    let engine = read_only_engine(devices.fs.clone(), clock.clone(), sb.clone());
    let extents = engine.run(|op| {
        let inode = records::inode(op, ino)?;
        if !inode.is_file() || inode.links() == 0 {
            return Err(Corrupt::new(Structure::JournalInode, "not a file in use").of(ino.0).into());
        }
        Ok((map::extents(op, ino, &inode, FileBlock(0), MAX_RUNS)?, inode.size() >> op.sb().block_size().bits()))
    })?;
    let (extents, size) = extents;
    let mut runs: Vec<LogRun> = Vec::with_capacity(extents.len());
    for mut e in extents {
        // What is behind the end of the file is not the journal's.
        let left = u32::try_from(size.saturating_sub(u64::from(e.at.0))).unwrap_or(u32::MAX);
        e.len = e.len.min(left);
        if e.len == 0 {
            break;
        }
        if e.unwritten {
            return Err(Corrupt::new(Structure::JournalInode, "the journal has unwritten blocks").of(ino.0).into());
        }
        runs.push(LogRun { log: LogBlock(e.at.0), home: e.phys, len: e.len });
    }
    Ok(LogGeometry::internal(devices.fs.clone(), sb.block_size(), runs)?)
}

/// A journal that was found and judged; nothing is written yet.
pub struct Pending {
    log: UnrecoveredLog,
    /// `None`: the superblock says that the log is not needed.
    plan: Option<Plan>,
}

impl Pending {
    /// Finds and judges the journal of a file system. `None`: it has none, or the device cannot be written and needs no
    /// recovery. A journal of an image with `mmp` is not replayed (O4).
    ///
    /// # Errors
    /// As [`find_journal`]; a damaged log that is not to be replayed, or an unsupported one; a device that cannot be
    /// written.
    pub fn find(
        devices: &Devices,
        clock: &Arc<dyn Clock>,
        sb: &Superblock,
        on_damage: OnDamage,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Self>> {
        check_device(sb, &*devices.fs)?;
        let Some(found) = find_journal(devices, clock, sb)? else { return Ok(None) };
        if sb.features().has_incompat(incompat::MMP) {
            // Another node may have the image mounted, and it needs recovery as long as it is. To find that out takes
            // writing, and waiting for what the other writes; Quire does neither.
            let what = "the replay of a journal with mmp: another node may use the image. e2fsck finds out; ro,noload \
                        reads it";
            return if found.needed { Err(Unsupported::new(what).into()) } else { Ok(None) };
        }
        if devices.fs.info().read_only && on_damage == OnDamage::Refuse {
            if !found.needed {
                return Ok(None); // Nothing in the log is needed.
            }
            let why = "the journal must be replayed, but the device cannot be written; ro,noload mounts it as it is";
            return Err(Error::ReadOnly(why.into()));
        }
        if !found.needed {
            check_marked(&found.log, sb)?;
            return Ok(Some(Pending { log: found.log, plan: None }));
        }
        let plan = scan(&found.log, sb, progress)?;
        if plan.is_damaged() && on_damage == OnDamage::Refuse {
            let why = "the log is damaged; `quire recover` replays what is whole, then run e2fsck";
            let damaged = Corrupt::new(Structure::JournalBlock, why);
            return Err(damaged.of(plan.bad.first().map_or(plan.head, |b| b.log).0).into());
        }
        plan.check_supported()?;
        Ok(Some(Pending { log: found.log, plan: Some(plan) }))
    }

    /// The log is not needed, but it is not empty, or it tells of an error: others could take what is in it for needed.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.plan.is_none() && !(self.log.is_clean() && self.log.superblock().errno() == 0)
    }

    /// What a replay will do. `None`: the log is not needed.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    pub(super) fn writes_home(&self) -> bool {
        self.plan.as_ref().is_some_and(|p| !p.images().is_empty())
    }

    /// The content that the replay will give a block. `None`: the replay leaves the block as it is.
    pub(super) fn image_of(&self, b: BlockNo) -> Result<Option<Buf>, JournalError> {
        let Some(plan) = &self.plan else { return Ok(None) };
        plan.image_of(b).map(|p| self.log.image(plan, p)).transpose()
    }

    /// Replays the journal, or empties it, and clears the flags in the file system's superblock.
    ///
    /// # Errors
    /// I/O; unsupported.
    pub fn carry_out(self, devices: &Devices, progress: &mut dyn FnMut(Progress)) -> Result<CleanLog> {
        let mut clean = match self.plan {
            Some(plan) => self.log.replay(plan, &devices.fs, None, progress)?,
            None => self.log.discard(progress)?,
        };
        clean.finish(&devices.fs)?;
        if !clean.damage().is_none() {
            tracing::error!(damage = ?clean.damage(), "the journal was damaged: run a file-system check");
        }
        Ok(clean)
    }
}

/// Replays the journal, if there is one that needs it, and clears the flags in the file system's superblock. `None`:
/// there is no journal.
///
/// # Errors
/// As [`Pending::find`]; I/O.
pub fn recover(
    devices: &Devices,
    clock: &Arc<dyn Clock>,
    sb: &Superblock,
    on_damage: OnDamage,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<CleanLog>> {
    let pending = Pending::find(devices, clock, sb, on_damage, progress)?;
    pending.map(|p| p.carry_out(devices, progress)).transpose()
}

/// What a replay of the log would do.
///
/// # Errors
/// As [`UnrecoveredLog::scan`].
pub fn scan(log: &UnrecoveredLog, sb: &Superblock, progress: &mut dyn FnMut(Progress)) -> Result<Plan> {
    check_marked(log, sb)?;
    Ok(log.scan(log.home_blocks(), progress)?)
}

/// A log of Quire's is used only if the file system's superblock has the feature bit (Q8). Without it, others may have
/// written to the image since.
fn check_marked(log: &UnrecoveredLog, sb: &Superblock) -> Result<()> {
    if log.is_quire() && !sb.features().has_incompat(incompat::QUIRE_LOG) {
        let why = "the journal holds a log of Quire's, but the file system's superblock lacks its feature bit";
        return Err(Corrupt::new(Structure::Superblock, why).into());
    }
    Ok(())
}

/// Opens a recovered log for writing.
///
/// # Errors
/// The log is too small.
pub(super) fn open_log(clean: CleanLog, gate: &Arc<FlushGate>, sb: &Superblock) -> Result<Log> {
    let external = clean.geometry().is_external();
    // Filled here once, the holes of a sparse image do not cost a commit of the host's file system each.
    let (geometry, bs) = (clean.geometry(), sb.block_size());
    for run in geometry.map().pieces(LogBlock(0), geometry.len()) {
        geometry.device().preallocate(bs.offset(run.home), u64::from(run.len) << bs.bits())?;
    }
    let log_gate = if external { Arc::new(FlushGate::new(clean.geometry().device().clone())) } else { gate.clone() };
    let (mut log, _) = clean.into_log(log_gate, sb.features().has_incompat(incompat::BIT64))?;
    if sb.features().has_compat(compat::FAST_COMMIT) {
        log.spare_fast_commits();
    }
    Ok(log)
}

/// Whether [`open_log`] and [`put_in_nvram`] will find what they need when the journal has been replayed. Writes
/// nothing (O3).
///
/// # Errors
/// As those two.
pub(super) fn check_log(pending: Option<&Pending>, devices: &Devices, sb: &Superblock, choices: Choices) -> Result<()> {
    if let Some(pending) = pending {
        pending.log.check_len()?;
    }
    let Some((memory, layout)) = memory_for(pending.is_some(), devices, sb, choices)? else { return Ok(()) };
    let replayed = pending.and_then(|p| p.log.needs_nvram());
    Ok(NvramLog::check_fit(&**memory, sb.uuid(), layout, replayed)?)
}

/// Puts a log that is opened for writing, if there is one, into the memory that was named for it.
///
/// # Errors
/// Unsupported: the file system has no journal. Invalid: no memory was named, it is too small, or it holds another log
/// that is needed.
pub(super) fn put_in_nvram(log: Option<&mut Log>, devices: &Devices, sb: &Superblock, choices: Choices) -> Result<()> {
    let memory = memory_for(log.is_some(), devices, sb, choices)?;
    if let (Some(log), Some((memory, layout))) = (log, memory) {
        log.set_nvram(NvramLog::take(memory.clone(), sb.uuid(), layout)?);
    }
    Ok(())
}

/// The memory that the log is put into, and how it is laid out there. `None`: the log is not in NVRAM.
fn memory_for<'d>(
    has_log: bool,
    devices: &'d Devices,
    sb: &Superblock,
    choices: Choices,
) -> Result<Option<(&'d Arc<dyn Nvram>, NvramLayout)>> {
    let Some(layout) = NvramLayout::of(choices.of_log(), sb.block_size()) else { return Ok(None) };
    if !has_log {
        return Err(Unsupported::new("a journal in NVRAM for a file system without has_journal").into());
    }
    let memory = devices.nvram.as_ref();
    let memory = memory.ok_or(Error::Invalid("commit_mode=nvram needs a memory: name it with nvram=PATH"))?;
    Ok(Some((memory, layout)))
}

/// Gives up a log in NVRAM that is lost, when the user has decided so. The file system is marked as having errors,
/// since the blocks at home are of different ages. Returns the first transaction that is given up. `None`: the journal
/// is not in NVRAM.
///
/// # Errors
/// As [`find_journal`]; I/O.
pub fn discard_nvram(devices: &Devices, clock: &Arc<dyn Clock>, sb: &Superblock) -> Result<Option<Tid>> {
    let Some(found) = find_journal(devices, clock, sb)?.filter(|f| f.log.needs_nvram().is_some()) else {
        return Ok(None);
    };
    let first = found.log.superblock().sequence();
    found.log.abandon_nvram()?.finish(&devices.fs)?;
    Ok(Some(first))
}
