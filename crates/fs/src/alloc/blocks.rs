//! Taking and freeing blocks.
//!
//! A search looks at the goal, then through the goal's group, then at further groups that may hold a run as long as
//! wanted, by hint; only then for less. It reads a bounded number of bitmaps for the sake of length, and never
//! one of a group that is known to be full.
//!
//! Small files go behind the last one of their inode's groups; what is long ([`Goal::long`]) and cannot go on where its file ends goes behind
//! the last such run of all, round and round the image, as in the kernel's stream allocation: what is written together lies together, and
//! what a deleted file leaves is not filled again before its neighbours had the time to go, too.

use super::state::AllocState;
use super::{Pool, Run, group, shortage};
use crate::error::{Error, Result};
use crate::op::Op;
use quire_layout::bitmap::{Free, FreeRun};
use quire_layout::{BlockNo, Corrupt, GroupNo, Structure};

/// Groups that are looked into for a run as long as wanted, once a shorter one is known.
const LOOK: u32 = 8;
/// A run at the goal itself is taken if it has at least so many blocks, though a longer one may lie elsewhere.
const AT_GOAL: u32 = 16;

/// Where a run should start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    pub at: BlockNo,
    /// It is of a large file: if it cannot start there, it goes with other long ones.
    pub long: bool,
}

impl From<BlockNo> for Goal {
    fn from(at: BlockNo) -> Self {
        Goal { at, long: false }
    }
}

/// What is asked of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub goal: Goal,
    /// Blocks wanted, at least one; less may be given.
    pub want: u32,
    pub pool: Pool,
    /// Only blocks before this one: indirect maps have 32-bit pointers.
    pub below: BlockNo,
}

impl Request {
    #[must_use]
    pub fn new(goal: impl Into<Goal>, want: u32, pool: Pool) -> Self {
        Request { goal: goal.into(), want, pool, below: BlockNo(u64::MAX) }
    }
}

/// Takes a run of free blocks near `goal`: as long as can be had, at most `want`.
///
/// # Errors
/// No space (or none yet); corrupt bitmaps; miss.
pub fn alloc_blocks(op: &mut Op<'_>, goal: BlockNo, want: u32, pool: Pool) -> Result<Run> {
    alloc_with(op, &Request::new(goal, want, pool))
}

/// As [`alloc_blocks`].
///
/// # Errors
/// As [`alloc_blocks`].
pub fn alloc_with(op: &mut Op<'_>, r: &Request) -> Result<Run> {
    let run = find(op, r)?;
    let (g, _) = op.state().alloc.group_of(run.start);
    group::flip(op, g, run, true)?;
    op.deferred.alloc.available -= i64::from(run.len);
    follow(op, r, run);
    Ok(run)
}

/// Frees blocks that a file owned. They become available when this operation's transaction is durable (A2).
///
/// # Errors
/// Corrupt, if one of them is not a file's or is free already (A4).
pub fn free_blocks(op: &mut Op<'_>, start: BlockNo, len: u32) -> Result<()> {
    if !op.state().alloc.zones().legal(start, u64::from(len)) {
        let why = "a file owns blocks of the file system itself, or outside of it";
        return Err(Corrupt::new(Structure::BlockBitmap, why).at(start).into());
    }
    let per = op.sb().blocks_per_group();
    let (mut at, mut left) = (start, len);
    while left > 0 {
        let (g, bit) = op.state().alloc.group_of(at);
        let run = Run::new(at, left.min(per - bit));
        group::flip(op, g, run, false)?;
        op.deferred.alloc.freed.push(run);
        op.forget(run.start, run.len);
        at = run.end();
        left -= run.len;
    }
    Ok(())
}

/// Finds a run without taking it.
pub(super) fn find(op: &mut Op<'_>, r: &Request) -> Result<Run> {
    let room = ensure(op, 1, r.pool)?;
    let want = u64::from(r.want.max(1)).min(room).min(u64::from(op.sb().blocks_per_group()));
    let want = u32::try_from(want).expect("no more than a group");
    match search(op, r, want)? {
        Some(run) => Ok(run),
        None => Err(no_space(op)),
    }
}

/// Makes sure that `blocks` may be taken from a pool; returns how many could be.
pub(super) fn ensure(op: &mut Op<'_>, blocks: u64, pool: Pool) -> Result<u64> {
    if pool != Pool::Reserved && shortage::strikes() {
        return Err(Error::NoSpace);
    }
    let room = room(op, pool);
    if room >= blocks { Ok(room) } else { Err(no_space(op)) }
}

fn no_space(op: &Op<'_>) -> Error {
    op.state().alloc.newest_freed().map_or(Error::NoSpace, Error::NoSpaceYet)
}

