//! The images that this process has open: each once, shared by all connections, closed with its last file.
//!
//! ```text
//! first file ──open, lock, recover──> in use by n files ──last file closed──> clean image, lock given up
//! ```
//! *Guarantees* (S3): an image is open while a file in it is, and no longer; who opens it while it is being closed
//! waits. The library's lock on the image keeps other processes out meanwhile. A child that was forked meanwhile leaves
//! alone what it has inherited, and opens images for itself: the library refuses it those of its parent (M3).

use crate::node::Nodes;
use quire::{Error, ErrorKind, FileSystem, Result};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Begins the name of a file system that the program has brought ([`adopt`]).
pub(super) const ADOPTED: u8 = b'@';

/// An open image.
pub(super) struct Image {
    pub(super) fs: FileSystem,
    pub(super) nodes: Nodes,
    /// The first connection asked for no more than reading.
    read_only: bool,
    pub(super) promises: crate::storage::Promises,
}

/// A place for an image.
struct Place {
    /// The process that has made it. Of another one a child has but a copy, whose lock may be held for ever.
    process: u32,
    /// Held while the image is opened or closed.
    filled: Mutex<Filled>,
}

#[derive(Default)]
struct Filled {
    image: Option<Arc<Image>>,
    files: usize,
}

/// Every image that was opened, by its name.
fn places() -> MutexGuard<'static, BTreeMap<Vec<u8>, Arc<Place>>> {
    static PLACES: OnceLock<Mutex<BTreeMap<Vec<u8>, Arc<Place>>>> = OnceLock::new();
    PLACES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the name of an open image ends in a full name.
pub(super) fn longest_open(name: &[u8]) -> Option<usize> {
    let fits = |image: &[u8]| name.get(image.len()) == Some(&b'/') && name.starts_with(image);
    places().iter().filter(|(image, place)| place.is_ours() && fits(image)).map(|(image, _)| image.len()).max()
}

/// What a use of an image needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// An image that is not open yet is opened for reading only, beside other readers.
    Read,
    /// However it is open.
    Any,
    Write,
}

/// A use of an image.
pub(super) struct Use {
    place: Arc<Place>,
    name: Vec<u8>,
    image: Option<Arc<Image>>,
}

impl Image {
    fn new(fs: FileSystem, read_only: bool) -> Arc<Self> {
        let info = fs.info();
        let promises = crate::storage::Promises {
            whole_write_bytes: info.atomic_write_bytes.unwrap_or(0),
            // Updates need the log, too; an image may have a journal that is not used.
            safe_append: info.atomic_updates,
            updates: info.atomic_updates,
            subpage_reads: true,
        };
        Arc::new(Image { fs, nodes: Nodes::default(), read_only, promises })
    }
}

impl Place {
    fn new(filled: Filled) -> Arc<Self> {
        Arc::new(Place { process: std::process::id(), filled: Mutex::new(filled) })
    }

    fn filled(&self) -> MutexGuard<'_, Filled> {
        self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False: this process was forked from the one that has made it.
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// The place of an image, which is made if there is none. A place that the parent of this process has made is
    /// replaced, and neither locked nor dropped.
    ///
    /// # Errors
    /// Not found, stale: a file system that this process has not adopted.
    fn of(name: &[u8]) -> Result<Arc<Self>> {
        let mut places = places();
        let known = places.get(name);
        if let Some(place) = known.filter(|place| place.is_ours()) {
            return Ok(place.clone());
        }
        if name.first() == Some(&ADOPTED) {
            let (kind, why) = match known {
                Some(_) => (ErrorKind::Stale, "another process has adopted the file system of this name"),
                None => (ErrorKind::NotFound, "no file system of this name is adopted"),
            };
            return Err(Error::new(kind, why).at(OsStr::from_bytes(name)));
        }
        let place = Place::new(Filled::default());
        std::mem::forget(places.insert(name.to_vec(), place.clone()));
        Ok(place)
    }
}

impl Use {
    /// Uses an image: opens it, if no other file of this process is in it.
    ///
    /// # Errors
    /// Not found; busy: another process has it, or a connection of this process has it for reading only; no ext4;
    /// corrupt; I/O.
    pub(super) fn of(name: &[u8], need: Need) -> Result<Use> {
        loop {
            // The place comes first, so that two threads wait for one another here and not at the image's lock.
            let place = Place::of(name)?;
            let mut filled = place.filled();
            // Who closed it meanwhile has taken the place out of the table.
            if !places().get(name).is_some_and(|p| Arc::ptr_eq(p, &place)) {
                continue;
            }
            if filled.image.is_none() {
                match open(name, need != Need::Read) {
                    Ok(image) => filled.image = Some(image),
                    Err(e) => {
                        places().remove(name);
                        return Err(e);
                    }
                }
            }
            let image = filled.image.clone();
            if need == Need::Write && image.as_ref().is_some_and(|i| i.read_only) {
                let why = "a connection of this process has the image open for reading only";
                return Err(Error::new(ErrorKind::Busy, why).at(OsStr::from_bytes(name)));
            }
            filled.files += 1;
            drop(filled);
            return Ok(Use { place, name: name.to_vec(), image });
        }
    }

    pub(super) fn image(&self) -> &Image {
        self.image.as_ref().expect("a use has an image until it ends")
    }

