//! The parts of an engine put together: for a mount, and for a look at an image without its journal.

use crate::config::{Options, Route};
use crate::engine::Engine;
use crate::error::Result;
use crate::map;
use crate::names::evict;
use crate::policy::CacheShares;
use crate::records;
use crate::tables::{SHARED, SpaceTable};
use crate::txn::{Context, WriteGate};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Clock, FlushGate};
use quire_journal::{BatchTime, Journal, JournalConfig, Log};
use quire_layout::features::compat;
use quire_layout::superblock::Superblock;
use quire_layout::{Corrupt, FileBlock, Ino, Structure};

/// Extents of a journal that are kept from files. Real journals have a handful.
const MAX_JOURNAL_RUNS: usize = 1 << 16;

/// An engine on a device. `read_only`: why nothing may be written.
pub(super) fn engine(
    gate: Arc<FlushGate>,
    sb: Superblock,
    clock: Arc<dyn Clock>,
    options: Options,
    log: Option<Log>,
    read_only: Option<String>,
) -> Engine {
    let shares = CacheShares::new(options.cache_bytes, sb.block_size().bytes());
    let config = JournalConfig::new(sb.block_size(), clock.clone(), shares.image_bytes());
    let batch_time = if options.without.gathering { BatchTime::NONE } else { options.batch_time };
    let config = JournalConfig { choices: options.choices().of_log(), batch_time, ..config };
    let journal = match log {
        Some(log) if options.route != Route::None => Journal::with_log(gate, log, config),
        _ => Journal::without_log(gate, config),
    };
    let context = Context::new(sb, options, journal.has_log());
    Engine::new(context, journal, clock, WriteGate::new(read_only), evict::free_pending)
}

/// An engine that reads an image as it is, without its journal.
pub(super) fn read_only_engine(fs: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>, sb: Superblock) -> Engine {
    let options = Options { read_only: true, no_load: true, ..Options::default() };
    engine(Arc::new(FlushGate::new(fs)), sb, clock, options, None, Some("opened to be read".into()))
}

/// Reads the descriptors of all groups into the space table, and where the journal lies: before any other operation,
/// and after recovery.
///
/// # Errors
/// A descriptor or the journal's map is corrupt, or cannot be read.
pub(super) fn load_space(engine: &Engine) -> Result<()> {
    let sb = &engine.context.sb;
    let mut space = SpaceTable::load(sb, |groups| engine.run(|op| records::read_groups(op, groups)))?;
    let journal = sb.journal_ino();
    if sb.features().has_compat(compat::HAS_JOURNAL) && journal != Ino(0) {
        let runs = engine.run(|op| {
            let inode = records::inode(op, journal)?;
            map::extents(op, journal, &inode, FileBlock(0), MAX_JOURNAL_RUNS)
        })?;
        let shared = |b| Corrupt::new(Structure::JournalInode, SHARED).of(journal.0).at(b);
        space.protect(runs.iter().map(|e| (e.phys, e.len))).map_err(shared)?;
    }
    engine.tables().space = space;
    Ok(())
}
