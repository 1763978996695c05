//! The devices of a volume.

use quire_device::sync::Arc;
use quire_device::{BlockDevice, Nvram};

/// The devices of a volume.
#[derive(Clone)]
pub struct Devices {
    pub fs: Arc<dyn BlockDevice>,
    /// The journal's device, if the journal is not inside the file system.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// The memory that holds the journal, or is to hold it.
    pub nvram: Option<Arc<dyn Nvram>>,
}

impl Devices {
    #[must_use]
    pub fn one(fs: Arc<dyn BlockDevice>) -> Self {
        Devices { fs, journal: None, nvram: None }
    }

    /// With a memory for the journal.
    #[must_use]
    pub fn with_nvram(self, nvram: Arc<dyn Nvram>) -> Self {
        Devices { nvram: Some(nvram), ..self }
    }
}
