//! The file system as it should be, in memory: what every call does, and every state it went through.
//!
//! A state is cheap to keep (nodes are shared), so the model keeps the state after every operation. What a crash may
//! leave is defined over that history, in [`crate::check`].

use crate::ops::{PAGE, Place, SimOp, pattern};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quire_layout::inode::Timestamp;

/// Names a node through its life; never used again.
pub type NodeId = u32;

/// What a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    File(Arc<Vec<u8>>),
    Dir(BTreeMap<Vec<u8>, NodeId>),
    Symlink(Vec<u8>),
    Fifo,
}

/// An inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// The time of the last change of its data, as long as it is one that was set.
    pub mtime: Option<Timestamp>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The flag `j`.
    pub flag: bool,
    /// The last change of its data was journaled, if modes count ([`crate::run::Route::Adaptive`]).
    pub journaled: bool,
}

/// The whole tree at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    pub nodes: BTreeMap<NodeId, Arc<Node>>,
    /// The volume is frozen.
    pub frozen: bool,
}

/// The root's node.
pub const ROOT: NodeId = 0;

/// What the model says of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It succeeds; the node it is about, if it is about one.
    Done(Option<NodeId>),
    /// It is refused.
    Refused,
}

/// All states of a run, in order: `states[i]` is the one after `i` operations.
#[derive(Clone)]
pub struct History {
    pub states: Vec<State>,
    /// For each operation, what it was about.
    pub outcomes: Vec<Outcome>,
    /// For each operation, the nodes that it changed other than in data or size.
    pub changed: Vec<Vec<NodeId>>,
    next: NodeId,
}

impl Node {
    fn new(kind: Kind, mode: u16) -> Self {
        let xattrs = BTreeMap::new();
        Node { kind, mode, uid: 0, gid: 0, mtime: None, xattrs, flag: false, journaled: true }
    }
}

impl State {
    fn dir_id(&self, dir: u8) -> Option<NodeId> {
        if dir == 0 { Some(ROOT) } else { self.entries(ROOT).get(&dir_name(dir)).copied() }
    }

    /// The entries of a directory.
    ///
    /// # Panics
    /// If the node is not one.
    #[must_use]
    pub fn entries(&self, id: NodeId) -> &BTreeMap<Vec<u8>, NodeId> {
        match &self.nodes[&id].kind {
            Kind::Dir(e) => e,
            other => panic!("{other:?} is not a directory"),
        }
    }

    fn find(&self, p: Place) -> Option<NodeId> {
        self.entries(self.dir_id(p.dir)?).get(&p.bytes()).copied()
    }

    fn find_file(&self, p: Place) -> Option<NodeId> {
        self.find(p).filter(|id| matches!(self.nodes[id].kind, Kind::File(_)))
    }

    /// How many names a node has.
    #[must_use]
    pub fn links(&self, id: NodeId) -> usize {
        let dirs = self.nodes.values().filter_map(|n| match &n.kind {
            Kind::Dir(e) => Some(e),
            _ => None,
        });
        dirs.flat_map(|e| e.values()).filter(|n| **n == id).count()
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&id).expect("a node that is named exists"))
    }

    fn entries_mut(&mut self, id: NodeId) -> &mut BTreeMap<Vec<u8>, NodeId> {
        match &mut self.node_mut(id).kind {
            Kind::Dir(e) => e,
            other => panic!("{other:?} is not a directory"),
        }
    }

    fn drop_unnamed(&mut self, id: NodeId) {
        if self.links(id) == 0 {
            self.nodes.remove(&id);
        }
    }

    fn data_mut(&mut self, id: NodeId) -> &mut Vec<u8> {
        match &mut self.node_mut(id).kind {
            Kind::File(d) => Arc::make_mut(d),
            other => panic!("{other:?} is not a file"),
        }
    }
}

/// True if a rule sends the data of files with this name through the journal.
#[must_use]
pub fn has_rule(p: Place) -> bool {
    p.name == 2
}

