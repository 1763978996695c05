//! What a crash may leave. The definition, then the checker.
//!
//! A run is a list of calls 0..n; `S(k)` is the model's state after k of them. The power goes while call `n` runs (or
//! after it). Promises are made by calls that returned before: a *floor* is the least k that they allow.
//!
//! - **Names and attributes** (everything but the data and sizes of files, and times that no call has set) are those of
//!   one `S(k)`, `floor <= k <= n + 1`. The floor: `sync` promises all that was done before it; `fsync` of a file or
//!   directory, and a synchronous write, promise all that was done *to that inode* before, and since names are a
//!   prefix, everything before that.
//! - **Data, route `journal`**: every file is exactly as in that `S(k)`.
//! - **Data, routes `overwrite` and `auto`**: every file is exactly as in some `S(j)`, `f <= j <= n + 1`, with `f` as
//!   below: each write whole or absent, whatever it overwrites and whatever it adds.
//! - **Data, route `adaptive`**: a file all of whose changes from S(f) to S(n + 1) were journaled is as in `S(k)`;
//!   others as with `ordered`.
//! - **Data, route `selective`**: as with `ordered`, and a block that no write has ever covered whole, so that all its
//!   sequences are journaled, is as in one such `S(j)`.
//! - **Data, any route**: a file that nothing but atomic updates and truncates has ever changed is as in some `S(j)`,
//!   `f <= j <= n + 1`.
//! - **Data, routes `ordered` and `writeback`**: a file of `S(k)` has a floor of its own, `f`: the newest of its last
//!   fsync (or sync) and its last rename, link, truncate, collapse or insertion among the first k calls, which do not
//!   overtake the data before them. Its size is that of some `S(j)`, `f <= j <= n + 1`, and each of its sectors is that
//!   of some such `S(j)`, where a sector past the end counts as zeros. So no stale bytes, and nothing of another file
//!   (every write has bytes of its own). `writeback` promises the size only.
//! - The tree is whole: link counts are the number of names, and e2fsck finds nothing.

use crate::model::{History, Kind, NodeId, Outcome, ROOT, State};
use crate::observe::{Observed, ObservedKind, Path};
use crate::ops::{PAGE, SimOp};
use crate::run::Route;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes of a block of the images that `selective` is explored on.
const BLOCK: usize = 1024;
/// Unit of in-place writes that a tear leaves whole, in bytes.
const SECTOR: usize = 512;

/// What the calls that returned before the crash have promised.
#[derive(Clone, Debug, Default)]
pub struct Floors {
    /// Names and attributes are at least those after so many calls.
    pub names: usize,
    /// For each file, its data is at least that after so many calls.
    pub data: BTreeMap<NodeId, usize>,
    /// Files that have told that data was lost: of them each byte is of some version since the last sync that
    /// succeeded, and no more. (What was written over a part of a sector has met what the disk still held; what was
    /// lost before a truncate or a rename is lost, although data is else as new as these.)
    pub lossy: BTreeSet<NodeId>,
    /// Files of whose data nothing is known: a write to them failed.
    pub unknown: BTreeSet<NodeId>,
}

/// The promises of the first `returned` calls.
#[must_use]
pub fn floors(ops: &[SimOp], h: &History, returned: usize) -> Floors {
    let mut f = Floors::default();
    let mut touched: BTreeMap<NodeId, usize> = BTreeMap::new();
    for (i, op) in ops.iter().enumerate().take(returned) {
        touched.extend(h.changed[i].iter().map(|id| (*id, i + 1)));
        let Outcome::Done(about) = h.outcomes[i] else { continue };
        match (op, about) {
            (SimOp::Sync | SimOp::Freeze | SimOp::Remount, _) => {
                f.names = i + 1;
                f.data = h.states[i + 1].nodes.keys().map(|id| (*id, i + 1)).collect();
            }
            // Size and data, not attributes: names may be older, if the file had one then.
            (SimOp::Fdatasync(_), Some(id)) => {
                f.data.insert(id, i + 1);
            }
            (
                SimOp::Fsync(_)
                | SimOp::FsyncDir(_)
                | SimOp::Write { sync: true, .. }
                | SimOp::Append { sync: true, .. },
                Some(id),
            ) => {
                f.names = f.names.max(touched.get(&id).copied().unwrap_or(0));
                f.data.insert(id, i + 1);
            }
            _ => {}
        }
    }
    f
}

