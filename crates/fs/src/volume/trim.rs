//! FITRIM: discards free blocks.
//!
//! ```text
//! operation: claims free runs ──> discards them (I/O, no lock) ──> operation: gives them back
//! ```
//! *Guarantees*: only blocks that are free, unclaimed, and whose freeing is durable are discarded (A2), and no caller
//! gets one meanwhile. A step claims part of the space that may be taken, so that a concurrent write does not see a
//! full disk, and nothing of what is reserved (A5).

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::space::{Claim, trim_done, trim_next};
use crate::tables::Run;
use quire_layout::BlockNo;

/// Discards free space; see `Maintenance::trim`.
pub(super) fn trim(engine: &Engine, start: u64, len: u64, min: u64) -> Result<u64> {
    engine.write_gate.check()?;
    let sb = engine.tables().sb.clone();
    let bs = sb.block_size();
    let per_group = u64::from(sb.blocks_per_group());
    if start >> bs.bits() >= sb.blocks_count() || len < bs.bytes64() || bs.blocks_for(min) > per_group {
        return Err(Error::Invalid("trim outside the file system"));
    }
    if !engine.journal.gate().device().info().discards {
        return Err(Error::NotSupported("the device cannot discard"));
    }
    let range = BlockNo(bs.blocks_for(start))..BlockNo(start.saturating_add(len) >> bs.bits());
    let min = u32::try_from(bs.blocks_for(min)).expect("no more than a group");
    let (mut at, mut bytes) = (Some(range.start), 0);
    while let Some(from) = at {
        let step = engine.run(|op| trim_next(op, from, &range, min))?;
        let runs: Vec<Run> = step.claims.iter().map(Claim::run).collect();
        let discarded = engine.discard(&runs);
        engine.run(|op| {
            trim_done(op, &step.claims);
            Ok(())
        })?;
        bytes += discarded?;
        at = step.next;
    }
    Ok(bytes)
}

/// The background step of mounts with `discard`. Returns true if something was discarded.
pub(super) fn discard_step(engine: &Engine) -> bool {
    if !engine.context.runtime().discard {
        return false;
    }
    engine.discard_freed_or_warn() > 0
}
