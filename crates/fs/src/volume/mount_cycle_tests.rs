//! Mount, crash, recover, unmount: the image is always what its flags say.

use super::image_tests::debugfs;
use super::recovery::JournalError;
use crate::testing::{TestVolume, tie_to_log};
use crate::{Choices, Cred, Devices, Error, New, NewKind, Options, Profile, Route};
use crate::{SetAttr, SetTime, Volume, WriteFlags};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, SystemClock};
use quire_journal::NvramProblem;
use quire_layout::features::incompat;
use quire_layout::jbd2::JournalSuperblock;
use quire_layout::superblock::{Superblock, state};
use quire_layout::{Corrupt, Ino};
use quire_testkit::{MemDevice, NvramModel, fsck, mke2fs, run};

fn superblock(image: &[u8]) -> Superblock {
    Superblock::decode(&image[1024..]).unwrap()
}

fn needs_recovery(image: &[u8]) -> bool {
    superblock(image).features().has_incompat(incompat::RECOVER)
}

fn touch_root(v: &Volume, secs: i64) {
    let mtime = Some(SetTime::At(quire_layout::inode::Timestamp { secs, nanos: 7 }));
    v.setattr(Ino::ROOT, &SetAttr { mtime, ..SetAttr::default() }).unwrap();
}

fn root_mtime(v: &Volume) -> i64 {
    v.getattr(Ino::ROOT).unwrap().mtime.secs
}

#[test]
fn a_committed_change_survives_a_crash_and_a_clean_unmount_needs_no_recovery() {
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-b", "1024"], &["-t", "ext3"], &["-t", "ext4", "-O", "^64bit"]] {
        let t = TestVolume::new("64M", args);
        touch_root(&t.volume, 1_000_000_007);
        t.volume.maintenance().commit().unwrap();
        touch_root(&t.volume, 1_000_000_009); // never committed
        let crashed = t.device.snapshot();
        assert!(needs_recovery(&crashed));
        // e2fsck replays it,
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &crashed).unwrap();
        let path = file.path().to_str().unwrap();
        run("e2fsck", &["-y", "-E", "journal_only", path]);
        fsck(&std::fs::read(path).unwrap());
        // and so do we.
        let again = TestVolume::on(crashed, Options::default());
        assert_eq!(root_mtime(&again.volume), 1_000_000_007);
        again.volume.close().unwrap();
        let image = again.device.snapshot();
        assert!(!needs_recovery(&image));
        fsck(&image);
        let third = TestVolume::on(image, Options { read_only: true, ..Options::default() });
        assert_eq!(root_mtime(&third.volume), 1_000_000_007);
    }
}

#[test]
fn an_external_journal_works_and_is_asked_for() {
    let mut fs_bytes = mke2fs("64M", &["-b", "4096", "-t", "ext4", "-O", "^has_journal"]);
    let log_bytes = tie_to_log(&mut fs_bytes, "8M");
    let device = Arc::new(MemDevice::new(fs_bytes));
    let journal = Arc::new(MemDevice::new(log_bytes));
    let clock = Arc::new(SystemClock);
    assert!(Volume::open(Devices::one(device.clone()), clock.clone(), Options::default()).is_err());
    let devices = Devices { fs: device.clone(), journal: Some(journal.clone()), nvram: None };
    let v = Volume::open(devices, clock.clone(), Options::default()).unwrap();
    touch_root(&v, 1_000_000_007);
    v.maintenance().commit().unwrap();
    drop(v);
    let crashed: Vec<Arc<dyn BlockDevice>> =
        vec![Arc::new(MemDevice::new(device.snapshot())), Arc::new(MemDevice::new(journal.snapshot()))];
    let devices = Devices { fs: crashed[0].clone(), journal: Some(crashed[1].clone()), nvram: None };
    let v = Volume::open(devices, clock, Options::default()).unwrap();
    assert_eq!(root_mtime(&v), 1_000_000_007);
    v.close().unwrap();
}

