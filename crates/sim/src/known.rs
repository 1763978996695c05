//! What is known of the crash states of one run: recovery is a function of the bytes, so equal ones are recovered once.

use crate::check::{Floors, first_legal, floors};
use crate::observe::{Observed, ObservedKind};
use crate::ops::SimOp;
use crate::run::{Route, Run};
use quire_layout::features::incompat;
use quire_layout::superblock::{self, Superblock};
use quire_testkit::Image;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// What the runs of a configuration have shown, by digests.
#[derive(Default)]
pub struct Seen {
    /// Crash states.
    pub(crate) states: HashSet<u64>,
    /// What e2fsck has found clean.
    pub(crate) clean: HashSet<u64>,
}

/// Bytes of trees that are kept.
const MOST: usize = 256 << 20;

/// How far a run was when its power went, and what it had promised then.
#[derive(Default)]
pub(crate) struct Moment {
    returned: usize,
    started: usize,
    /// The image is marked as in use, or clean; nothing is known of it in between.
    in_use: Option<bool>,
    promised: Floors,
}

impl Moment {
    /// The one after so many steps of the devices.
    pub(crate) fn goes_to(&mut self, ops: &[SimOp], run: &Run, steps: u64, before_mount: bool) {
        let returned = run.returned_at.iter().take_while(|at| **at <= steps).count();
        let started = if before_mount { 0 } else { (returned + 1).min(ops.len()) };
        if (returned, started) != (self.returned, self.started) {
            let under_way = ops.get(returned).map(|op| matches!(op, SimOp::Freeze | SimOp::Thaw | SimOp::Remount));
            let known = !before_mount && under_way == Some(false);
            let in_use = known.then(|| !run.history.states[returned].frozen);
            *self = Moment { returned, started, in_use, promised: floors(ops, &run.history, returned) };
        }
    }

    /// Checks that a volume in use is never marked clean, and a frozen one is (L1).
    pub(crate) fn is_marked(&self, image: &Image) -> Result<(), String> {
        let Some(in_use) = self.in_use else { return Ok(()) };
        let mut raw = [0; superblock::SIZE];
        image.read(superblock::OFFSET, &mut raw);
        let sb = Superblock::decode_unverified(&raw).map_err(|e| e.to_string())?;
        match (in_use, sb.features().has_incompat(incompat::RECOVER)) {
            (true, false) => Err("a volume in use is marked clean".into()),
            (false, true) => Err("a frozen volume is not marked clean".into()),
            _ => Ok(()),
        }
    }
}

/// By the digests of crash states.
#[derive(Default)]
pub(crate) struct Known {
    /// The trees that they recover to.
    trees: HashMap<u64, Rc<Observed>>,
    bytes: usize,
    /// Device steps of their recovery.
    pub(crate) steps: HashMap<u64, u64>,
    /// Those that were legal when so many calls had returned and started.
    legal: HashSet<(u64, usize, usize)>,
    /// Those that were unmounted, and judged then.
    pub(crate) judged: HashSet<u64>,
}

impl Known {
    /// What is legal is a matter of one run's calls; the trees that states recover to are not.
    pub(crate) fn begin_run(&mut self) {
        self.legal.clear();
    }

    pub(crate) fn tree(&self, digest: u64) -> Option<Rc<Observed>> {
        self.trees.get(&digest).cloned()
    }

    /// Keeps a tree, as long as there is room; what is not kept is recovered again.
    pub(crate) fn keep(&mut self, digest: u64, tree: &Rc<Observed>) {
        let file = |kind: &ObservedKind| if let ObservedKind::File(d) = kind { d.len() } else { 0 };
        self.bytes += tree.nodes.values().map(|n| 256 + file(&n.kind)).sum::<usize>();
        if self.bytes > MOST {
            self.trees.clear();
            self.bytes = 0;
        }
        self.trees.insert(digest, tree.clone());
    }

    /// Checks the tree that a state recovered to against what was promised at a moment.
    pub(crate) fn is_legal(
        &mut self,
        route: Route,
        ops: &[SimOp],
        run: &Run,
        at: &Moment,
        digest: u64,
        seen: &Observed,
    ) -> Result<(), String> {
        if self.legal.insert((digest, at.returned, at.started)) {
            first_legal(route, ops, &run.history, &at.promised, (at.started, at.started), seen)?;
        }
        Ok(())
    }
}