    /// Ends the use, and with the last one leaves a clean image.
    ///
    /// # Errors
    /// Something could not be written.
    pub(super) fn end(mut self) -> Result<()> {
        self.leave()
    }

    fn leave(&mut self) -> Result<()> {
        let Some(image) = self.image.take() else { return Ok(()) };
        if !self.place.is_ours() {
            // It is counted, and ends, in the parent of this process.
            std::mem::forget(image);
            return Ok(());
        }
        let mut filled = self.place.filled();
        filled.files -= 1;
        if filled.files > 0 || self.name.first() == Some(&ADOPTED) {
            return Ok(());
        }
        filled.image = None;
        let closed = image.fs.clone().close();
        drop(image);
        places().remove(&self.name);
        closed
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        // `end` tells errors. Here the library has logged them, and the image recovers.
        self.leave().ok();
    }
}

fn open(name: &[u8], write: bool) -> Result<Arc<Image>> {
    let path = OsStr::from_bytes(name);
    // A commit waits for the disk, and SQLite has a cache of its own.
    let options = || FileSystem::options().quire_log(true).direct(true);
    if !write {
        return Ok(Image::new(options().read_only(true).open(path)?, true));
    }
    match options().open(path) {
        // As SQLite's own VFS: what cannot be written can be read.
        Err(e) if matches!(e.kind(), ErrorKind::ReadOnly | ErrorKind::PermissionDenied) => {
            Ok(Image::new(options().read_only(true).open(path).map_err(|_| e)?, false))
        }
        fs => Ok(Image::new(fs?, false)),
    }
}

/// A file system that the program has brought, while it is known as `@NAME`.
#[must_use = "dropping it ends the name"]
pub struct Adopted {
    name: Vec<u8>,
    place: Arc<Place>,
}

/// Makes a file system known to the VFS as the image `@NAME`: one in memory, on a device of the program's, or one that
/// the program has open itself. Databases in it are `file:@NAME/PATH?vfs=quire`.
///
/// The file system stays the caller's: it is not closed with its last database, and not when the name ends. The name
/// must last as long as databases in it are open.
///
/// # Errors
/// Exists: the name. Invalid: it is empty or has a `/`.
pub fn adopt(name: &str, fs: FileSystem) -> Result<Adopted> {
    if name.is_empty() || name.contains('/') {
        return Err(Error::new(ErrorKind::InvalidInput, "a name without / is expected").at(name));
    }
    let whole = [&[ADOPTED], name.as_bytes()].concat();
    let filled = Filled { image: Some(Image::new(fs, false)), files: 0 };
    let mut places = places();
    if places.get(&whole).is_some_and(|place| place.is_ours()) {
        return Err(Error::new(ErrorKind::Exists, "a file system of this name is adopted").at(name));
    }
    let place = Place::new(filled);
    std::mem::forget(places.insert(whole.clone(), place.clone()));
    Ok(Adopted { name: whole, place })
}

impl Drop for Adopted {
    fn drop(&mut self) {
        // A child has but a copy of the table, which may have a name of its own in the place of this one.
        if !self.place.is_ours() {
            return;
        }
        let mut places = places();
        let known = places.get(&self.name).is_some_and(|place| Arc::ptr_eq(place, &self.place));
        let ended = known.then(|| places.remove(&self.name));
        // With the place may go the file system's last handle, which closes it.
        drop(places);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::{DeviceError, DeviceInfo, Done, Io, MemDevice, Ticket};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// Longer than any close takes.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn memory() -> MemDevice {
        MemDevice::new(quire_testkit::mke2fs("4M", &["-t", "ext4"]))
    }

    /// A device whose driver uses the table, as one that reaches its bytes by a database does.
    struct Looks(MemDevice);

    impl quire::BlockDevice for Looks {
        fn info(&self) -> DeviceInfo {
            self.0.info()
        }

        fn submit(&self, batch: Vec<Io>) -> Ticket {
            assert_eq!(longest_open(b"none"), None);
            self.0.submit(batch)
        }

        fn wait(&self, ticket: Ticket) -> std::result::Result<Done, DeviceError> {
            self.0.wait(ticket)
        }
    }

    #[test]
    fn file_system_whose_name_ends_is_closed_without_the_tables_lock() {
        let fs = FileSystem::options().open_device(Arc::new(Looks(memory()))).unwrap();
        let adopted = adopt("looks", fs).unwrap();
        let (tell, ended) = mpsc::channel();
        thread::spawn(move || {
            drop(adopted);
            tell.send(())
        });
        ended.recv_timeout(PATIENCE).expect("the close waits for the table");
    }

    /// A child has adopted a file system by a name of its parent's, and drops what it has inherited.
    #[test]
    fn name_of_a_child_stays_when_it_drops_that_of_its_parent() {
        let fs = FileSystem::options().open_device(Arc::new(memory())).unwrap();
        let own = adopt("inherited", fs.clone()).unwrap();
        let filled = Mutex::new(Filled { image: Some(Image::new(fs, false)), files: 0 });
        let place = Arc::new(Place { process: !std::process::id(), filled });
        drop(Adopted { name: own.name.clone(), place });
        assert!(Place::of(&own.name).is_ok());
    }
}
