//! The second pass: what a replay would write, from what the scan found.

use super::images::Made;
use super::load::load_all;
use super::plan::{BadBlock, Plan, Planned};
use super::runs::{Chain, FoundRuns};
use super::scan::Found;
use super::unrecovered::UnrecoveredLog;
use crate::error::Error;
use crate::geometry::LogWindow;
use crate::policy::{IMAGES_AT_ONCE, REPLAYED_AT_ONCE};
use quire_layout::jbd2::Revokes;
use quire_layout::{BlockNo, Corrupt, LogBlock, Structure, Tid};
use std::collections::BTreeMap;

/// Makes the plan of what the scan found: the revoke pass. The window may hold blocks of the log already.
pub(super) fn plan_of_blocks(
    log: &UnrecoveredLog,
    found: Found,
    mut window: LogWindow<'_>,
    home_blocks: u64,
) -> Result<Plan, Error> {
    let mut plan = Plan {
        logged: u64::try_from(found.images.len() + found.bad.len()).expect("bounded by the log"),
        images: last_of_each(found.images),
        bad: found.bad,
        start: found.start,
        end: found.end,
        head: found.head,
        transactions: found.transactions,
        revokes: 0,
        revoked: 0,
        failed_commit: found.failed_commit,
        fast_commits: found.fast_commits,
        log_blocks: log.superblock.end().0 - log.superblock.first().0,
        last_used: found.last_used,
        chains: BTreeMap::new(),
        ready: None,
        nvram_end: None,
    };
    plan.bad.sort_by_key(|b| b.home);
    apply_revokes(log, &found.revokes, &mut window, &mut plan)?;
    plan.revoked = plan.images.iter().filter(|p| p.revoked).count().try_into().expect("bounded by the log");
    plan.images.retain(|p| !p.revoked);
    plan.bad.retain(|b| !b.revoked);
    plan.images.iter().try_for_each(|p| check_home(log, p.home, p.log, home_blocks))?;
    if plan.images.len() <= REPLAYED_AT_ONCE >> log.format.block_size.bits() {
        // What cannot be read fails the replay, and not a look at the log.
        plan.ready = load_all(&mut window, &plan.images).ok();
    }
    Ok(plan)
}

fn check_home(log: &UnrecoveredLog, home: BlockNo, at: LogBlock, home_blocks: u64) -> Result<(), Error> {
    let why = if home.0 >= home_blocks {
        "the home of an image is outside the device"
    } else if log.geometry.contains(home) {
        "the home of an image is in the log"
    } else {
        return Ok(());
    };
    Err(log.geometry.locate_error(Corrupt::new(Structure::JournalBlock, why), at).into())
}

/// Makes the plan of what the scan of a log of Quire's found: every image is made once and judged (Q7, R3).
/// The window may hold blocks of the log already.
pub(super) fn plan_of_runs(
    log: &UnrecoveredLog,
    found: FoundRuns,
    mut window: LogWindow<'_>,
    home_blocks: u64,
) -> Result<Plan, Error> {
    let mut plan = Plan {
        logged: found.logged,
        start: found.start,
        end: found.end,
        head: found.head,
        transactions: found.transactions,
        revokes: found.revokes,
        revoked: found.revoked,
        failed_commit: found.failed,
        log_blocks: log.superblock.end().0 - log.superblock.first().0,
        last_used: found.last_used,
        ready: Some(Vec::new()),
        nvram_end: found.nvram_end,
        ..Plan::empty(found.start)
    };
    let last = |chain: &Chain| *chain.last().expect("never empty");
    for (b, chain) in &found.chains {
        check_home(log, *b, last(chain).run.start, home_blocks)?;
    }
    let home = log.home_device();
    let all: Vec<(BlockNo, &Chain)> = found.chains.iter().map(|(b, c)| (*b, c)).collect();
    let per_batch = IMAGES_AT_ONCE >> log.format.block_size.bits();
    let mut written = Vec::new();
    for batch in all.chunks(per_batch) {
        let made = log.make_images(&home, batch, &found.bodies, &mut window)?;
        for ((b, chain), made) in batch.iter().zip(made) {
            let (at, tid) = (last(chain).run.start, last(chain).run.tid);
            match made {
                Made::Image(image) => {
                    written.push(*b);
                    plan.images.push(Planned { home: *b, log: at, tid, escaped: false, revoked: false });
                    if let Some(ready) = plan.ready.as_mut() {
                        ready.push((*b, image));
                    }
                }
                Made::AtHome => {}
                Made::Bad(why) => plan.bad.push(BadBlock { home: *b, log: at, tid, why, revoked: false }),
            }
        }
        if all.len() > per_batch {
            plan.ready = None;
        }
    }
    let mut chains = found.chains;
    chains.retain(|b, _| written.binary_search(b).is_ok());
    plan.chains = chains;
    Ok(plan)
}

/// R8: keeps the last image of each home block; sorted by home.
fn last_of_each(mut images: Vec<Planned>) -> Vec<Planned> {
    // Stable: of one home block, the log's order stays.
    images.sort_by_key(|p| p.home);
    // `dedup` keeps the first of each: look from the other end.
    images.reverse();
    images.dedup_by_key(|p| p.home);
    images.reverse();
    images.shrink_to_fit();
    images
}

/// R7: an image is revoked by a record of its own or of a later transaction. Only the last image of a block matters:
/// what revokes it revokes the earlier ones.
fn apply_revokes(
    log: &UnrecoveredLog,
    revokes: &[(LogBlock, Tid)],
    window: &mut LogWindow<'_>,
    plan: &mut Plan,
) -> Result<(), Error> {
    for &(at, tid) in revokes {
        let block = window.block(at)?;
        let records = Revokes::new(&log.format, block).map_err(|e| log.geometry.locate_error(e, at))?;
        for home in records {
            plan.revokes += 1;
            if let Ok(i) = plan.images.binary_search_by_key(&home, |p| p.home) {
                plan.images[i].revoked |= tid.at_or_after(plan.images[i].tid);
            }
            let from = plan.bad.partition_point(|b| b.home < home);
            for b in plan.bad[from..].iter_mut().take_while(|b| b.home == home) {
                b.revoked |= tid.at_or_after(b.tid);
            }
        }
    }
    Ok(())
}
