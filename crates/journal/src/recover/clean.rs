//! A log that holds nothing: what the engine may write into, and how the file system learns that it was recovered.

use super::plan::BadBlock;
use super::undo::{SavedFrom, Undo};
use super::unrecovered::UnrecoveredLog;
use crate::error::Error;
use crate::geometry::LogGeometry;
use crate::log::Log;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, FlushGate, Io, Region};
use quire_layout::features::incompat;
use quire_layout::jbd2::{JournalSuperblock, LogFormat};
use quire_layout::superblock::{OFFSET, SIZE, Superblock, state};
use quire_layout::{BlockNo, BlockSize, Tid};

/// What could not be recovered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// Images that were skipped.
    pub bad: Vec<BadBlock>,
    /// The transaction at which the log broke off.
    pub failed_commit: Option<Tid>,
}

impl Damage {
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.bad.is_empty() && self.failed_commit.is_none()
    }
}

/// `s_errno` for a log that was damaged: EUCLEAN.
const DAMAGED: i32 = -117;

/// A journal whose log is empty, durably.
#[derive(Debug)]
pub struct CleanLog {
    geometry: LogGeometry,
    superblock: JournalSuperblock,
    block: Buf,
    format: LogFormat,
    next: Tid,
    damage: Damage,
}

impl CleanLog {
    pub(super) fn new(log: UnrecoveredLog, next: Tid, damage: Damage) -> Self {
        let UnrecoveredLog { geometry, superblock, block, format, .. } = log;
        CleanLog { geometry, superblock, block, format, next, damage }
    }

    #[must_use]
    pub fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    #[must_use]
    pub fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    #[must_use]
    pub fn format(&self) -> &LogFormat {
        &self.format
    }

    /// The number of the next transaction; no block in the log has it, nor a later one.
    #[must_use]
    pub fn next_tid(&self) -> Tid {
        self.next
    }

    /// What recovery could not recover.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The error that stopped this journal some time ago, or 0. The file system's superblock has to take it over
    /// ([`CleanLog::finish`]).
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.superblock.errno()
    }

    /// Changes the journal's superblock, seals, writes and flushes it.
    ///
    /// # Errors
    /// Device. Unsupported: features that this version cannot read were set.
    pub fn update(&mut self, change: impl FnOnce(&mut JournalSuperblock)) -> Result<(), Error> {
        change(&mut self.superblock);
        self.superblock.seal();
        self.format = self.superblock.log_format()?;
        write_superblock(&self.geometry, &self.superblock, &mut self.block)
    }

    /// Makes it the log that the engine writes, and gives the number of its first transaction. `gate` flushes the
    /// log's device; `wide` says that block numbers may need more than 32 bits. Call [`CleanLog::finish`] before.
    ///
    /// # Errors
    /// The log is too small to work with.
    pub fn into_log(self, gate: Arc<FlushGate>, wide: bool) -> Result<(Log, Tid), Error> {
        let (map, at, bs) = (self.geometry.map().clone(), self.geometry.superblock(), self.geometry.block_size());
        Ok((Log::open(gate, map, at, &self.block, bs, wide)?, self.next))
    }

    /// Tells the file system's superblock that it was recovered: clears `needs_recovery` (and Quire's bit), takes over
    /// the journal's error and the damage, flushes, and only then clears the error in the journal. A superblock torn
    /// between its sectors is mended. Returns it as it is now.
    ///
    /// # Errors
    /// Device; corrupt: the superblock, even taken as torn.
    pub fn finish(&mut self, home: &Arc<dyn BlockDevice>) -> Result<Superblock, Error> {
        let (at, offset) = superblock_place(self.geometry.block_size());
        let start = self.geometry.block_size().offset(at);
        let mut block = home.read(start, self.geometry.block_size().bytes(), Region::Superblock)?;
        let (mut sb, torn) = Superblock::decode_torn(&block[offset..offset + SIZE]).map_err(|e| e.at(at))?;
        let before = sb.clone();
        mark_recovered(&mut sb, self.errno(), &self.damage);
        if sb != before || torn {
            // Only flags may change, or a tear between them and the checksum could not be mended (R5).
            sb.seal();
            block[offset..offset + SIZE].copy_from_slice(sb.bytes());
            home.write(start, Arc::new(block), Region::Superblock)?;
            home.run(vec![Io::Flush])?;
        }
        if self.errno() != 0 {
            self.update(|j| j.set_errno(0))?;
        }
        Ok(sb)
    }
}

