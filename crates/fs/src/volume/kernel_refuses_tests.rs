//! Images that the kernel refuses, or that only the kernel could write: what a mount does with them.

use super::image_tests::{self, debugfs, run_on};
use crate::testing::TestVolume;
use crate::{Devices, Error, Options, Volume};
use quire_device::SystemClock;
use quire_device::sync::Arc;
use quire_layout::checksum::crc32c;
use quire_layout::features::incompat;
use quire_layout::superblock::{OnError, Superblock};
use quire_layout::{Ino, Structure};
use quire_testkit::{MemDevice, fsck, mke2fs};

/// Opens it; what it is afterwards.
fn open(image: &[u8], options: Options) -> (Result<Volume, Error>, Arc<MemDevice>) {
    let device = Arc::new(MemDevice::new(image.to_vec()));
    (Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options), device)
}

/// A mount is refused because of this structure, and has changed nothing.
fn refused(image: &[u8], structure: Structure, words: &str) {
    for read_only in [false, true] {
        let c = image_tests::refused(image.to_vec(), Options { read_only, ..Options::default() });
        assert!(c.structure == structure && c.to_string().contains(words), "{words}: {c}");
    }
}

/// The number behind these words in what debugfs says.
fn number(image: &[u8], query: &str, words: &str) -> u64 {
    let said = run_on(image, query);
    let digits = said.split_once(words).map(|(_, rest)| rest.trim_start().chars().take_while(char::is_ascii_digit));
    digits.and_then(|d| d.collect::<String>().parse().ok()).unwrap_or_else(|| panic!("{query}: {said}"))
}

/// Where a block of the journal is.
fn in_log(image: &[u8], block: u32) -> u64 {
    run_on(image, &format!("bmap <8> {block}")).trim().parse().unwrap()
}

