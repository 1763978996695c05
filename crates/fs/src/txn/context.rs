//! What stays as it is from mount to unmount, and every operation may look at; and the few options that can change.

use crate::config::{Options, RuntimeOptions};
use crate::policy::RoutePolicy;
use quire_device::sync::{Mutex, lock};
use quire_layout::features::ro_compat;
use quire_layout::group_desc::DescChecksum;
use quire_layout::superblock::{self, CreatorOs, Superblock};
use quire_layout::{BlockNo, BlockSize};

/// The fixed properties of a mounted file system.
pub(crate) struct Context {
    /// The superblock at mount, for what never changes: features, sizes, the journal's place. The geometry is that of
    /// `Tables::sb`, and `records::superblock` gives the current counts.
    pub sb: Superblock,
    pub desc_sums: DescChecksum,
    /// Seed of inode and block checksums, with `metadata_csum`.
    pub inode_seed: Option<u32>,
    /// The same for the checksums of inode records, whose place only Linux gives them.
    pub record_seed: Option<u32>,
    pub options: Options,
    /// Those of the options that can change; a leaf lock.
    runtime: Mutex<RuntimeOptions>,
    pub route: RoutePolicy,
}

impl Context {
    /// `has_log`: the journal writes a log.
    pub(crate) fn new(sb: Superblock, options: Options, has_log: bool) -> Self {
        let inode_seed = sb.features().metadata_csum().then(|| sb.checksum_seed());
        Context {
            desc_sums: DescChecksum::of(&sb),
            inode_seed,
            record_seed: inode_seed.filter(|_| sb.creator_os() == CreatorOs::Linux),
            route: RoutePolicy::new(&options, has_log, sb.block_size()),
            runtime: Mutex::new(options.runtime()),
            options,
            sb,
        }
    }

    /// The options that can change, as they are now.
    pub(crate) fn runtime(&self) -> RuntimeOptions {
        *lock(&self.runtime)
    }

    pub(crate) fn set_runtime(&self, options: RuntimeOptions) {
        *lock(&self.runtime) = options;
    }

    pub(crate) fn block_size(&self) -> BlockSize {
        self.sb.block_size()
    }

    /// Block of the primary superblock, and its byte offset there.
    pub(crate) fn superblock_at(&self) -> (BlockNo, usize) {
        let at = superblock::OFFSET % self.sb.block_size().bytes64();
        (self.sb.own_block(), usize::try_from(at).expect("within a block"))
    }

    /// True if group descriptors have checksums, and with them flags for structures that were never initialised.
    pub(crate) fn has_lazy_groups(&self) -> bool {
        self.sb.features().metadata_csum() || self.sb.features().has_ro_compat(ro_compat::GDT_CSUM)
    }
}