/// Every path of a state, with its node.
pub(crate) fn paths(s: &State) -> Vec<(Path, NodeId)> {
    let mut out = vec![(Vec::new(), ROOT)];
    for (name, id) in s.entries(ROOT) {
        out.push((name.clone(), *id));
        if let Kind::Dir(inner) = &s.nodes[id].kind {
            out.extend(inner.iter().map(|(n, id)| ([name.as_slice(), b"/", n].concat(), *id)));
        }
    }
    out
}

/// The names and attributes of a state, or why the observed tree has others.
pub(crate) fn names_match(s: &State, seen: &Observed) -> Result<BTreeMap<NodeId, Path>, String> {
    let want = paths(s);
    if want.len() != seen.nodes.len() {
        return Err(format!("{} names instead of {}", seen.nodes.len(), want.len()));
    }
    let (mut inos, mut first) = (BTreeMap::new(), BTreeMap::new());
    for (path, id) in want {
        let shown = String::from_utf8_lossy(&path).into_owned();
        let Some(o) = seen.nodes.get(&path) else { return Err(format!("{shown} is missing")) };
        let n = &s.nodes[&id];
        let kind = match (&n.kind, &o.kind) {
            (Kind::File(_), ObservedKind::File(_)) | (Kind::Dir(_), ObservedKind::Dir) => true,
            (Kind::Fifo, ObservedKind::Fifo) => true,
            (Kind::Symlink(t), ObservedKind::Symlink(u)) => t == u,
            _ => false,
        };
        if !kind {
            return Err(format!("{shown} is {:?}", o.kind));
        }
        // A directory's links are its name, its `.`, and the `..` of those in it; the root has `lost+found`, and maybe
        // a writer's.
        let links = match n.kind {
            Kind::Dir(_) if id == ROOT => o.links as usize,
            Kind::Dir(_) => 2,
            _ => s.links(id),
        };
        if id != ROOT && (o.uid, o.gid) != (n.uid, n.gid) || n.mtime.is_some_and(|t| t != o.mtime) {
            return Err(format!("{shown} is of {}:{}, changed at {:?}", o.uid, o.gid, o.mtime));
        }
        if o.mode != n.mode && id != ROOT || o.xattrs != n.xattrs || o.links as usize != links {
            return Err(format!("{shown} has mode {:o}, {} links, {} attributes", o.mode, o.links, o.xattrs.len()));
        }
        if *inos.entry(id).or_insert(o.ino) != o.ino {
            return Err(format!("{shown} is not the same inode as its other names"));
        }
        first.entry(id).or_insert(path);
    }
    Ok(first)
}

fn data_of(s: &State, id: NodeId) -> Option<&[u8]> {
    match &s.nodes.get(&id)?.kind {
        Kind::File(d) => Some(d),
        _ => None,
    }
}

/// The floor of a file's data under names `k`: what renames, links and truncates of it do not overtake. A rename that
/// takes a name away from it is not one of them.
fn data_floor(ops: &[SimOp], h: &History, promised: &Floors, id: NodeId, k: usize) -> usize {
    let moved = |i: &usize| {
        matches!(
            ops[*i],
            SimOp::Rename(..)
                | SimOp::Exchange(..)
                | SimOp::Link(..)
                | SimOp::Truncate(..)
                | SimOp::JournalData(..)
                | SimOp::Collapse { .. }
                | SimOp::Insert { .. }
        ) && h.outcomes[*i] == Outcome::Done(Some(id))
    };
    let last_move = (0..k).rev().find(moved).unwrap_or(0);
    synced_floor(promised, id).max(last_move)
}

/// The floor that syncs have promised.
fn synced_floor(promised: &Floors, id: NodeId) -> usize {
    promised.data.get(&id).copied().unwrap_or(0)
}

