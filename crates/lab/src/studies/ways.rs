//! The ways to keep a journal that DJFS compares.

use std::time::Duration;

use quire_fs::Profile;
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
    pub place: Place,
}

const fn way(name: &'static str, profile: Profile, place: Place) -> Way {
    Way { name, profile, place }
}

pub const NONE: Way = way("ext4-none", Profile::Ext4None, Place::Internal);
pub const ORDERED: Way = way("ext4-ordered", Profile::Ext4Ordered, Place::Internal);
pub const JOURNAL: Way = way("ext4-journal", Profile::Ext4Journal, Place::Internal);
pub const EXTERNAL: Way = way("external", Profile::Ext4Journal, Place::External);
pub const NVJ: Way = way("nvj", Profile::Nvj, Place::Nvram);
pub const DJFS: Way = way("djfs", Profile::Djfs, Place::Nvram);
pub const DJFS4: Way = way("djfs4", Profile::Djfs4, Place::Nvram);

impl Way {
    /// A rig with a file system and a journal of so many MiB. Each cache line stored in NVRAM takes `line`.
    #[must_use]
    pub fn plan(&self, model: Model, mib: u64, journal_mib: u64, line: Duration) -> Plan {
        Plan {
            mib,
            journal_mib,
            external: self.place == Place::External,
            nvram: (self.place == Place::Nvram).then_some(line),
            ..Plan::new(model, self.profile)
        }
    }
}