#[test]
fn a_truncated_image_and_a_torn_superblock_are_named_or_mended() {
    let image = mke2fs("64M", &["-t", "ext4"]);
    let clock = Arc::new(SystemClock);
    let open = |bytes: Vec<u8>| {
        Volume::open(Devices::one(Arc::new(MemDevice::new(bytes))), clock.clone(), Options::default()).map(drop)
    };
    let e = open(image[..32 << 20].to_vec()).unwrap_err();
    assert!(e.to_string().contains("truncated"), "{e}");
    let mut torn = image.clone();
    torn[1024 + 0x60] |= 4; // needs_recovery set, its checksum in the other sector not yet
    open(torn).unwrap();
    let mut bad = image.clone();
    bad[1024 + 0x58] ^= 0xFF;
    assert!(matches!(open(bad), Err(crate::Error::Corrupt(Corrupt { .. }))));
    let mut none = image;
    none[1024 + 0x38] = 0;
    assert_eq!(open(none).unwrap_err().errno(), 117);
}

/// Before it writes, a mount looks at the record of orphans, which begins in the superblock.
#[test]
fn a_superblock_that_is_torn_does_not_make_its_mount_read_only() {
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        let mut torn = mke2fs("64M", args);
        let has_journal = superblock(&torn).journal_ino() != Ino(0);
        // A flag is set, its checksum in the other sector not yet.
        torn[1024 + if has_journal { 0x60 } else { 0x3A }] ^= if has_journal { 4 } else { 1 };
        assert!(Superblock::decode(&torn[1024..]).is_err());
        let t = TestVolume::on(torn, Options::default());
        touch_root(&t.volume, 1_000_000_007);
        t.volume.close().unwrap();
        let again = TestVolume::on(t.device.snapshot(), Options::default());
        assert_eq!(root_mtime(&again.volume), 1_000_000_007);
        again.volume.close().unwrap();
        assert_eq!(superblock(&again.device.snapshot()).state() & state::ERROR, 0);
        if has_journal {
            fsck(&again.device.snapshot());
        }
    }
}

#[test]
fn a_frozen_image_is_clean_and_a_thawed_volume_goes_on() {
    let t = TestVolume::new("64M", &["-t", "ext4"]);
    touch_root(&t.volume, 1_000_000_007);
    t.volume.maintenance().freeze().unwrap();
    let frozen = t.device.snapshot();
    assert!(!needs_recovery(&frozen));
    fsck(&frozen);
    t.volume.maintenance().thaw().unwrap();
    touch_root(&t.volume, 1_000_000_009);
    t.volume.maintenance().commit().unwrap();
    assert!(needs_recovery(&t.device.snapshot()));
    let again = TestVolume::on(t.device.snapshot(), Options::default());
    assert_eq!(root_mtime(&again.volume), 1_000_000_009);
}

/// As the kernel: the journal is replayed, files that were deleted and open are gone, counts are right; then nothing is
/// written.
#[test]
fn a_read_only_mount_finishes_what_a_crash_left() {
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"], &["-t", "ext3"]] {
        let t = TestVolume::new("32M", args);
        let v = &t.volume;
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
        let (kept, open) = (v.create(Ino::ROOT, b"kept", &new).unwrap(), v.create(Ino::ROOT, b"open", &new).unwrap());
        for ino in [kept.ino, open.ino] {
            v.write(ino, 0, &[7; 50_000], WriteFlags::default()).unwrap();
        }
        v.unlink(Ino::ROOT, b"open").unwrap();
        v.sync().unwrap();
        let crashed = t.device.snapshot();
        assert!(needs_recovery(&crashed));
        let t = TestVolume::on(crashed, Options { read_only: true, ..Options::default() });
        let recovered = t.device.snapshot();
        assert!(!needs_recovery(&recovered));
        fsck(&recovered);
        assert_eq!(superblock(&recovered).mount_count(), 1, "only the mount that wrote counts");
        let found = t.volume.lookup(Ino::ROOT, b"kept").unwrap();
        let mut buf = vec![0; 60_000];
        assert_eq!(t.volume.read(found.ino, 0, &mut buf).unwrap(), 50_000);
        assert!(matches!(t.volume.create(Ino::ROOT, b"more", &new), Err(crate::Error::ReadOnly(_))));
        t.volume.close().unwrap();
        assert!(t.device.snapshot() == recovered, "a read-only mount wrote");
    }
}

