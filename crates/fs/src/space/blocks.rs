//! Taking and freeing blocks.
//!
//! A search examines the goal, then the goal's group, then further groups that may hold a run as long as wanted, by
//! their hints, and only then looks for less. It reads a bounded number of bitmaps for the sake of length, and never
//! the bitmap of a group that is known to be full.
//!
//! Small files go behind the last allocation in their inode's group. A large file ([`Goal::long`]) that cannot go on
//! where it ends goes behind the last such run of all, round and round the image, as in the kernel's stream allocation.
//! So files that are written together lie together, and the space of a deleted file is not filled again before its
//! neighbours had the time to be deleted, too.

use super::free_space::{ensure, no_space};
use super::group;
use crate::error::Result;
use crate::policy::{GROUPS_TO_EXAMINE, MIN_RUN_AT_GOAL};
use crate::records;
use crate::tables::{Pool, Run, SpaceTable};
use crate::txn::Op;
use quire_layout::bitmap::{Free, FreeRun};
use quire_layout::group_desc::flags;
use quire_layout::{BlockNo, Corrupt, GroupNo, Structure};
use std::collections::BTreeSet;

/// Where a run should start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Goal {
    pub at: BlockNo,
    /// The file is large: if the run cannot start there, it goes with other long runs.
    pub long: bool,
}

impl From<BlockNo> for Goal {
    fn from(at: BlockNo) -> Self {
        Goal { at, long: false }
    }
}

/// What is asked of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub goal: Goal,
    /// Blocks wanted, at least one. The allocator may give fewer.
    pub want: u32,
    pub pool: Pool,
    /// Only blocks before this one: indirect maps have 32-bit pointers.
    pub below: BlockNo,
}

impl Request {
    #[must_use]
    pub(crate) fn new(goal: impl Into<Goal>, want: u32, pool: Pool) -> Self {
        Request { goal: goal.into(), want, pool, below: BlockNo(u64::MAX) }
    }
}

/// Takes a run of free blocks near `goal`, as long as possible, at most `want`.
///
/// # Errors
/// No space (or none yet); corrupt bitmaps; miss.
pub(crate) fn alloc_blocks(op: &mut Op<'_>, goal: BlockNo, want: u32, pool: Pool) -> Result<Run> {
    alloc_with(op, &Request::new(goal, want, pool))
}

/// As [`alloc_blocks`].
///
/// # Errors
/// As [`alloc_blocks`].
pub(crate) fn alloc_with(op: &mut Op<'_>, r: &Request) -> Result<Run> {
    let run = find(op, r)?;
    let (g, _) = op.tables().space.group_of(run.start);
    group::flip(op, g, run, true)?;
    op.deferred.space.available -= i64::from(run.len);
    follow(op, r, run);
    Ok(run)
}

/// Frees blocks that a file owned. They become available when this operation's transaction is durable (A2).
///
/// # Errors
/// Corrupt, if one of them is not a file's or is free already (A4).
pub(crate) fn free_blocks(op: &mut Op<'_>, start: BlockNo, len: u32) -> Result<()> {
    if !op.tables().space.zones().legal(start, u64::from(len)) {
        let why = "a file owns blocks of the file system itself, or outside of it";
        return Err(Corrupt::new(Structure::BlockMap, why).into());
    }
    let per = op.sb().blocks_per_group();
    let (mut at, mut left) = (start, len);
    while left > 0 {
        let (g, bit) = op.tables().space.group_of(at);
        let run = Run::new(at, left.min(per - bit));
        group::flip(op, g, run, false)?;
        op.deferred.space.freed.push(run);
        op.forget(run.start, run.len);
        at = run.end();
        left -= run.len;
    }
    Ok(())
}

/// Misses the descriptors and bitmaps of the groups in which these blocks lie, all at once where it can. What lies
/// outside of the file system counts for nothing.
///
/// # Errors
/// Miss; corrupt.
pub(crate) fn want_bitmaps(op: &mut Op<'_>, runs: &[Run]) -> Result<()> {
    let (mut groups, mut bitmaps) = (BTreeSet::new(), Vec::new());
    for run in runs.iter().filter(|run| run.len > 0) {
        let space = &op.tables().space;
        if space.zones().legal(run.start, u64::from(run.len)) {
            let [first, last] = [run.start, run.start.plus(u64::from(run.len) - 1)].map(|b| space.group_of(b).0);
            groups.extend((first.0..=last.0).map(GroupNo));
        }
    }
    for g in groups {
        let d = records::group(op, g)?;
        if !group::is_uninit(op, &d, flags::BLOCK_UNINIT) {
            bitmaps.push(d.block_bitmap());
        }
    }
    op.want(bitmaps)
}