/// The name of a top-level directory.
#[must_use]
pub fn dir_name(dir: u8) -> Vec<u8> {
    format!("d{dir}").into_bytes()
}

/// The value of an extended attribute of `len` bytes.
#[must_use]
pub fn xattr_value(which: u8, len: u16) -> Vec<u8> {
    vec![b'a' + which; usize::from(len)]
}

/// The name of an extended attribute.
#[must_use]
pub fn xattr_name(which: u8) -> Vec<u8> {
    format!("user.x{which}").into_bytes()
}

/// The group that a file is given with an owner.
#[must_use]
pub fn group_of(owner: u32) -> u32 {
    owner / 2
}

/// The time that a number stands for: up to the year 2413.
#[must_use]
pub fn time_of(n: u32) -> Timestamp {
    Timestamp { secs: i64::from(n) * 7, nanos: n % 1_000_000_000 }
}

/// The target of a symbolic link of `len` bytes.
#[must_use]
pub fn target(len: u16) -> Vec<u8> {
    vec![b't'; usize::from(len)]
}

impl Default for History {
    fn default() -> Self {
        let root = Node { journaled: false, ..Node::new(Kind::Dir(BTreeMap::new()), 0o755) };
        let state = State { nodes: BTreeMap::from([(ROOT, Arc::new(root))]), frozen: false };
        History { states: vec![state], outcomes: Vec::new(), changed: Vec::new(), next: 1 }
    }
}

impl History {
    /// The newest state.
    ///
    /// # Panics
    /// Never: there is always one.
    #[must_use]
    pub fn now(&self) -> &State {
        self.states.last().expect("the first state is there from the start")
    }

    /// Applies an operation and keeps the state after it.
    pub fn apply(&mut self, op: &SimOp) -> Outcome {
        let mut s = self.now().clone();
        let outcome = self.step(&mut s, op);
        let (changed, s) = match outcome {
            Outcome::Refused => (Vec::new(), self.now().clone()),
            Outcome::Done(_) => (changed(self.now(), &s), s),
        };
        self.states.push(s);
        self.outcomes.push(outcome);
        self.changed.push(changed);
        outcome
    }

    /// The last operation was refused after all, for reasons that the model does not know.
    ///
    /// # Panics
    /// If there was none.
    pub fn refuse_last(&mut self) {
        let n = self.outcomes.len() - 1;
        self.states[n + 1] = self.states[n].clone();
        self.outcomes[n] = Outcome::Refused;
        self.changed[n].clear();
    }

    /// Nobody knows when a file was changed last: a call that failed may have noted its time.
    pub fn forget_mtime(&mut self, id: NodeId) {
        let state = self.states.last_mut().expect("the first state is there from the start");
        if state.nodes.contains_key(&id) {
            state.node_mut(id).mtime = None;
        }
    }

    fn add(&mut self, s: &mut State, dir: NodeId, name: Vec<u8>, kind: Kind, mode: u16) -> Outcome {
        let id = self.next;
        self.next += 1;
        s.nodes.insert(id, Arc::new(Node::new(kind, mode)));
        s.entries_mut(dir).insert(name, id);
        Outcome::Done(Some(id))
    }

    fn add_at(&mut self, s: &mut State, p: Place, kind: Kind, mode: u16) -> Outcome {
        match s.dir_id(p.dir) {
            Some(dir) if s.find(p).is_none() => self.add(s, dir, p.bytes(), kind, mode),
            _ => Outcome::Refused,
        }
    }

