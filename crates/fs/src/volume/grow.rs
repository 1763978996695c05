//! The growth of a volume in use.
//!
//! ```text
//! plan ─> device is long enough ─> for each step: new blocks in place, flush ─> transaction, commit, checkpoint ─> used
//!                               └> at the end: copies of superblock and descriptors
//! ```
//! *Guarantees*: what cannot be done is refused before anything changes. A crash leaves the file system of before or of
//! after some step, each of them whole (G1). New blocks are used when the superblock at home tells of them.

use super::maintenance::Maintenance;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::space::{self, GrowthStep, NewGroup};
use crate::tables::Pool;
use quire_device::sync::{Arc, lock};
use quire_device::{Buf, DeviceError, ErrorKind, Io, Region};
use quire_layout::superblock::{Growth, Superblock};
use quire_layout::{Tid, Unsupported};

/// Copies that one transaction renews.
const COPIES_AT_ONCE: usize = 32;

impl Maintenance<'_> {
    /// Makes the file system at most `bytes` large. An image file is extended, a disk must be large enough. A last
    /// group that would be too small is left out. Returns the bytes of the file system.
    ///
    /// # Errors
    /// Invalid: it would not grow. Unsupported: it cannot grow so far, or at all. Not permitted: it has errors. These
    /// have changed nothing. Read-only; corrupt; I/O: the file system may have grown by a part.
    pub fn grow(&self, bytes: u64) -> Result<u64> {
        let inner = &*self.volume.inner;
        let _pass = inner.enter()?;
        let engine = &*inner.engine;
        engine.write_gate.check()?;
        if engine.journal.is_held_here() {
            return Err(Error::Busy("a batch is open".into()));
        }
        let _growing = lock(&inner.growing);
        let before = engine.tables().sb.clone();
        let current = engine.run(crate::records::superblock)?;
        let bits = before.block_size().bits();
        let target = space::growth_target(&current, bytes >> bits, engine.journal.limit())?;
        let steps = space::growth_steps(&before, target, engine.context.has_lazy_groups())?;
        let end = target << bits;
        engine.journal.gate().device().grow(end).map_err(|e| too_short(e, end))?;
        for step in &steps {
            tracing::debug!(blocks = step.growth().blocks, "the file system grows");
            carry_out(engine, step)?;
        }
        renew_copies(engine, &before)?;
        tracing::info!(blocks = target, "the file system has grown");
        Ok(end)
    }
}

fn too_short(e: DeviceError, bytes: u64) -> Error {
    match e.kind {
        ErrorKind::OutOfRange => {
            Unsupported::new(format!("growing to {bytes} bytes on a device that is smaller and cannot be extended"))
                .into()
        }
        _ => e.into(),
    }
}

fn carry_out(engine: &Engine, step: &GrowthStep) -> Result<()> {
    match step {
        GrowthStep::Fill { group, growth } => {
            let (claim, tid) = engine.run_as(Pool::Root, |op| space::fill(op, *group, growth))?;
            bring_home(engine, tid)?;
            engine.run(|op| {
                space::filled(op, &claim);
                Ok(())
            })
        }
        GrowthStep::Add { groups, own, growth, first_index } => {
            write_new_blocks(engine, groups, growth)?;
            let (_, tid) = engine.run_as(Pool::Root, |op| space::add(op, groups, growth, *first_index))?;
            bring_home(engine, tid)?;
            engine.run(|op| space::added(op, groups, own, growth))
        }
    }
}

/// Makes a step durable, and the superblock at home tell of it.
fn bring_home(engine: &Engine, tid: Tid) -> Result<()> {
    engine.commit(tid)?;
    Ok(engine.journal.checkpoint_now()?)
}

/// Writes what new groups hold: behind the end of the file system, where no operation reads or writes.
fn write_new_blocks(engine: &Engine, groups: &[NewGroup], growth: &Growth) -> Result<()> {
    let (context, gate) = (&engine.context, engine.journal.gate());
    let bs = context.block_size();
    let before = engine.tables().sb.clone();
    let after = growth.of(&before)?;
    let mut blocks = space::new_blocks(&before, &after, groups);
    engine.run(|op| {
        space::put_new_descriptors(op, &after, groups, &mut blocks);
        Ok(())
    })?;
    let table = after.inode_table_blocks();
    let mut runs: Vec<_> = blocks.iter().map(|(b, _)| (*b, 1)).collect();
    let mut batch: Vec<Io> = blocks.into_iter().map(|(b, image)| write_of(bs.offset(b), image)).collect();
    if !context.has_lazy_groups() {
        for g in groups {
            let at = g.desc.inode_table();
            runs.push((at, table));
            let len = u64::from(table) << bs.bits();
            batch.push(Io::Zero { at: bs.offset(at), len, region: Region::Metadata });
        }
    }
    gate.device().run(batch)?;
    engine.journal.written_in_place(runs);
    Ok(gate.flush()?)
}

fn write_of(at: u64, image: Buf) -> Io {
    Io::Write { at, data: vec![Arc::new(image)], region: Region::Metadata, fua: false }
}

fn renew_copies(engine: &Engine, before: &Superblock) -> Result<()> {
    let after = engine.tables().sb.clone();
    let copies = space::backup_copies(before, &after);
    for some in copies.chunks(COPIES_AT_ONCE.min(engine.step_budget().max(1))) {
        engine.run(|op| space::renew(op, some))?;
    }
    engine.commit_all()?;
    Ok(())
}