/// Why a mount of an image that needs recovery is refused. The image is as it was (O3).
fn refused_before_replay(crashed: Vec<u8>, memory: Option<Arc<NvramModel>>, profile: Profile) -> Error {
    assert!(needs_recovery(&crashed));
    let device = Arc::new(MemDevice::new(crashed.clone()));
    let devices = Devices { nvram: memory.map(|m| m as Arc<_>), ..Devices::one(device.clone()) };
    let opened = Volume::open(devices, Arc::new(SystemClock), Options::default().with(profile.choices()));
    assert!(device.snapshot() == crashed, "a refused mount has changed the image");
    opened.err().expect("it was mounted")
}

/// An image whose last mount has committed a change, and crashed.
fn crashed() -> Vec<u8> {
    let t = TestVolume::new("16M", &["-t", "ext4"]);
    touch_root(&t.volume, 1_000_000_007);
    t.volume.maintenance().commit().unwrap();
    t.device.snapshot()
}

/// The journal's superblock in an image of blocks of 1 KiB.
fn journal_superblock(image: &[u8]) -> usize {
    let is_first = |block: &[u8]| block.starts_with(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]);
    image.chunks(1024).position(is_first).expect("a journal") * 1024
}

#[test]
fn a_mount_without_the_memory_for_its_log_is_refused_before_the_replay() {
    let e = refused_before_replay(crashed(), None, Profile::Djfs);
    assert!(matches!(e, Error::Invalid(_)), "{e}");
}

#[test]
fn a_memory_that_is_too_small_is_refused_before_the_replay() {
    let memory = Arc::new(NvramModel::new(vec![0; 64 << 10]));
    let e = refused_before_replay(crashed(), Some(memory), Profile::Djfs4);
    assert!(matches!(e, Error::Journal(JournalError::Nvram(NvramProblem::TooSmall { .. }))), "{e}");
}

#[test]
fn a_memory_that_another_image_needs_is_refused_before_the_replay() {
    let memory = Arc::new(NvramModel::new(vec![0; 8 << 20]));
    let other = Devices::one(Arc::new(MemDevice::new(mke2fs("16M", &["-t", "ext4"])))).with_nvram(memory.clone());
    let options = Options::default().with(Profile::Djfs.choices());
    let volume = Volume::open(other, Arc::new(SystemClock), options).unwrap();
    touch_root(&volume, 1_000_000_007);
    volume.maintenance().commit().unwrap();
    let e = refused_before_replay(crashed(), Some(memory), Profile::Djfs);
    assert!(matches!(e, Error::Journal(JournalError::Nvram(NvramProblem::Needed { same: false, .. }))), "{e}");
}

#[test]
fn a_journal_that_is_too_small_is_refused_before_the_replay() {
    let image = mke2fs("16M", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]);
    let zeros = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(zeros.path(), [0; 1024]).unwrap();
    let write = format!("jw -b 14000 {}", zeros.path().display());
    let mut dirty = debugfs(&image, &["jo", &write, "jc"]);
    let length = journal_superblock(&dirty) + 0x10;
    dirty[length..length + 4].copy_from_slice(&400u32.to_be_bytes());
    let e = refused_before_replay(dirty, None, Profile::Ext4Ordered);
    assert!(matches!(e, Error::Journal(JournalError::TooSmall { blocks: 400 })), "{e}");
}

/// J14.
#[test]
fn the_blocks_of_the_kernels_fast_commits_are_no_part_of_the_log() {
    let image = mke2fs("16M", &["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=2"]);
    let t = TestVolume::on(image, Options::default().with(Choices::of_route(Route::Ordered)));
    touch_root(&t.volume, 1_000_000_007);
    t.volume.maintenance().commit().unwrap();
    let capacity = t.volume.maintenance().journal_stats().log_capacity;
    t.check();
    let left = t.device.snapshot();
    let at = journal_superblock(&left);
    let len = u64::from(JournalSuperblock::decode(&left[at..]).unwrap().len());
    let number = u32::from_be_bytes(left[at + 0x54..at + 0x58].try_into().unwrap());
    let fast_commits = if number == 0 { 256 } else { u64::from(number) };
    assert_eq!(capacity, len - fast_commits - 2);
}