#[test]
fn structures_with_a_block_in_common_are_refused() {
    for flex in ["flex_bg", "^flex_bg"] {
        let image = mke2fs("32M", &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", flex]);
        let table = number(&image, "show_super_stats", "inode table at ");
        let bitmap = number(&image, "show_super_stats", "inode bitmap at ");
        let log = in_log(&image, 700);
        for (name, at) in
            [("inode_table", log), ("block_bitmap", log), ("block_bitmap", bitmap), ("inode_table", table + 1)]
        {
            let set = format!("set_bg 1 {name} {at}");
            let changed = debugfs(&image, &[&set, "set_bg 1 checksum calc"]);
            let structure = if at == log { Structure::JournalInode } else { Structure::GroupDescriptor };
            refused(&changed, structure, "has a block that another structure of the file system has");
        }
    }
}

#[test]
fn a_journal_that_contradicts_the_superblock_is_refused() {
    let image = mke2fs("16M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    refused(&debugfs(&image, &["ssv journal_dev 0x801"]), Structure::Superblock, "both an inode and a device");
    let short = debugfs(&image, &["sif <8> size 700000"]);
    refused(&short, Structure::JournalSuperblock, "longer than its place");
}

#[test]
fn a_superblock_with_other_checksums_or_impossible_descriptors_is_refused() {
    let mut image = mke2fs("8M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    image[1024 + 0x175] = 7;
    let sum = crc32c(!0, &image[1024..1024 + 0x3FC]);
    image[1024 + 0x3FC..2048].copy_from_slice(&sum.to_le_bytes());
    refused(&image, Structure::Superblock, "unknown type of checksums");
    let image = mke2fs("8M", &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"]);
    refused(&debugfs(&image, &["ssv first_meta_bg 900"]), Structure::Superblock, "first meta block group");
}

/// Another node may use it.
#[test]
fn a_journal_with_mmp_is_not_replayed_and_the_image_not_written() {
    let clean = mke2fs("16M", &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "mmp"]);
    let used = debugfs(&clean, &["feature needs_recovery"]);
    for read_only in [false, true] {
        let (opened, device) = open(&used, Options { read_only, ..Options::default() });
        assert!(matches!(opened.map(drop), Err(Error::Unsupported(u)) if u.to_string().contains("mmp")));
        assert!(device.snapshot() == used);
    }
    for (image, no_load) in [(&used, true), (&clean, false)] {
        let (opened, device) = open(image, Options { read_only: no_load, no_load, ..Options::default() });
        let v = opened.unwrap();
        assert!(v.lookup(Ino::ROOT, b"lost+found").is_ok());
        v.close().unwrap();
        assert!(device.snapshot() == *image, "an image with mmp was written to");
    }
}

#[test]
fn no_name_leads_to_the_orphan_file() {
    let image = mke2fs("16M", &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]);
    let ino = Superblock::decode(&image[1024..]).unwrap().orphan_file_ino();
    let t = TestVolume::on(debugfs(&image, &[&format!("ln <{}> /evil", ino.0)]), Options::default());
    for done in [t.volume.lookup(Ino::ROOT, b"evil").map(drop), t.volume.unlink(Ino::ROOT, b"evil")] {
        assert!(matches!(done, Err(Error::Corrupt(c)) if c.structure == Structure::DirectoryBlock));
    }
    assert!(matches!(t.volume.getattr(ino), Err(Error::Stale(_))));
}

/// The kernel's growth logs bitmaps and descriptors of the new groups before the superblock that tells of them.
#[test]
fn a_log_with_homes_behind_the_old_end_of_the_file_system_is_replayed() {
    const HOME: u32 = 20_000;
    let made = mke2fs("16M", &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum"]);
    let mut image = debugfs(&made, &["feature needs_recovery"]);
    image.resize(48 << 20, 0);
    let log = usize::try_from(in_log(&image, 0)).unwrap() * 1024;
    let sequence: [u8; 4] = image[log + 0x18..log + 0x1C].try_into().unwrap();
    let mut block = |n: usize, words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        image[log + n * 1024..][..bytes.len()].copy_from_slice(&bytes);
    };
    let tid = u32::from_be_bytes(sequence);
    // A descriptor with one tag, the last; its image; a commit block.
    block(1, &[0xC03B_3998, 1, tid, HOME, 8]);
    block(2, &[u32::MAX; 256]);
    block(3, &[0xC03B_3998, 2, tid]);
    image[log + 0x1C..log + 0x20].copy_from_slice(&1u32.to_be_bytes());
    let (opened, device) = open(&image, Options::default());
    opened.unwrap().close().unwrap();
    let after = device.snapshot();
    let home = usize::try_from(HOME).unwrap() * 1024;
    assert!(after[home..home + 1024] == [0xFF; 1024], "it was replayed");
    assert!(!Superblock::decode(&after[1024..]).unwrap().features().has_incompat(incompat::RECOVER));
    image.truncate(home);
    refused(&image, Structure::JournalBlock, "outside the device");
}

/// As `tune2fs -j` leaves an ext2 that is mounted: until e2fsck makes it inode 8, the journal is a file with a name.
#[test]
fn a_journal_with_a_name_can_be_read_and_not_cut() {
    let commands = [
        "write /dev/null .journal",
        "copy_inode <8> <12>",
        "sif <12> links_count 1",
        "clri <8>",
        "ssv journal_inum 12",
    ];
    for args in [&["-t", "ext3", "-b", "1024"][..], &["-t", "ext4", "-b", "1024"]] {
        let image = debugfs(&mke2fs("16M", args), &commands);
        let options = Options { on_error: Some(OnError::RemountReadOnly), ..Options::default() };
        let (volume, device) = open(&image, options.clone());
        let v = volume.unwrap();
        let attr = v.lookup(Ino::ROOT, b".journal").unwrap();
        let mut content = vec![0; usize::try_from(attr.size).unwrap()];
        assert_eq!(v.read(attr.ino, 0, &mut content).unwrap(), 1 << 20);
        assert_eq!((attr.ino, &content[..4]), (Ino(12), &[0xC0, 0x3B, 0x39, 0x98][..]));
        assert_eq!(v.status().read_only, None, "{args:?}");
        v.close().unwrap();
        let left = device.snapshot();
        assert_eq!(Superblock::decode(&left[1024..]).unwrap().error_count(), 0, "{args:?}");
        fsck(&left);
        let v = open(&left, options).0.unwrap();
        assert_eq!(v.truncate(Ino(12), 0).unwrap_err().errno(), 117, "{args:?}: its blocks are the journal's");
    }
}