    fn step(&mut self, s: &mut State, op: &SimOp) -> Outcome {
        let done = |id| Outcome::Done(Some(id));
        if s.frozen && op.waits_when_frozen() {
            return Outcome::Refused;
        }
        match *op {
            SimOp::Freeze | SimOp::Thaw | SimOp::Remount => lifecycle(s, op),
            SimOp::Create(p) => self.add_at(s, p, Kind::File(Arc::default()), 0o644),
            SimOp::Symlink(p, len) => self.add_at(s, p, Kind::Symlink(target(len)), 0o777),
            SimOp::Mknod(p) => self.add_at(s, p, Kind::Fifo, 0o600),
            SimOp::Mkdir(dir) if s.dir_id(dir).is_none() => {
                self.add(s, ROOT, dir_name(dir), Kind::Dir(BTreeMap::new()), 0o755)
            }
            SimOp::Rmdir(dir) => match s.dir_id(dir) {
                Some(id) if id != ROOT && s.entries(id).is_empty() => {
                    s.entries_mut(ROOT).remove(&dir_name(dir));
                    s.nodes.remove(&id);
                    Outcome::Done(None)
                }
                _ => Outcome::Refused,
            },
            SimOp::Unlink(p) | SimOp::UnlinkOpen(p) => s.find(p).map_or(Outcome::Refused, |id| {
                let dir = s.dir_id(p.dir).expect("found in it");
                s.entries_mut(dir).remove(&p.bytes());
                s.drop_unnamed(id);
                Outcome::Done(None)
            }),
            SimOp::Rename(from, to) => rename(s, from, to),
            SimOp::Exchange(a, b) => match (s.find(a), s.find(b)) {
                (Some(x), Some(y)) => {
                    let (da, db) = (s.dir_id(a.dir).expect("found"), s.dir_id(b.dir).expect("found"));
                    s.entries_mut(da).insert(a.bytes(), y);
                    s.entries_mut(db).insert(b.bytes(), x);
                    done(x)
                }
                _ => Outcome::Refused,
            },
            SimOp::Link(from, to) => match (s.find(from), s.dir_id(to.dir), s.find(to)) {
                (Some(id), Some(dir), None) => {
                    s.entries_mut(dir).insert(to.bytes(), id);
                    done(id)
                }
                _ => Outcome::Refused,
            },
            SimOp::Chmod(..)
            | SimOp::Chown(..)
            | SimOp::Utimes(..)
            | SimOp::SetXattr(..)
            | SimOp::RemoveXattr(..)
            | SimOp::JournalData(..) => change_attributes(s, op),
            SimOp::Fsync(p) | SimOp::Fdatasync(p) => s.find_file(p).map_or(Outcome::Refused, done),
            SimOp::FsyncDir(dir) => s.dir_id(dir).map_or(Outcome::Refused, done),
            SimOp::Sync | SimOp::Step | SimOp::WriteBack | SimOp::Release | SimOp::Checkpoint => Outcome::Done(None),
            SimOp::Mkdir(_) => Outcome::Refused,
            SimOp::RenameDir(from, to) => rename_dir(s, from, to),
            SimOp::Unnamed { place, len, fill } => {
                self.add_at(s, place, Kind::File(Arc::new(pattern(fill, 0, len))), 0o644)
            }
            ref data => change_data(s, data),
        }
    }
}

fn lifecycle(s: &mut State, op: &SimOp) -> Outcome {
    match (op, s.frozen) {
        (SimOp::Freeze, false) => s.frozen = true,
        (SimOp::Thaw, true) | (SimOp::Remount, _) => s.frozen = false,
        _ => return Outcome::Refused,
    }
    Outcome::Done(None)
}

/// Nodes that one call changed, other than in data or size.
fn changed(a: &State, b: &State) -> Vec<NodeId> {
    let same = |id: &NodeId| match (a.nodes.get(id), b.nodes.get(id)) {
        (Some(x), Some(y)) => {
            let owned = |n: &Node| (n.mode, n.uid, n.gid);
            // A write makes the time unknown, which is a change of data.
            let time = y.mtime.is_none() || x.mtime == y.mtime;
            let entries = |n: &Node| match &n.kind {
                Kind::Dir(e) => Some(e.clone()),
                _ => None,
            };
            let alike = || owned(x) == owned(y) && time && x.xattrs == y.xattrs && entries(x) == entries(y);
            (Arc::ptr_eq(x, y) || alike()) && a.links(*id) == b.links(*id)
        }
        _ => false,
    };
    let ids: BTreeSet<_> = a.nodes.keys().chain(b.nodes.keys()).copied().collect();
    ids.into_iter().filter(|id| !same(id)).collect()
}

