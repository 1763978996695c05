//! A page cache above a volume: what the kernel's is to a mount. Written pages stay here until their file is made
//! durable or closed, and go to the volume in long runs; what is deleted before does not. For files that one program
//! has open.

use std::collections::{BTreeMap, HashMap, btree_map, hash_map};

use quire_fs::{Error, Volume, WriteFlags};
use quire_layout::Ino;

const PAGE: usize = 4096;
/// Pages that are written at once, as many as a FUSE request carries.
const RUN: usize = 256;

#[derive(Default)]
pub(super) struct Pages {
    files: HashMap<Ino, Cached>,
}

/// A file with pages that the volume does not have.
struct Cached {
    size: u64,
    dirty: BTreeMap<u64, Box<[u8; PAGE]>>,
}

/// The parts of pages that `len` bytes at `at` touch: number, range within the page, range within the bytes.
fn parts(at: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let here = at + done as u64;
        let start = usize::try_from(here % PAGE as u64).expect("within a page");
        let n = (PAGE - start).min(len - done);
        done += n;
        (n > 0).then(|| (here / PAGE as u64, start..start + n, done - n..done))
    })
}

impl Pages {
    /// The file's size, if it has pages here.
    pub(super) fn size(&self, ino: Ino) -> Option<u64> {
        self.files.get(&ino).map(|f| f.size)
    }

    pub(super) fn read(&self, volume: &Volume, ino: Ino, at: u64, to: &mut [u8]) -> Result<usize, Error> {
        let Some(file) = self.files.get(&ino) else { return volume.read(ino, at, to) };
        let len = to.len().min(usize::try_from(file.size.saturating_sub(at)).unwrap_or(usize::MAX));
        let to = &mut to[..len];
        let below = volume.read(ino, at, to)?;
        to[below..].fill(0);
        for (page, within, part) in parts(at, len) {
            if let Some(bytes) = file.dirty.get(&page) {
                to[part].copy_from_slice(&bytes[within]);
            }
        }
        Ok(len)
    }

    pub(super) fn write(&mut self, volume: &Volume, ino: Ino, at: u64, from: &[u8]) -> Result<(), Error> {
        let file = match self.files.entry(ino) {
            hash_map::Entry::Occupied(file) => file.into_mut(),
            hash_map::Entry::Vacant(no) => {
                no.insert(Cached { size: volume.getattr(ino)?.size, dirty: BTreeMap::new() })
            }
        };
        for (page, within, part) in parts(at, from.len()) {
            let bytes = match file.dirty.entry(page) {
                btree_map::Entry::Occupied(bytes) => bytes.into_mut(),
                btree_map::Entry::Vacant(no) => {
                    let mut bytes = Box::new([0; PAGE]);
                    if within.len() < PAGE {
                        volume.read(ino, page * PAGE as u64, &mut bytes[..])?;
                    }
                    no.insert(bytes)
                }
            };
            bytes[within].copy_from_slice(&from[part]);
        }
        file.size = file.size.max(at + from.len() as u64);
        Ok(())
    }

    /// The volume is yet to be told.
    pub(super) fn truncate(&mut self, ino: Ino, size: u64) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        file.size = size;
        drop(file.dirty.split_off(&size.div_ceil(PAGE as u64)));
        let tail = usize::try_from(size % PAGE as u64).expect("within a page");
        if tail > 0
            && let Some(last) = file.dirty.get_mut(&(size / PAGE as u64))
        {
            last[tail..].fill(0);
        }
    }

    /// Hands the file's pages to the volume.
    pub(super) fn write_back(&mut self, volume: &Volume, ino: Ino) -> Result<(), Error> {
        let Some(file) = self.files.remove(&ino) else { return Ok(()) };
        let pages: Vec<_> = file.dirty.into_iter().collect();
        for run in pages.chunk_by(|a, b| a.0 + 1 == b.0).flat_map(|run| run.chunks(RUN)) {
            let at = run[0].0 * PAGE as u64;
            let mut bytes = Vec::with_capacity(run.len() * PAGE);
            run.iter().for_each(|(_, page)| bytes.extend_from_slice(&page[..]));
            bytes.truncate(usize::try_from(file.size - at).unwrap_or(usize::MAX));
            volume.write(ino, at, &bytes, WriteFlags::default())?;
        }
        Ok(())
    }

    /// The file is closed: its pages go to the volume, unless it has no name any more.
    pub(super) fn close(&mut self, volume: &Volume, ino: Ino) -> Result<(), Error> {
        if self.files.contains_key(&ino) && volume.getattr(ino)?.links == 0 {
            self.files.remove(&ino);
        }
        self.write_back(volume, ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Plan, Rig};
    use quire_fs::Profile;
    use quire_testkit::Model;

    #[test]
    fn pages_are_what_was_written_and_reach_the_volume_when_they_are_written_back() {
        let rig =
            Rig::new(&Plan { mib: 64, journal_mib: 4, ..Plan::new(Model::default(), Profile::Ext4Ordered) }).unwrap();
        let (volume, mut pages) = (&rig.volume, Pages::default());
        let ino = rig.create(Ino::ROOT, "f").unwrap();
        let (mut file, mut rng) = (Vec::new(), quire_testkit::Rng::from_parts(&[5]));
        for n in 0..2000u64 {
            let (at, len) = (rng.index(60_000), rng.index(9000));
            let byte = u8::try_from(n % 251).unwrap();
            match n % 10 {
                0 => {
                    file.resize(at, 0);
                    pages.truncate(ino, at as u64);
                    volume.truncate(ino, at as u64).unwrap();
                }
                5 => {
                    pages.write_back(volume, ino).unwrap();
                    assert_eq!((pages.size(ino), volume.getattr(ino).unwrap().size), (None, file.len() as u64));
                }
                _ => {
                    file.resize(file.len().max(at + len), 0);
                    file[at..at + len].fill(byte);
                    pages.write(volume, ino, at as u64, &vec![byte; len]).unwrap();
                }
            }
            let mut got = vec![1; 70_000 - at];
            let n = pages.read(volume, ino, at as u64, &mut got).unwrap();
            assert!(got[..n] == file[at.min(file.len())..], "after step {n}");
        }
        pages.write(volume, ino, 0, b"never written").unwrap();
        volume.unlink(Ino::ROOT, b"f").unwrap();
        let before = volume.read(ino, 0, &mut [0; 13]).unwrap();
        pages.close(volume, ino).unwrap();
        assert_eq!((pages.size(ino), volume.read(ino, 0, &mut [0; 13]).unwrap()), (None, before));
        volume.forget(ino, 1);
        rig.close().unwrap();
    }
}
