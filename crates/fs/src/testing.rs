//! For the tests of this crate: volumes in memory, judged by e2fsck.

use crate::{Devices, Options, Volume};
use quire_device::SystemClock;
use quire_device::sync::Arc;
use quire_layout::features::compat;
use quire_layout::superblock::Superblock;
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

/// Ties an image without a log to a log of its block size (`mke2fs` ties block devices only); the log's device.
pub(crate) fn tie_to_log(fs: &mut [u8], size: &str) -> Vec<u8> {
    let block_size = Superblock::decode(&fs[1024..]).expect("sound").block_size().bytes().to_string();
    let log = mke2fs(size, &["-b", &block_size, "-O", "journal_dev"]);
    // Behind a boot block, a superblock with the log's UUID.
    let uuid = &log[1024 + 0x68..1024 + 0x78];
    fs[1024 + 0xD0..1024 + 0xE0].copy_from_slice(uuid);
    set_has_journal(fs, true);
    log
}

/// Takes the log from an image that needs none: e2fsck asks for the log's device otherwise.
pub(crate) fn untie(fs: &mut [u8]) {
    fs[1024 + 0xD0..1024 + 0xE0].fill(0);
    set_has_journal(fs, false);
}

fn set_has_journal(fs: &mut [u8], has: bool) {
    let mut sb = Superblock::decode_unverified(&fs[1024..2048]).expect("a superblock");
    let mut features = sb.features();
    features.compat = if has { features.compat | compat::HAS_JOURNAL } else { features.compat & !compat::HAS_JOURNAL };
    sb.set_features(features);
    sb.seal();
    fs[1024..2048].copy_from_slice(sb.bytes());
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