fn rename(s: &mut State, from: Place, to: Place) -> Outcome {
    let (Some(id), Some(dir)) = (s.find(from), s.dir_id(to.dir)) else { return Outcome::Refused };
    let old = s.find(to);
    if old == Some(id) {
        return Outcome::Done(Some(id));
    }
    let source = s.dir_id(from.dir).expect("found in it");
    s.entries_mut(source).remove(&from.bytes());
    s.entries_mut(dir).insert(to.bytes(), id);
    if let Some(old) = old {
        s.drop_unnamed(old);
    }
    Outcome::Done(Some(id))
}

/// Below the root; what has the name already must be empty.
fn rename_dir(s: &mut State, from: u8, to: u8) -> Outcome {
    let (Some(id), old) = (s.dir_id(from), s.dir_id(to)) else { return Outcome::Refused };
    if old == Some(id) {
        return Outcome::Done(Some(id));
    }
    if let Some(old) = old {
        if !s.entries(old).is_empty() {
            return Outcome::Refused;
        }
        s.nodes.remove(&old);
    }
    s.entries_mut(ROOT).remove(&dir_name(from));
    s.entries_mut(ROOT).insert(dir_name(to), id);
    Outcome::Done(Some(id))
}

/// The bytes that a copy takes; `None` if it is refused.
fn copied(s: &State, op: &SimOp) -> Option<Vec<u8>> {
    let SimOp::Copy { from, at, to, offset, len } = *op else { return None };
    let (from, to) = (s.find_file(from)?, s.find_file(to)?);
    let Kind::File(data) = &s.nodes[&from].kind else { return None };
    let end = data.len().min((at + len) as usize);
    let len = u32::try_from(end).expect("small files").saturating_sub(at);
    let overlap = len > 0 && from == to && at < offset + len && offset < at + len;
    (!overlap).then(|| data.get(at as usize..end).unwrap_or_default().to_vec())
}

/// What a file says of itself, besides its data.
fn change_attributes(s: &mut State, op: &SimOp) -> Outcome {
    let done = |id| Outcome::Done(Some(id));
    match *op {
        SimOp::Chmod(p, mode) => s.find_file(p).map_or(Outcome::Refused, |id| {
            s.node_mut(id).mode = mode;
            done(id)
        }),
        SimOp::Chown(p, n) => s.find_file(p).map_or(Outcome::Refused, |id| {
            let node = s.node_mut(id);
            (node.uid, node.gid) = (n, group_of(n));
            done(id)
        }),
        SimOp::Utimes(p, n) => s.find_file(p).map_or(Outcome::Refused, |id| {
            s.node_mut(id).mtime = Some(time_of(n));
            done(id)
        }),
        SimOp::SetXattr(p, which, len) => s.find_file(p).map_or(Outcome::Refused, |id| {
            s.node_mut(id).xattrs.insert(xattr_name(which), xattr_value(which, len));
            done(id)
        }),
        SimOp::RemoveXattr(p, which) => {
            s.find_file(p).map_or(Outcome::Refused, |id| match s.node_mut(id).xattrs.remove(&xattr_name(which)) {
                Some(_) => done(id),
                None => Outcome::Refused,
            })
        }
        SimOp::JournalData(p, on) => s.find_file(p).map_or(Outcome::Refused, |id| {
            s.node_mut(id).flag = on;
            done(id)
        }),
        _ => unreachable!("{op:?} changes no attributes"),
    }
}

