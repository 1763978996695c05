//! A sparse image in memory that is copied by sharing: forking it costs nothing, changing it copies one page.
//!
//! ```text
//! Image ──Arc──> tree by 256 KiB ──Arc──> 64 pages of 4 KiB, each an Arc or absent (zeros)
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
// Shared pages take no part in any interleaving: always std's.
use std::sync::Arc;

const PAGE: usize = 4096;
const PAGES: usize = 64;
const LEAF: u64 = (PAGE * PAGES) as u64;

type Page = [u8; PAGE];

#[derive(Clone)]
struct Leaf([Option<Arc<Page>>; PAGES]);

/// The contents of a device. A clone shares all pages.
#[derive(Clone)]
pub struct Image {
    size: u64,
    leaves: Arc<BTreeMap<u64, Arc<Leaf>>>,
}

/// Parts of `at..at + len` that lie in one page each: leaf, page, range in the page.
fn parts(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let small = |n: u64| usize::try_from(n).expect("less than a leaf");
    let mut done = 0;
    std::iter::from_fn(move || {
        let pos = at + done as u64;
        let (leaf, within) = (pos / LEAF, small(pos % LEAF));
        let (page, start) = (within / PAGE, within % PAGE);
        let n = (len - done).min(PAGE - start);
        done += n;
        (n > 0).then_some((leaf, page, start..start + n))
    })
}

impl Image {
    /// `size` bytes of zeros.
    #[must_use]
    pub fn zeroed(size: u64) -> Image {
        Image { size, leaves: Arc::default() }
    }

    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Image {
        let mut image = Image::zeroed(bytes.len() as u64);
        for (i, page) in bytes.chunks(PAGE).enumerate() {
            if page.iter().any(|b| *b != 0) {
                image.write((i * PAGE) as u64, page);
            }
        }
        image
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(path: &Path) -> io::Result<Image> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut image = Image::zeroed(size);
        let mut chunk = vec![0; PAGE * PAGES];
        let mut at = 0;
        while at < size {
            let n = usize::try_from(size - at).map_or(chunk.len(), |n| n.min(chunk.len()));
            file.read_exact_at(&mut chunk[..n], at)?;
            for (i, page) in chunk[..n].chunks(PAGE).enumerate() {
                if page.iter().any(|b| *b != 0) {
                    image.write(at + (i * PAGE) as u64, page);
                }
            }
            at += n as u64;
        }
        Ok(image)
    }

    /// Writes the image to a (sparse) file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        for (leaf, pages) in self.leaves.iter() {
            for (i, page) in pages.0.iter().enumerate() {
                let at = leaf * LEAF + (i * PAGE) as u64;
                if let Some(page) = page {
                    let n = usize::try_from(self.size - at).map_or(PAGE, |n| n.min(PAGE));
                    file.write_all_at(&page[..n], at)?;
                }
            }
        }
        Ok(())
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `to` with the bytes at `at`.
    ///
    /// # Panics
    /// If the range lies outside.
    pub fn read(&self, at: u64, to: &mut [u8]) {
        self.check(at, to.len() as u64);
        let mut done = 0;
        for (leaf, page, range) in parts(at, to.len()) {
            let into = &mut to[done..done + range.len()];
            done += range.len();
            match self.leaves.get(&leaf).and_then(|l| l.0[page].as_ref()) {
                Some(p) => into.copy_from_slice(&p[range]),
                None => into.fill(0),
            }
        }
    }

    /// Puts `from` at `at`.
    ///
    /// # Panics
    /// If the range lies outside.
    pub fn write(&mut self, at: u64, from: &[u8]) {
        self.check(at, from.len() as u64);
        let leaves = Arc::make_mut(&mut self.leaves);
        let mut done = 0;
        for (leaf, page, range) in parts(at, from.len()) {
            let leaf = leaves.entry(leaf).or_insert_with(|| Arc::new(Leaf([const { None }; PAGES])));
            let page = Arc::make_mut(leaf).0[page].get_or_insert_with(|| Arc::new([0; PAGE]));
            let n = range.len();
            Arc::make_mut(page)[range].copy_from_slice(&from[done..done + n]);
            done += n;
        }
    }

    /// The pages that this image does not share with another one of the same size: where they are, and what lies there
    /// in each. A page that is not shared may yet hold the same bytes. Costs as much as there are such pages, if one is
    /// a fork of the other.
    pub fn unshared<'a>(&'a self, other: &'a Image) -> impl Iterator<Item = (u64, &'a [u8], &'a [u8])> {
        static ZEROS: Page = [0; PAGE];
        let keys = self.leaves.keys().chain(other.leaves.keys().filter(|k| !self.leaves.contains_key(k)));
        keys.flat_map(move |k| {
            let (a, b) = (self.leaves.get(k), other.leaves.get(k));
            let shared = matches!((a, b), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
            let pages = if shared { 0..0 } else { 0..PAGES };
            pages.filter_map(move |i| {
                let (a, b) = (a.and_then(|l| l.0[i].as_ref()), b.and_then(|l| l.0[i].as_ref()));
                let same = match (a, b) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                let bytes = |p: Option<&'a Arc<Page>>| -> &'a [u8] { p.map_or(&ZEROS[..], |p| &p[..]) };
                (!same).then(|| (k * LEAF + (i * PAGE) as u64, bytes(a), bytes(b)))
            })
        })
    }

    /// All bytes.
    ///
    /// # Panics
    /// If they do not fit into memory.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.size).expect("fits into memory")];
        self.read(0, &mut bytes);
        bytes
    }

    fn check(&self, at: u64, len: u64) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.size), "{len} bytes at {at} of {}", self.size);
    }
}

