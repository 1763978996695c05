//! For the tests of this crate: volumes in memory, judged by e2fsck.

use crate::{Devices, Options, Volume};
use quire_device::SystemClock;
use quire_device::sync::Arc;
use quire_testkit::{MemDevice, fsck, mke2fs};

/// An image in memory with a volume on it.
pub(crate) struct TestVolume {
    pub(crate) device: Arc<MemDevice>,
    pub(crate) volume: Volume,
}

impl TestVolume {
    /// A volume on a fresh image.
    pub(crate) fn new(size: &str, args: &[&str]) -> Self {
        Self::on(mke2fs(size, args), Options::default())
    }

    /// A volume on an image.
    pub(crate) fn on(image: Vec<u8>, options: Options) -> Self {
        let device = Arc::new(MemDevice::new(image));
        let volume = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options).expect("mount");
        TestVolume { device, volume }
    }

    /// Unmounts and asks e2fsck. The volume cannot be changed afterwards.
    pub(crate) fn check(&self) {
        self.volume.close().expect("unmount");
        fsck(&self.device.snapshot());
    }
}

impl Volume {
    /// Runs an operation, as the calls of the volume do.
    pub(crate) fn run<T>(&self, f: impl FnMut(&mut crate::txn::Op<'_>) -> crate::Result<T>) -> crate::Result<T> {
        self.engine().run(f)
    }

    pub(crate) fn engine(&self) -> &crate::engine::Engine {
        &self.inner.engine
    }

    pub(crate) fn data(&self) -> &crate::data::Data {
        &self.inner.data
    }
}