/// Finds a run without taking it. Of an image that can only be read the bitmaps may have another form (bigalloc).
pub(super) fn find(op: &mut Op<'_>, r: &Request) -> Result<Run> {
    op.check_writable()?;
    let room = ensure(op, 1, r.pool)?;
    let want = u64::from(r.want.max(1)).min(room).min(u64::from(op.sb().blocks_per_group()));
    let want = u32::try_from(want).expect("no more than a group");
    match search(op, r, want)? {
        Some(run) => Ok(run),
        None => Err(no_space(op)),
    }
}

/// The end of the last long run that was placed apart from its file's end, or of the run that followed it there.
fn stream(op: &Op<'_>) -> Option<BlockNo> {
    op.deferred.space.stream.or(op.tables().space.stream)
}

/// The best start of a file: near this group, or behind the last long run.
pub(crate) fn start(op: &Op<'_>, near: GroupNo, long: bool) -> BlockNo {
    stream(op).filter(|_| long).unwrap_or_else(|| next_in(op, near))
}

/// Has the next long run go behind this one, if this one is long and lies apart from its file's end, or if it
/// follows the last long run.
pub(super) fn follow(op: &mut Op<'_>, r: &Request, run: Run) {
    let stream = stream(op);
    if stream == Some(r.goal.at) || r.goal.long && (stream.is_none() || run.start != r.goal.at) {
        op.deferred.space.stream = Some(run.end());
    }
}

/// The end of the last allocation in a group, so that small files lie in the order in which they are written.
fn next_in(op: &Op<'_>, g: GroupNo) -> BlockNo {
    let pending = op.deferred.space.groups.get(&g).and_then(|d| d.next);
    let hint = op.tables().space.groups.get(usize::try_from(g.0).expect("small")).map_or(0, |h| h.next);
    op.sb().group_start(g).plus(u64::from(pending.unwrap_or(hint)))
}

/// The longest run that a group may hold, by its hint; 0 where nothing may be taken (A9).
fn longest(table: &SpaceTable, op: &Op<'_>, g: GroupNo) -> u32 {
    if !table.trusts_blocks(g) {
        return 0;
    }
    let hint = table.groups[usize::try_from(g.0).expect("small")];
    op.deferred.space.groups.get(&g).and_then(|d| d.longest).unwrap_or(hint.longest)
}

fn search(op: &mut Op<'_>, r: &Request, want: u32) -> Result<Option<Run>> {
    let sb = op.sb();
    let last = r.below.0.min(sb.blocks_count()) - 1;
    let place = |op: &Op<'_>, b: BlockNo| op.tables().space.group_of(BlockNo(b.0.clamp(sb.first_data_block().0, last)));
    let (mut g0, mut at) = place(op, r.goal.at);
    let groups = op.tables().space.group_of(BlockNo(last)).0.0 + 1;
    let run_of = |g: GroupNo, f: FreeRun| Run::new(sb.group_start(g).plus(u64::from(f.start)), f.len.min(want));
    if longest(&op.tables().space, op, g0) > 0 {
        let near = group::with_free(op, g0, r.below, |free| {
            free.next_run(at).filter(|f| f.start == at && f.len >= want.min(MIN_RUN_AT_GOAL))
        })?;
        if let Some(f) = near {
            return Ok(Some(run_of(g0, f)));
        }
    }
    // A search behind the last long run comes back to the start of that group at its end.
    let stream = stream(op).filter(|_| r.goal.long);
    if let Some(end) = stream {
        (g0, at) = place(op, end);
    }
    let mut target = want;
    let mut looked = 0;
    while target > 0 {
        let mut best: Option<Run> = None;
        for n in 0..groups + u32::from(stream.is_some()) {
            let g = GroupNo((g0.0 + n) % groups);
            if longest(&op.tables().space, op, g) < target {
                continue;
            }
            let (from, behind) = if n == 0 { (at, stream.is_some()) } else { (0, false) };
            let find = |free: Free<'_>| if behind { free.find_behind(from, target) } else { free.find(from, target) };
            let found = group::with_free(op, g, r.below, find)?;
            if found.is_none_or(|f| f.len < target) && !behind && r.below.0 >= sb.blocks_count() {
                op.deferred.space.group(g).longest = Some(found.map_or(0, |f| f.len));
            }
            let Some(run) = found.map(|f| run_of(g, f)) else { continue };
            if run.len >= target {
                return Ok(Some(run));
            }
            if best.is_none_or(|b| b.len < run.len) {
                best = Some(run);
            }
            looked += 1;
            if looked >= GROUPS_TO_EXAMINE {
                break;
            }
        }
        if best.is_some() {
            return Ok(best);
        }
        // No group has so long a run: ask for the longest that one may have.
        let most = (0..groups).map(|g| longest(&op.tables().space, op, GroupNo(g))).max().unwrap_or(0);
        target = most.min(target - 1);
    }
    Ok(None)
}
