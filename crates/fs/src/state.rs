//! What the metadata mutex guards besides block images.
//!
//! Nothing here may change inside an operation except in ways that survive its being undone (hints); what must
//! follow an operation's success is collected in [`Deferred`] and applied by `Op::stop`.

use crate::alloc::{AllocState, Delta};
use crate::changes::Changes;
use crate::dir::Scans;
use crate::mode::{FileMode, RuledNames};
use crate::orphan::{Orphans, Place};
use crate::xattr::SharedBlocks;
use quire_layout::number_map::NumberMap;
use quire_layout::{BlockNo, GroupNo, Ino, Tid};
use std::collections::HashSet;

/// In-memory state of a volume. Guarded by the metadata mutex (lock 2 of docs/design.md).
#[derive(Default)]
pub(crate) struct FsState {
    /// Users' references on inodes (lookups, open files). An inode without links lives until this is gone.
    pub refs: NumberMap<Ino, u64>,
    /// Free space, and who has claimed or reserved some of it.
    pub alloc: AllocState,
    /// Inodes that are unlinked but in use, or being truncated.
    pub orphans: Orphans,
    /// Inodes that have neither links nor references, to be freed together soon.
    pub doomed: Vec<Ino>,
    /// Inodes made since the mount, whether they came to be or not.
    pub made: u32,
    /// Orphans that never had a name and may get one ([`crate::Volume::create_unnamed`]).
    pub unnamed: HashSet<Ino>,
    /// Attribute blocks that further inodes may share. Hints.
    pub xattr_blocks: SharedBlocks,
    /// What fsync waits for.
    pub changes: Changes,
    /// Files for whose names a rule of `data=adaptive` speaks.
    pub ruled_names: RuledNames,
    /// Where the inode tables of groups begin, as far as that was asked for.
    pub inode_tables: NumberMap<GroupNo, BlockNo>,
    /// Where interrupted looks into large directories have come to: hints.
    pub scans: Scans,
}

/// What an operation does beyond block images, applied when it succeeds.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Blocks and inodes taken, freed, claimed and reserved.
    pub alloc: Delta,
    /// References to add to inodes.
    pub refs: Vec<Ino>,
    /// Where orphans are recorded now; `None`: no longer.
    pub orphans: Vec<(Ino, Option<Place>)>,
    /// An orphan that was made without a name.
    pub unnamed: Option<Ino>,
    /// Names added to long directories, or removed.
    pub long_dirs: Vec<(Ino, Vec<u8>)>,
    /// Attribute blocks written or read, by what they hold.
    pub xattr_blocks: Vec<(u32, BlockNo)>,
    /// Inodes changed, and whether in more than times.
    pub changed: Vec<(Ino, bool)>,
    /// Inodes freed: nobody can fsync them any more.
    pub gone: Vec<Ino>,
    /// Inodes reached by a name, and what a rule says of it.
    pub named: Vec<(Ino, Option<FileMode>)>,
}

impl FsState {
    /// Applies what an operation that joined `tid` has collected.
    pub(crate) fn apply(&mut self, d: Deferred, tid: Tid) {
        self.alloc.apply(d.alloc, tid);
        for (ino, _) in d.orphans.iter().filter(|(_, place)| place.is_none()) {
            self.unnamed.remove(ino);
        }
        self.unnamed.extend(d.unnamed);
        self.orphans.apply(d.orphans);
        d.long_dirs.iter().for_each(|(ino, _)| self.scans.has_other_names(*ino));
        self.xattr_blocks.apply(d.xattr_blocks);
        for (ino, data) in d.changed {
            self.changes.note(ino, data, tid);
        }
        d.gone.into_iter().for_each(|ino| self.changes.forget(ino));
        for ino in d.refs {
            *self.refs.entry(ino).or_default() += 1;
        }
        for (ino, rule) in d.named {
            let refs = &self.refs;
            self.ruled_names.note(ino, rule, |ino| refs.contains_key(&ino));
        }
    }
}