/// True if one of these calls has moved bytes of a file to other offsets.
fn shifted(ops: &[SimOp], h: &History, calls: Range<usize>, id: NodeId) -> bool {
    let shifts = |i: usize| matches!(ops[i], SimOp::Collapse { .. } | SimOp::Insert { .. });
    calls.into_iter().any(|i| shifts(i) && h.outcomes[i] == Outcome::Done(Some(id)))
}

fn sector(d: &[u8], n: usize) -> [u8; SECTOR] {
    let mut out = [0; SECTOR];
    if let Some(rest) = d.get(n * SECTOR..) {
        let len = rest.len().min(SECTOR);
        out[..len].copy_from_slice(&rest[..len]);
    }
    out
}

/// True if the file's last change was journaled in each of these states.
fn always_journaled(states: &[State], id: NodeId) -> bool {
    states.iter().filter_map(|s| s.nodes.get(&id)).all(|n| n.journaled)
}

/// True if nothing but atomic updates, and truncates, has given a file its data.
fn only_updates(ops: &[SimOp], h: &History, started: usize, id: NodeId) -> bool {
    let mut of_file = ops.iter().zip(&h.outcomes).take(started).filter(|(_, o)| **o == Outcome::Done(Some(id)));
    of_file.all(|(op, _)| {
        let in_place = matches!(
            op,
            SimOp::Write { .. }
                | SimOp::Append { .. }
                | SimOp::Copy { .. }
                | SimOp::MapWrite { .. }
                | SimOp::Punch { .. }
                | SimOp::Allocate { .. }
                | SimOp::Reserve { .. }
                | SimOp::Zero { .. }
                | SimOp::Collapse { .. }
                | SimOp::Insert { .. }
                | SimOp::Unnamed { .. }
        );
        !in_place
    })
}

/// The blocks of a file that one of the first `started` calls has written whole; all of them where blocks have moved.
fn written_whole(ops: &[SimOp], h: &History, started: usize, id: NodeId) -> BTreeSet<usize> {
    let of_file = (ops.iter().zip(&h.outcomes)).take(started).filter(|(_, o)| **o == Outcome::Done(Some(id)));
    let writes = of_file.filter_map(|(op, _)| match op {
        SimOp::Write { offset, len, .. } | SimOp::Copy { offset, len, .. } => {
            Some((*offset as usize, (*offset + *len) as usize))
        }
        SimOp::Unnamed { len, .. } => Some((0, *len as usize)),
        SimOp::Collapse { .. } | SimOp::Insert { .. } => Some((0, 1 << 20)),
        // A mapped page is written whole.
        SimOp::MapWrite { page, .. } => Some(((*page * PAGE) as usize, ((*page + 1) * PAGE) as usize)),
        _ => None,
    });
    writes.flat_map(|(from, to)| from.div_ceil(BLOCK)..to / BLOCK).collect()
}

/// True if each block, but for those, is that of one version.
fn blocks_match(seen: &[u8], versions: &[&[u8]], but: &BTreeSet<usize>) -> Result<(), String> {
    for (n, got) in seen.chunks(BLOCK).enumerate().filter(|(n, _)| !but.contains(n)) {
        let there = |v: &&[u8]| (0..got.len()).all(|i| v.get(n * BLOCK + i).copied().unwrap_or(0) == got[i]);
        if !versions.iter().any(there) {
            return Err(format!("block {n} is torn"));
        }
    }
    Ok(())
}

/// How bytes differ from the version that is most like them.
fn torn(got: &[u8], versions: &[&[u8]]) -> String {
    let differ = |v: &&[u8]| (0..got.len().max(v.len())).filter(|i| got.get(*i) != v.get(*i)).count();
    let nearest = versions.iter().min_by_key(|v| differ(v));
    let Some(v) = nearest else { return "it was never there".into() };
    let first = (0..got.len().max(v.len())).find(|i| got.get(*i) != v.get(*i)).unwrap_or(0);
    format!(
        "{} bytes differ from the nearest, the first at {first}; {} bytes instead of {}",
        differ(v),
        got.len(),
        v.len()
    )
}