fn change_data(s: &mut State, op: &SimOp) -> Outcome {
    let place = match op {
        SimOp::Write { place, .. } | SimOp::Punch { place, .. } | SimOp::Allocate { place, .. } => *place,
        SimOp::MapWrite { place, .. } | SimOp::Append { place, .. } | SimOp::Zero { place, .. } => *place,
        SimOp::Reserve { place, .. } | SimOp::Update { place, .. } => *place,
        SimOp::Collapse { place, .. } | SimOp::Insert { place, .. } | SimOp::Copy { to: place, .. } => *place,
        SimOp::Truncate(place, _) => *place,
        other => unreachable!("{other:?} changes no data"),
    };
    let Some(id) = s.find_file(place) else { return Outcome::Refused };
    let copied = match (op, copied(s, op)) {
        (SimOp::Copy { .. }, None) => return Outcome::Refused,
        (SimOp::Copy { .. }, Some(nothing)) if nothing.is_empty() => return Outcome::Done(Some(id)),
        (_, bytes) => bytes.unwrap_or_default(),
    };
    if let SimOp::Update { commits: false, .. } = op {
        return Outcome::Done(Some(id));
    }
    let node = s.node_mut(id);
    node.journaled = node.flag || has_rule(place);
    node.mtime = None;
    if edit(s.data_mut(id), op, &copied) { Outcome::Done(Some(id)) } else { Outcome::Refused }
}

/// Writes bytes at a place; a shorter file grows.
fn put(data: &mut Vec<u8>, at: u32, bytes: &[u8]) {
    let (a, b) = (at as usize, at as usize + bytes.len());
    data.resize(data.len().max(b), 0);
    data[a..b].copy_from_slice(bytes);
}

/// Changes the bytes of a file; false if the call is refused.
fn edit(data: &mut Vec<u8>, op: &SimOp, copied: &[u8]) -> bool {
    let span = |offset: u32, len: u32| (offset as usize, offset as usize + len as usize);
    match *op {
        SimOp::Write { offset, len, fill, .. } => put(data, offset, &pattern(fill, offset, len)),
        SimOp::Update { first, second, fill, .. } => {
            for (offset, len) in [first, second] {
                put(data, offset, &pattern(fill, offset, len));
            }
        }
        SimOp::MapWrite { page, at, len, fill, .. } => {
            // A page behind the end is not mapped; in the last one, what lies behind the end is not written.
            let from = page * PAGE + at;
            let inside = data.len().saturating_sub(from as usize).min(len as usize);
            if (page * PAGE) as usize >= data.len() {
                return false;
            }
            if inside > 0 {
                put(data, from, &pattern(fill, from, len)[..inside]);
            }
        }
        SimOp::Append { len, fill, .. } => {
            let end = u32::try_from(data.len()).expect("small files");
            data.extend(pattern(fill, end, len));
        }
        SimOp::Truncate(_, size) => data.resize(size as usize, 0),
        SimOp::Punch { offset, len, .. } => {
            let (a, b) = span(offset, len);
            let b = b.min(data.len());
            data[a.min(b)..b].fill(0);
        }
        SimOp::Allocate { offset, len, .. } => data.resize(data.len().max(span(offset, len).1), 0),
        SimOp::Reserve { .. } => {}
        SimOp::Zero { offset, len, .. } => put(data, offset, &vec![0; len as usize]),
        SimOp::Collapse { offset, len, .. } => {
            let (a, b) = span(offset, len);
            if b >= data.len() {
                return false;
            }
            data.drain(a..b);
        }
        SimOp::Insert { offset, len, .. } => {
            let (a, b) = span(offset, len);
            if a >= data.len() {
                return false;
            }
            data.splice(a..a, std::iter::repeat_n(0, b - a));
        }
        SimOp::Copy { offset, .. } => put(data, offset, copied),
        _ => unreachable!("matched above"),
    }
    true
}