/// Where the last long run ended that did not go on where its file ended, or what went on behind it.
fn stream(op: &Op<'_>) -> Option<BlockNo> {
    op.deferred.alloc.stream.or(op.state().alloc.stream)
}

/// Where a file had best start: near this group, or behind the last long run.
pub(crate) fn start(op: &Op<'_>, near: GroupNo, long: bool) -> BlockNo {
    stream(op).filter(|_| long).unwrap_or_else(|| next_in(op, near))
}

/// The next long run goes behind this one, if it is long and not where its file ended, or where the last one did.
pub(super) fn follow(op: &mut Op<'_>, r: &Request, run: Run) {
    let stream = stream(op);
    if stream == Some(r.goal.at) || r.goal.long && (stream.is_none() || run.start != r.goal.at) {
        op.deferred.alloc.stream = Some(run.end());
    }
}

/// Where the last allocation in a group ended: small files that are written one after the other lie so, too.
fn next_in(op: &Op<'_>, g: GroupNo) -> BlockNo {
    let pending = op.deferred.alloc.groups.get(&g).and_then(|d| d.next);
    let hint = op.state().alloc.groups.get(usize::try_from(g.0).expect("small")).map_or(0, |h| h.next);
    op.sb().group_start(g).plus(u64::from(pending.unwrap_or(hint)))
}

/// Free blocks that are neither claimed nor freed too recently, as this operation leaves them.
pub(crate) fn available(op: &Op<'_>) -> u64 {
    op.state().alloc.available().saturating_add_signed(op.deferred.alloc.available)
}

/// Blocks that may be taken from a pool now.
fn room(op: &Op<'_>, pool: Pool) -> u64 {
    let (state, delta) = (&op.state().alloc, &op.deferred.alloc);
    let reserved = state.reserved().saturating_add_signed(delta.reserved);
    let (root, metadata) = state.reserves();
    let keep = match pool {
        Pool::User => reserved.saturating_add(root).saturating_add(metadata),
        Pool::Root => reserved.saturating_add(metadata),
        Pool::Reserved => 0,
    };
    available(op).saturating_sub(keep)
}

/// The longest run that a group may hold, as far as is known.
fn longest(state: &AllocState, op: &Op<'_>, g: GroupNo) -> u32 {
    let hint = state.groups[usize::try_from(g.0).expect("small")];
    op.deferred.alloc.groups.get(&g).and_then(|d| d.longest).unwrap_or(hint.longest)
}

fn search(op: &mut Op<'_>, r: &Request, want: u32) -> Result<Option<Run>> {
    let sb = op.sb();
    let last = r.below.0.min(sb.blocks_count()) - 1;
    let place = |op: &Op<'_>, b: BlockNo| op.state().alloc.group_of(BlockNo(b.0.clamp(sb.first_data_block().0, last)));
    let (mut g0, mut at) = place(op, r.goal.at);
    let groups = op.state().alloc.group_of(BlockNo(last)).0.0 + 1;
    let run_of = |g: GroupNo, f: FreeRun| Run::new(sb.group_start(g).plus(u64::from(f.start)), f.len.min(want));
    if longest(&op.state().alloc, op, g0) > 0 {
        let near = group::with_free(op, g0, r.below, |free| {
            free.next_run(at).filter(|f| f.start == at && f.len >= want.min(AT_GOAL))
        })?;
        if let Some(f) = near {
            return Ok(Some(run_of(g0, f)));
        }
    }
    // What goes behind the last long run comes back to the start of that group only at the end.
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
            if longest(&op.state().alloc, op, g) < target {
                continue;
            }
            let (from, behind) = if n == 0 { (at, stream.is_some()) } else { (0, false) };
            let find = |free: Free<'_>| if behind { free.find_behind(from, target) } else { free.find(from, target) };
            let found = group::with_free(op, g, r.below, find)?;
            if found.is_none_or(|f| f.len < target) && !behind && r.below.0 >= sb.blocks_count() {
                op.deferred.alloc.group(g).longest = Some(found.map_or(0, |f| f.len));
            }
            let Some(run) = found.map(|f| run_of(g, f)) else { continue };
            if run.len >= target {
                return Ok(Some(run));
            }
            if best.is_none_or(|b| b.len < run.len) {
                best = Some(run);
            }
            looked += 1;
            if looked >= LOOK {
                break;
            }
        }
        if best.is_some() {
            return Ok(best);
        }
        // Nobody has so much: ask for what somebody may have.
        let most = (0..groups).map(|g| longest(&op.state().alloc, op, GroupNo(g))).max().unwrap_or(0);
        target = most.min(target - 1);
    }
    Ok(None)
}
