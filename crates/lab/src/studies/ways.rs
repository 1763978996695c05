//! The ways to keep a journal that DJFS compares. Where the paper has ext4 with data journaling on a device, an fsync
//! writes home what earlier transactions hold of the file, as `ext4_sync_file` of its kernel (4.1) does
//! (`checkpoint=fsync`).

use std::time::Duration;

use quire_fs::{Checkpoint, Profile};
use quire_testkit::Model;

use crate::rig::Plan;

/// Where the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Internal,
    /// On a device of its own, of the same model.
    External,
    Nvram,
}

/// A way to keep the journal.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub name: &'static str,
    pub profile: Profile,
    /// Instead of the profile's.
    pub checkpoint: Option<Checkpoint>,
    pub place: Place,
}

const fn way(name: &'static str, profile: Profile, place: Place) -> Way {
    Way { name, profile, checkpoint: None, place }
}

const fn stock(way: Way) -> Way {
    Way { checkpoint: Some(Checkpoint::Fsync), ..way }
}

/// What the studies of DJFS assume of these baselines.
pub const ASSUMED: &str = "ext4-journal and external: an fsync writes home what earlier transactions hold of the file, \
     as ext4's does; nvj, djfs: it does not, since the paper has no request to the device by an fsync; all logs on devices \
     commit with a barrier, the kernel's default; inode times stand still for 4 ms, as in a kernel with HZ=250 \
     (Debian's and Ubuntu's; the paper does not say its own)";

/// How long inode times stand still: with HZ=250, which Debian's and Ubuntu's kernels have. The paper does not say how
/// its kernel (4.1) was configured.
pub const TICK: Duration = Duration::from_millis(4);

pub const NONE: Way = way("ext4-none", Profile::Ext4None, Place::Internal);
pub const ORDERED: Way = way("ext4-ordered", Profile::Ext4Ordered, Place::Internal);
pub const JOURNAL: Way = stock(way("ext4-journal", Profile::Ext4Journal, Place::Internal));
pub const EXTERNAL: Way = stock(way("external", Profile::Ext4Journal, Place::External));
pub const NVJ: Way = way("nvj", Profile::Nvj, Place::Nvram);
/// As `ext4_sync_file` of the paper's kernel has it with data journaling; the paper does not say so of NVJ.
pub const NVJ_HOME: Way = stock(way("nvj that goes home at fsync", Profile::Nvj, Place::Nvram));
pub const DJFS: Way = way("djfs", Profile::Djfs, Place::Nvram);
pub const DJFS4: Way = way("djfs4", Profile::Djfs4, Place::Nvram);

impl Way {
    /// A rig with a file system and a journal of so many MiB. Each cache line stored in NVRAM takes `line`.
    #[must_use]
    pub fn plan(&self, model: Model, mib: u64, journal_mib: u64, line: Duration) -> Plan {
        let mut plan = Plan::new(model, self.profile);
        plan.options.checkpoint = self.checkpoint.unwrap_or(plan.options.checkpoint);
        Plan {
            mib,
            journal_mib,
            external: self.place == Place::External,
            nvram: (self.place == Place::Nvram).then_some(line),
            file_tick: TICK,
            ..plan
        }
    }
}