impl PartialEq for Image {
    /// Same size and same bytes.
    fn eq(&self, other: &Image) -> bool {
        let zero = |p: Option<&Arc<Page>>| p.is_none_or(|p| p.iter().all(|b| *b == 0));
        let same = |a: Option<&Arc<Leaf>>, b: Option<&Arc<Leaf>>| {
            (0..PAGES).all(|i| match (a.and_then(|l| l.0[i].as_ref()), b.and_then(|l| l.0[i].as_ref())) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
                (one, none) => zero(one.or(none)),
            })
        };
        let mut keys = self.leaves.keys().chain(other.leaves.keys());
        self.size == other.size && keys.all(|k| same(self.leaves.get(k), other.leaves.get(k)))
    }
}

impl Eq for Image {}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} bytes)", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_across_pages_and_leaves() {
        let mut image = Image::zeroed(3 * LEAF);
        let bytes: Vec<u8> = (0..10_000u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        image.write(LEAF - 5000, &bytes);
        let mut back = vec![9; 12_000];
        image.read(LEAF - 6000, &mut back);
        assert!(back[..1000].iter().chain(&back[11_000..]).all(|b| *b == 0));
        assert_eq!(back[1000..11_000], bytes);
        assert_eq!(Image::from_bytes(&image.to_vec()), image);
    }

    #[test]
    fn a_fork_is_independent_and_shares_what_is_equal() {
        let mut a = Image::from_bytes(&vec![1; 64 << 20]);
        let forks: Vec<Image> = (0..10_000).map(|_| a.clone()).collect();
        let mut b = a.clone();
        b.write(5000, &[2; 10]);
        a.write(40_000, &[3; 10]);
        let byte = |i: &Image, at| {
            let mut one = [0];
            i.read(at, &mut one);
            one[0]
        };
        assert_eq!([byte(&a, 5000), byte(&b, 5000), byte(&a, 40_000), byte(&b, 40_000)], [1, 2, 3, 1]);
        assert!(forks.iter().all(|f| *f == forks[0]) && a != b && byte(&forks[0], 5000) == 1);
    }

    #[test]
    fn zeros_equal_absence_and_files_keep_contents() {
        let (mut a, b) = (Image::zeroed(1 << 20), Image::zeroed(1 << 20));
        a.write(8192, &[0; 512]);
        assert_eq!(a, b);
        a.write((1 << 20) - 700, &[7; 700]);
        let dir = tempfile::tempdir().unwrap();
        a.save(&dir.path().join("i")).unwrap();
        assert_eq!(Image::load(&dir.path().join("i")).unwrap(), a);
    }

    #[test]
    fn what_is_not_shared_is_named() {
        let a = Image::from_bytes(&vec![1; 1 << 20]);
        let mut b = a.clone();
        b.write(LEAF + 5000, &[2; 10]);
        b.write(3 * LEAF - 1, &[3; 2]);
        let places = |x: &Image, y: &Image| x.unshared(y).map(|(at, ..)| at).collect::<Vec<_>>();
        assert_eq!(places(&a, &b), [LEAF + 4096, 3 * LEAF - 4096, 3 * LEAF]);
        assert_eq!(places(&b, &a), places(&a, &b));
        assert!(a.unshared(&a).next().is_none());
        let empty = Image::zeroed(1 << 20);
        assert_eq!(empty.unshared(&a).count(), 256);
        assert!(b.unshared(&a).all(|(_, x, y)| x != y && x.len() == PAGE));
    }

    #[test]
    #[should_panic(expected = "10 bytes at 1020 of 1024")]
    fn outside_is_a_bug() {
        Image::zeroed(1024).write(1020, &[0; 10]);
    }
}
