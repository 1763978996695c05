//! Makes the checksums of damaged structures right, so that the damage gets past them.
//!
//! The seeds are those of the base image. What is so broken that its checksum has no place is left as it is.

use super::base::Base;
use super::places::{Kind, Place};
use quire_layout::bytes::{le16, put_be32, put_le16, put_le32};
use quire_layout::checksum::{crc32c, crc32c_le32};
use quire_layout::group_desc::DescChecksum;
use quire_layout::inode::Inode;
use quire_layout::jbd2::{Checksums, JournalSuperblock};
use quire_layout::{Ino, Tid, bitmap, orphan_file, xattr};
use quire_testkit::Image;

impl Base {
    /// Seals the places with these numbers.
    pub(super) fn seal(&self, image: &mut Image, touched: &[usize]) {
        let mut todo: Vec<Place> = touched.iter().map(|i| self.places[*i]).collect();
        let more: Vec<Place> = todo.iter().filter_map(|p| self.covered_by(p)).collect();
        todo.extend(more);
        todo.sort_by_key(|p| (p.kind.order(), p.at));
        todo.dedup();
        for p in todo {
            let mut b = vec![0; p.len];
            image.read(p.at, &mut b);
            self.seal_place(image, &p, &mut b);
            image.write(p.at, &b);
        }
    }

    /// The place that holds another's checksum.
    fn covered_by(&self, p: &Place) -> Option<Place> {
        let holds = |q: &&Place| match p.kind {
            Kind::BlockBitmap(g) | Kind::InodeBitmap(g) => q.kind == Kind::Descriptor(g),
            Kind::LogImage { tag, .. } => q.kind == Kind::LogDescriptor && (q.at..q.end()).contains(&tag),
            _ => false,
        };
        self.places.iter().find(holds).copied()
    }

    fn seal_place(&self, image: &mut Image, p: &Place, b: &mut [u8]) {
        let fs_seed = self.sb.features().metadata_csum().then(|| self.sb.checksum_seed());
        match p.kind {
            Kind::Superblock if fs_seed.is_some() => {
                let sum = crc32c(!0, &b[..0x3FC]);
                put_le32(b, 0x3FC, sum);
            }
            Kind::Descriptor(g) => match DescChecksum::of(&self.sb) {
                DescChecksum::Crc32c(seed) => {
                    put_le16(b, 0x1E, 0);
                    let sum = crc32c(crc32c_le32(seed, g.0), b).to_le_bytes();
                    b[0x1E..0x20].copy_from_slice(&sum[..2]);
                }
                DescChecksum::Crc16(_) | DescChecksum::None => {}
            },
            Kind::BlockBitmap(_) if fs_seed.is_some() => {
                self.put_bitmap_sum(image, p, 0x18, 0x38, bitmap::block_bitmap_checksum(&self.sb, b));
            }
            Kind::InodeBitmap(_) if fs_seed.is_some() => {
                self.put_bitmap_sum(image, p, 0x1A, 0x3A, bitmap::inode_bitmap_checksum(&self.sb, b));
            }
            Kind::Inode(ino) => {
                if let Ok(mut inode) = Inode::decode(ino, b, None) {
                    b.copy_from_slice(inode.sealed(ino, fs_seed));
                }
            }
            Kind::ExtentNode(ino) => {
                let tail = 12 * (usize::from(le16(b, 4)) + 1);
                if let (Some(seed), true) = (self.seed(ino), tail + 4 <= b.len()) {
                    let sum = crc32c(seed, &b[..tail]);
                    put_le32(b, tail, sum);
                }
            }
            Kind::DirLeaf(ino) => {
                if let Some(seed) = self.seed(ino) {
                    let (at, sum) = (b.len() - 4, crc32c(seed, &b[..b.len() - 12]));
                    put_le32(b, at, sum);
                }
            }
            Kind::HtreeRoot(ino) => seal_index(b, 32, self.seed(ino)),
            Kind::HtreeNode(ino) => seal_index(b, 8, self.seed(ino)),
            Kind::Xattrs => xattr::seal_block(b, p.block, fs_seed),
            Kind::OrphanFile(ino) => orphan_file::seal(b, p.block, self.seed(ino)),
            // A log that was never used may have none.
            Kind::JournalSuperblock if self.log_format().is_some_and(|f| f.sealed()) => {
                put_le32(b, 0xFC, 0);
                let sum = crc32c(!0, &b[..1024]);
                put_be32(b, 0xFC, sum);
            }
            Kind::LogDescriptor | Kind::LogRevoke => self.seal_log(b, p.len - 4),
            Kind::LogCommit => self.seal_log(b, 0x10),
            Kind::LogImage { tag, tid } => {
                if let Some(f) = self.log_format().filter(|f| f.checksums == Checksums::V3) {
                    image.write(tag + 12, &f.seed.image(Tid(tid), b).to_be_bytes());
                }
            }
            _ => {}
        }
    }

    /// Seed of the blocks of an inode.
    fn seed(&self, ino: Ino) -> Option<u32> {
        let place = self.places.iter().find(|p| p.kind == Kind::Inode(ino))?;
        let mut raw = vec![0; place.len];
        self.image.read(place.at, &mut raw);
        let inode = Inode::decode(ino, &raw, None).ok()?;
        self.sb.features().metadata_csum().then(|| inode.checksum_seed(ino, self.sb.checksum_seed()))
    }

    fn put_bitmap_sum(&self, image: &mut Image, p: &Place, lo: u64, hi: u64, sum: u32) {
        let Some(d) = self.covered_by(p) else { return };
        let sum = sum.to_le_bytes();
        image.write(d.at + lo, &sum[..2]);
        if d.len >= 64 {
            image.write(d.at + hi, &sum[2..]);
        }
    }

    fn log_format(&self) -> Option<quire_layout::jbd2::LogFormat> {
        let p = self.places.iter().find(|p| p.kind == Kind::JournalSuperblock)?;
        let mut b = vec![0; p.len];
        self.image.read(p.at, &mut b);
        JournalSuperblock::decode(&b).ok()?.log_format().ok()
    }

    fn seal_log(&self, b: &mut [u8], at: usize) {
        if let Some(f) = self.log_format().filter(|f| f.sealed()) {
            put_be32(b, at, 0);
            let sum = crc32c(f.seed.0, b);
            put_be32(b, at, sum);
        }
    }
}

fn seal_index(b: &mut [u8], pairs: usize, seed: Option<u32>) {
    let (limit, count) = (usize::from(le16(b, pairs)), usize::from(le16(b, pairs + 2)));
    let (tail, used) = (pairs + 8 * limit, pairs + 8 * count);
    if let (Some(seed), true) = (seed, tail + 8 <= b.len() && used <= b.len()) {
        let sum = crc32c_le32(crc32c(crc32c(seed, &b[..used]), &b[tail..tail + 4]), 0);
        put_le32(b, tail + 4, sum);
    }
}
