//! An image that the test itself serves to the kernel as a device, with faults or costs of the test's choice.

use super::common::{Mounted, Place, quire, said, text};
use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, Io, Ticket};
use quire_mount::expose::{Exposed, expose};
use quire_testkit::MemDevice;
use rustix::process::Signal;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) struct Served<D> {
    pub(crate) place: Place,
    pub(crate) device: Arc<D>,
    exposed: Exposed,
}

/// A device in memory; what it is asked for takes so many milliseconds if it is of a kind.
pub(crate) struct Slow {
    pub(crate) inner: MemDevice,
    is_slow: fn(&Io) -> bool,
    pub(crate) takes: AtomicU64,
}

impl Slow {
    /// As fast as memory, until it is told otherwise.
    pub(crate) fn new(image: Vec<u8>, is_slow: fn(&Io) -> bool) -> Self {
        Slow { inner: MemDevice::new(image), is_slow, takes: AtomicU64::new(0) }
    }
}

impl BlockDevice for Slow {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn submit(&self, batch: Vec<Io>) -> Ticket {
        if batch.iter().any(self.is_slow) {
            thread::sleep(Duration::from_millis(self.takes.load(Ordering::SeqCst)));
        }
        self.inner.submit(batch)
    }
    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.inner.wait(ticket)
    }
}

impl<D: BlockDevice + 'static> Served<D> {
    /// A fresh file system on a device that `make` makes of its image.
    pub(crate) fn of(size: &str, make: impl FnOnce(Vec<u8>) -> D) -> Self {
        let place = Place::new(size, &[]);
        let device = Arc::new(make(fs::read(place.image()).expect("an image")));
        let dir = place.path("device");
        fs::create_dir(&dir).expect("a directory");
        let exposed = expose(device.clone(), Arc::new(String::new), &dir).expect("FUSE serves root");
        Served { place, device, exposed }
    }

    /// The device as a file.
    pub(crate) fn disk(&self) -> std::path::PathBuf {
        self.exposed.disk()
    }

    pub(crate) fn mount(&self, options: &str) -> Mounted {
        self.place.mount_image(&self.disk(), options)
    }

    /// Ends the daemon, if it lives, and takes away what it leaves.
    pub(crate) fn is_over(&self, m: Mounted) {
        if m.is_alive() {
            m.end_by(Signal::KILL);
        }
        said(&mut quire(&["umount", "-l", text(&self.place.mnt())]));
    }
}
