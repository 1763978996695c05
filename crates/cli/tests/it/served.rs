//! An image that the test itself serves to the kernel as a device, with faults or costs of the test's choice.

use super::common::{Mounted, Place, quire, said, text};
use quire_device::BlockDevice;
use quire_mount::expose::{Exposed, expose};
use rustix::process::Signal;
use std::fs;
use std::sync::Arc;

pub(crate) struct Served<D> {
    pub(crate) place: Place,
    pub(crate) device: Arc<D>,
    exposed: Exposed,
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