/// True if each byte is that of one of the versions.
fn bytes_match(seen: &[u8], versions: &[&[u8]]) -> Result<(), String> {
    let there = |at: usize| versions.iter().any(|v| v.get(at).copied().unwrap_or(0) == seen[at]);
    match (0..seen.len()).find(|at| !there(*at)) {
        Some(at) => Err(format!("byte {at} is {}, of no version", seen[at])),
        None => Ok(()),
    }
}

/// True if each sector of `seen` is that of one of the versions.
fn sectors_match(seen: &[u8], versions: &[&[u8]]) -> Result<(), String> {
    for n in 0..seen.len().div_ceil(SECTOR) {
        let mut got = sector(seen, n);
        let end = (seen.len() - n * SECTOR).min(SECTOR);
        let ok = versions.iter().any(|v| {
            let mut want = sector(v, n);
            want[end..].fill(0);
            got[end..].fill(0);
            want == got
        });
        if !ok {
            return Err(format!("bytes {}.. are {:?}.., of no version", n * SECTOR, &got[..8]));
        }
    }
    Ok(())
}

/// The newest state above the floors that is like what was seen: its names are those after at most `newest` calls, its
/// data may be of any of the calls that had started.
///
/// # Errors
/// Why none is.
pub fn first_legal(
    route: Route,
    ops: &[SimOp],
    h: &History,
    promised: &Floors,
    (newest, started): (usize, usize),
    seen: &Observed,
) -> Result<usize, String> {
    let mut why = String::new();
    for k in (promised.names..=newest).rev() {
        let files = match names_match(&h.states[k], seen) {
            Ok(files) => files,
            Err(e) => {
                why += &format!("\n  names of S({k}): {e}");
                continue;
            }
        };
        match data_matches(route, ops, h, promised, k, started, &files, seen) {
            Ok(()) => return Ok(k),
            Err(e) => why += &format!("\n  data of S({k}): {e}"),
        }
    }
    Err(format!("no legal state from S({}) to S({newest}) is like it:{why}", promised.names))
}

#[allow(clippy::too_many_arguments)]
fn data_matches(
    route: Route,
    ops: &[SimOp],
    h: &History,
    promised: &Floors,
    k: usize,
    started: usize,
    files: &BTreeMap<NodeId, Path>,
    seen: &Observed,
) -> Result<(), String> {
    for (id, path) in files.iter().filter(|(id, _)| !promised.unknown.contains(id)) {
        let ObservedKind::File(got) = &seen.nodes[path].kind else { continue };
        let shown = String::from_utf8_lossy(path);
        if promised.lossy.contains(id) {
            let floor = synced_floor(promised, *id);
            let versions: Vec<&[u8]> = (floor..=started).filter_map(|j| data_of(&h.states[j], *id)).collect();
            if !shifted(ops, h, floor..k, *id) {
                bytes_match(got, &versions).map_err(|e| format!("{shown} from S({floor}), which lost data: {e}"))?;
            }
            continue;
        }
        let floor = data_floor(ops, h, promised, *id, k);
        if route == Route::Journal || route == Route::Adaptive && always_journaled(&h.states[floor..=started], *id) {
            let want = data_of(&h.states[k], *id).expect("the names match");
            if want != got.as_slice() {
                return Err(format!("{shown} differs ({} bytes instead of {})", got.len(), want.len()));
            }
            continue;
        }
        let versions: Vec<&[u8]> = (floor..=started).filter_map(|j| data_of(&h.states[j], *id)).collect();
        if matches!(route, Route::Overwrite | Route::Auto) || only_updates(ops, h, started, *id) {
            if !versions.contains(&got.as_slice()) {
                return Err(format!("{shown} is as in no state from S({floor}): {}", torn(got, &versions)));
            }
            continue;
        }
        if !versions.iter().any(|v| v.len() == got.len()) {
            return Err(format!("{shown} has {} bytes, as in no state from S({floor})", got.len()));
        }
        if matches!(route, Route::Ordered | Route::Adaptive | Route::Selective) {
            sectors_match(got, &versions).map_err(|e| format!("{shown} from S({floor}): {e}"))?;
        }
        if route == Route::Selective {
            let whole = written_whole(ops, h, started, *id);
            blocks_match(got, &versions, &whole).map_err(|e| format!("{shown} from S({floor}): {e}"))?;
        }
    }
    Ok(())
}