/// Clears `needs_recovery` and what says that the log is Quire's, and records what recovery found: an error that
/// stopped the journal, or damage, means that the file system has errors; missing images mean that it is not valid
/// either. The caller seals.
pub fn mark_recovered(sb: &mut Superblock, errno: i32, damage: &Damage) {
    let mut f = sb.features();
    f.incompat &= !(incompat::RECOVER | incompat::QUIRE_LOG);
    sb.set_features(f);
    if errno != 0 || !damage.is_none() {
        sb.set_state(sb.state() | state::ERROR);
    }
    if !damage.bad.is_empty() {
        sb.set_state(sb.state() & !state::VALID);
    }
}

/// The block that holds the file system's superblock, and the byte offset in it.
#[must_use]
pub fn superblock_place(bs: BlockSize) -> (BlockNo, usize) {
    let offset = usize::try_from(OFFSET).expect("1024");
    if bs == BlockSize::K1 { (BlockNo(1), 0) } else { (BlockNo(0), offset) }
}

impl UnrecoveredLog {
    /// Takes an empty log as it is.
    ///
    /// # Errors
    /// Gives the log back if it is not empty.
    pub fn into_clean(self) -> Result<CleanLog, Box<UnrecoveredLog>> {
        if !self.is_clean() {
            return Err(Box::new(self));
        }
        // As the kernel: the number on an empty log counts as used.
        let next = self.superblock.sequence().next();
        Ok(CleanLog::new(self, next, Damage::default()))
    }

    /// Writes the number of the next transaction into the superblock of a log whose transactions are in NVRAM; the
    /// flush that makes the homes durable makes it so, before the tail there moves (V7).
    pub(super) fn expect_next(&mut self, next: Tid, undo: &mut Option<&mut dyn Undo>) -> Result<(), Error> {
        if undo.is_some() {
            let why = "undoing the recovery of a log in NVRAM: its transactions are given up there";
            return Err(quire_layout::Unsupported::new(why).into());
        }
        self.superblock.set_sequence(next);
        self.superblock.seal();
        write_superblock(&self.geometry, &self.superblock, &mut self.block)
    }
}

/// R2, R11: marks the log empty, durably. The caller has made every home block durable.
pub(super) fn empty_log(
    mut log: UnrecoveredLog,
    next: Tid,
    damage: Damage,
    undo: &mut Option<&mut dyn Undo>,
) -> Result<CleanLog, Error> {
    if let Some(undo) = undo {
        let from = if log.geometry.is_external() { SavedFrom::Log } else { SavedFrom::Home };
        let at = log.geometry.locate(log.geometry.superblock()).expect("it was read");
        undo.save(from, &[(at, log.block.clone())])?;
    }
    log.superblock.set_start(None);
    log.superblock.set_sequence(next);
    // In the same sector: an empty log is jbd2's. The file system's superblock learns it later (Q8).
    if log.superblock.version() > 1 {
        log.superblock.set_quire(None);
    }
    if !damage.is_none() && log.superblock.errno() == 0 {
        // Survives a crash before the file system's superblock has it.
        log.superblock.set_errno(DAMAGED);
    }
    log.superblock.seal();
    write_superblock(&log.geometry, &log.superblock, &mut log.block)?;
    Ok(CleanLog::new(log, next, damage))
}

fn write_superblock(geometry: &LogGeometry, sb: &JournalSuperblock, block: &mut Buf) -> Result<(), Error> {
    block[..sb.bytes().len()].copy_from_slice(sb.bytes());
    let at = geometry.locate(geometry.superblock()).expect("it was read");
    let at = geometry.block_size().offset(at);
    geometry.device().write(at, Arc::new(block.clone()), Region::LogSuperblock)?;
    geometry.device().run(vec![Io::Flush])?;
    Ok(())
}
