//! From a volume in use to a clean image, and back.
//!
//! *Guarantees* L1, O2 (docs/invariants.md): [`write_clean`] is the only function that marks an image clean. It needs
//! two proofs: no call is under way ([`Quiescent`]), and everything is at home and durable, the log is empty, and no
//! commit is written while the proof lasts ([`EmptyLog`]).

use super::superblock::{clear_incompat, mark_in_use, read_superblock, write_superblock};
use crate::engine::Engine;
use crate::engine::lifecycle::Quiescent;
use crate::error::Result;
use crate::records;
use quire_device::Mutant;
use quire_journal::EmptyLog;
use quire_layout::features::{compat, incompat, ro_compat};
use quire_layout::superblock::state;

/// Commits, writes home, empties the log, and marks the superblock clean. `was_valid`: the image was marked clean when
/// it was mounted, so without a log it may be marked so again.
pub(super) fn mark_clean(engine: &Engine, was_valid: bool, quiescent: &Quiescent<'_>) -> Result<()> {
    put_totals(engine)?;
    let (journal, gate) = (&engine.journal, engine.journal.gate());
    if Mutant::RecoverClearedEarly.is_on() {
        clear_incompat(gate, incompat::RECOVER)?;
    }
    if Mutant::QuireBitClearedEarly.is_on() {
        clear_incompat(gate, incompat::QUIRE_LOG)?;
    }
    write_clean(engine, was_valid, quiescent, &journal.empty_log()?)
}

/// Marks the superblock at home clean. The log has no newer one now.
fn write_clean(engine: &Engine, was_valid: bool, _: &Quiescent<'_>, _: &EmptyLog<'_>) -> Result<()> {
    let (journal, gate) = (&engine.journal, engine.journal.gate());
    let mut sb = read_superblock(&**gate.device())?;
    let mut f = sb.features();
    f.incompat &= !(incompat::RECOVER | incompat::QUIRE_LOG);
    // A freeze keeps files that are unlinked but open.
    if f.has_compat(compat::ORPHAN_FILE) && engine.tables().orphans.file_is_empty() {
        f.ro_compat &= !ro_compat::ORPHAN_PRESENT;
    }
    sb.set_features(f);
    if !journal.has_log() && was_valid {
        sb.set_state(sb.state() | state::VALID);
    }
    write_superblock(gate, &mut sb)
}

/// Marks a clean image as in use again.
pub(super) fn mark_used(engine: &Engine, _: &Quiescent<'_>) -> Result<()> {
    let gate = engine.journal.gate();
    let mut sb = read_superblock(&**gate.device())?;
    let log = if engine.journal.has_log() { engine.context.options.choices().log().unwrap_or(None) } else { None };
    mark_in_use(&mut sb, log);
    write_superblock(gate, &mut sb)?;
    superblock_written(engine);
    Ok(())
}

/// The superblock at home was written and is durable: the image in memory is older (Q3).
pub(super) fn superblock_written(engine: &Engine) {
    engine.journal.written_in_place([(engine.context.superblock_at().0, 1)]);
}

/// Puts the counts that are kept only in memory into the superblock, with the last transaction.
fn put_totals(engine: &Engine) -> Result<()> {
    engine.run(|op| {
        let mut sb = records::superblock(op)?;
        sb.set_write_time(u64::try_from(op.now().secs).unwrap_or(0));
        op.tables().space.put_totals(&mut sb);
        *records::superblock_mut(op)? = sb;
        Ok(())
    })
}
