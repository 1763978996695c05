//! Everything that the metadata mutex guards besides block images, and the changes that one operation collects.
//!
//! *Guarantees*: an operation changes nothing here except hints. It collects its changes in [`Deferred`], and
//! [`Tables::apply`] applies them when the operation succeeds.

use super::changes::Changes;
use super::dir_scans::DirScans;
use super::orphans::{OrphanPlace, OrphanTable};
use super::ruled_names::RuledNames;
use super::shared_xattrs::SharedXattrBlocks;
use super::space::{NewSpace, SpaceDelta, SpaceTable};
use crate::config::JournalingMode;
use quire_device::sync::Arc;
use quire_layout::number_map::NumberMap;
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, GroupNo, Ino, Tid};
use std::collections::HashSet;

/// In-memory state of a volume. The metadata mutex guards it.
pub(crate) struct Tables {
    /// Features as they were at mount, and the geometry, which changes only when the file system grows. Those who use
    /// it with the other tables hold the mutex: both grow together.
    pub sb: Arc<Superblock>,
    /// References on inodes: lookups and open files. An inode without links lives until it has none.
    pub refs: NumberMap<Ino, u64>,
    /// Free space, claims and reservations.
    pub space: SpaceTable,
    /// Inodes that are unlinked but in use, or being truncated.
    pub orphans: OrphanTable,
    /// Orphans whose truncate has begun and not ended. The record stays until it ends, whatever names they get.
    pub cutting: HashSet<Ino>,
    /// Inodes without links and references that a thread has claimed to free them; no other thread may. Each is in here
    /// until it is freed, or until that has failed.
    pub evicting: HashSet<Ino>,
    /// Those of them that wait to be freed together, without pages.
    pub pending_evictions: Vec<Ino>,
    /// Inodes made since the mount; operations that failed count, too.
    pub made: u32,
    /// Orphans that never had a name and may get one (`O_TMPFILE`).
    pub unnamed: HashSet<Ino>,
    /// Attribute blocks that further inodes may share. Hints.
    pub xattr_blocks: SharedXattrBlocks,
    /// The transactions that fsync waits for.
    pub changes: Changes,
    /// Inodes to whose names a rule of `data=adaptive` applies.
    pub ruled_names: RuledNames,
    /// First blocks of the groups' inode tables, as far as operations have read them.
    pub inode_tables: NumberMap<GroupNo, BlockNo>,
    /// How far interrupted searches of large directories have come. Hints.
    pub scans: DirScans,
}

/// The changes of one operation besides block images.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Blocks and inodes taken, freed, claimed and reserved.
    pub space: SpaceDelta,
    /// References to add to inodes.
    pub refs: Vec<Ino>,
    /// The new place of each orphan's record; `None`: it has none any more.
    pub orphans: Vec<(Ino, Option<OrphanPlace>)>,
    /// An inode that the calling thread is going to free.
    pub evicts: Option<Ino>,
    /// An orphan that was made without a name.
    pub unnamed: Option<Ino>,
    /// An inode that was made without a name, and got one.
    pub got_name: Option<Ino>,
    /// Files whose truncate goes on in another operation (true), or has ended.
    pub cuts: Vec<(Ino, bool)>,
    /// Names added to long directories, or removed.
    pub long_dirs: Vec<(Ino, Vec<u8>)>,
    /// Attribute blocks written or read, with the key of their content.
    pub xattr_blocks: Vec<(u32, BlockNo)>,
    /// Inodes changed, and whether more than their times changed.
    pub changed: Vec<(Ino, bool)>,
    /// Inodes freed: no fsync waits for them any more, and nobody's claim to free them is left.
    pub freed_inodes: Vec<Ino>,
    /// Inodes reached by a name, and the mode that a rule gives to the name.
    pub named: Vec<(Ino, Option<JournalingMode>)>,
    /// The file system has grown.
    pub growth: Option<NewSpace>,
}

impl Tables {
    /// The tables of a volume that has not been looked at.
    pub(crate) fn new(sb: Arc<Superblock>) -> Self {
        Tables {
            sb,
            refs: NumberMap::default(),
            space: SpaceTable::default(),
            orphans: OrphanTable::default(),
            cutting: HashSet::new(),
            evicting: HashSet::new(),
            pending_evictions: Vec::new(),
            made: 0,
            unnamed: HashSet::new(),
            xattr_blocks: SharedXattrBlocks::default(),
            changes: Changes::default(),
            ruled_names: RuledNames::default(),
            inode_tables: NumberMap::default(),
            scans: DirScans::default(),
        }
    }

    /// Applies the changes of an operation that joined transaction `tid`.
    pub(crate) fn apply(&mut self, d: Deferred, tid: Tid) {
        self.space.apply(d.space, tid);
        if let Some(new) = d.growth {
            self.space.grow(&new);
            self.sb = new.sb;
        }
        for (ino, goes_on) in d.cuts {
            if goes_on {
                self.cutting.insert(ino)
            } else {
                self.cutting.remove(&ino)
            };
        }
        for (ino, _) in d.orphans.iter().filter(|(_, place)| place.is_none()) {
            self.unnamed.remove(ino);
            self.cutting.remove(ino);
        }
        if let Some(ino) = d.got_name {
            self.unnamed.remove(&ino);
        }
        self.unnamed.extend(d.unnamed);
        self.orphans.apply(d.orphans);
        d.long_dirs.iter().for_each(|(ino, _)| self.scans.has_other_names(*ino));
        self.xattr_blocks.apply(d.xattr_blocks);
        for (ino, data) in d.changed {
            self.changes.note(ino, data, tid);
        }
        self.evicting.extend(d.evicts);
        for ino in d.freed_inodes {
            self.changes.forget(ino);
            // The number's next owner may be freed by any thread.
            self.evicting.remove(&ino);
        }
        for ino in d.refs {
            *self.refs.entry(ino).or_default() += 1;
        }
        for (ino, rule) in d.named {
            let refs = &self.refs;
            self.ruled_names.note(ino, rule, |ino| refs.contains_key(&ino));
        }
    }
}
