//! Quire's block log under a volume: what calls cost on the device, and what other tools say of the image.

use crate::config::{CommitMode, Profile, Record, Route};
use crate::data::WriteFlags;
use crate::{Checkpoint, Choices, Cred, Devices, Error, New, NewKind, Options, Volume, read_to_change};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Counted, DeviceStats, Region, SystemClock};
use quire_layout::Ino;
use quire_layout::features::incompat;
use quire_layout::superblock::Superblock;
use quire_testkit::MemDevice;
use quire_testkit::{fsck, mke2fs};

struct Bench {
    device: Arc<Counted<MemDevice>>,
    options: Options,
    volume: Volume,
}

const CRED: Cred = Cred { uid: 0, gid: 0 };

fn choices(route: Route, record: Record, commit: CommitMode) -> Choices {
    Choices { record, commit, ..Choices::of_route(route) }
}

impl Bench {
    fn new(choices: Choices) -> Self {
        let device = Arc::new(Counted::new(MemDevice::new(mke2fs("64M", &["-t", "ext4", "-b", "4096"]))));
        let options = Options::default().with(choices);
        let volume = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options.clone()).unwrap();
        Bench { device, options, volume }
    }

    /// Unmounts and mounts: nothing is in memory any more.
    fn again(&mut self) {
        self.volume.close().unwrap();
        self.volume =
            Volume::open(Devices::one(self.device.clone()), Arc::new(SystemClock), self.options.clone()).unwrap();
    }

    fn create(&self, name: &str) -> Ino {
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: CRED };
        self.volume.create(Ino::ROOT, name.as_bytes(), &new).unwrap().ino
    }

    fn write(&self, ino: Ino, at: u64, data: &[u8]) {
        assert_eq!(self.volume.write(ino, at, data, WriteFlags::default()).unwrap(), data.len());
    }

    fn counted(&self, f: impl FnOnce()) -> DeviceStats {
        let before = self.device.snapshot();
        f();
        self.device.snapshot().since(&before)
    }

    fn check(self) {
        self.volume.close().unwrap();
        fsck(&self.device.inner().snapshot());
    }
}

/// Reads, writes, bytes written, FUA writes, flushes.
fn figures(d: &DeviceStats) -> [u64; 5] {
    let (reads, writes) = (d.total(|r| r.reads), d.total(|r| r.writes));
    [reads.count, writes.count, writes.bytes, d.total(|r| r.fua).count, d.flushes.count]
}

const ONE_BLOCK: [u64; 5] = [0, 1, 4096, 0, 1];

#[test]
fn a_small_overwrite_and_fsync_is_one_block_and_one_flush() {
    for record in [Record::RangeData, Record::Range, Record::Delta] {
        let b = Bench::new(choices(Route::Journal, record, CommitMode::Checksum));
        let f = b.create("f");
        b.write(f, 0, &vec![7; 64 << 10]);
        b.volume.fsync(f, false).unwrap();
        for n in 0..5u8 {
            b.write(f, 4096 * u64::from(n) + 50, &[n; 100]);
            b.volume.fsync(f, false).unwrap();
            let d = b.counted(|| {
                b.write(f, 4096 * u64::from(n) + 300, &[n + 1; 100]);
                b.volume.fsync(f, false).unwrap();
            });
            // The inode's block is metadata: whole, where only data is written as ranges.
            let expected = if record == Record::RangeData { [0, 1, 8192, 0, 1] } else { ONE_BLOCK };
            assert_eq!(figures(&d), expected, "{record}: {d:?}");
        }
        let j = b.volume.maintenance().journal_stats();
        assert!(if record == Record::Delta { j.delta_records } else { j.range_records } > 0, "{j:?}");
        b.check();
    }
}

/// A small overwrite of a file that is on the disk only is a record of ranges: the old block is read for the page, and
/// stays as the record's base.
#[test]
fn a_small_overwrite_of_what_is_not_in_memory_is_a_range() {
    for profile in [Profile::Auto, Profile::Selective, Profile::Wasteless] {
        let mut b = Bench::new(profile.choices());
        let f = b.create("f");
        b.write(f, 0, &pattern(64 << 10));
        b.again();
        for n in 0..16u64 {
            let before = b.volume.maintenance().journal_stats();
            let d = b.counted(|| {
                b.write(f, n * 4096 + 300, &[0xaa; 100]);
                b.volume.fsync(f, true).unwrap();
            });
            let after = b.volume.maintenance().journal_stats();
            // The first one may log more of the metadata whole.
            let metadata = u64::from(profile != Profile::Auto) + 2 * u64::from(n == 0);
            assert!(after.whole_records - before.whole_records <= metadata, "{profile}, {n}: {after:?}");
            assert!(after.range_records > before.range_records, "{profile}, {n}");
            assert!(d.region(Region::Log).writes.bytes <= (1 + metadata) * 4096, "{profile}, {n}: {d:?}");
            assert_eq!(d.region(Region::Data).writes.bytes, 0, "{profile}, {n}");
        }
        b.check();
    }
}

/// A cache above hands over whole blocks of which a part has changed, after it has read them.
#[test]
fn a_whole_block_counts_by_the_bytes_that_differ() {
    for (profile, changed, in_place) in [
        (Profile::Auto, 100, 0),
        (Profile::Selective, 100, 0),
        (Profile::Wasteless, 100, 0),
        (Profile::Selective, 4096, 4096),
    ] {
        let mut b = Bench::new(profile.choices());
        let f = b.create("f");
        b.write(f, 0, &pattern(64 << 10));
        b.again();
        let mut page = [0; 4096];
        assert_eq!(read_to_change(&b.volume, f, 8192, &mut page).unwrap(), 4096);
        page[..changed].iter_mut().for_each(|b| *b ^= 0x55);
        let d = b.counted(|| {
            b.write(f, 8192, &page);
            b.volume.fsync(f, true).unwrap();
        });
        assert_eq!(d.region(Region::Data).writes.bytes, in_place, "{profile}, {changed}");
        let ranges = b.volume.maintenance().journal_stats().range_records;
        assert_eq!(ranges > 0, in_place == 0, "{profile}, {changed}: {ranges}");
        b.check();
    }
}

/// Okeanos, sections 3 and 4: what writes of several files change of their blocks shares a block of the log. Metadata,
/// and blocks of which a write changes all, are logged whole.
#[test]
fn small_writes_of_several_files_share_a_block_of_the_log_and_whole_blocks_do_not() {
    const FILES: u64 = 8;
    let b = Bench::new(Profile::Wasteless.choices());
    let files: Vec<Ino> = (0..FILES).map(|n| b.create(&format!("f{n}"))).collect();
    files.iter().for_each(|f| b.write(*f, 0, &pattern(4096)));
    b.volume.sync().unwrap();
    let logged = |fill: u8, len: usize| {
        let before = b.volume.maintenance().journal_stats();
        let d = b.counted(|| {
            files.iter().for_each(|f| b.write(*f, 0, &vec![fill; len]));
            b.volume.maintenance().commit().unwrap();
        });
        let after = b.volume.maintenance().journal_stats();
        let blocks = d.region(Region::Log).writes.bytes / 4096;
        [blocks, after.whole_records - before.whole_records, after.range_records - before.range_records]
    };
    // The inodes, with their times, are metadata: two blocks at most.
    let [blocks, whole, ranges] = logged(0xAA, 200);
    assert!(ranges == FILES && whole <= 2 && blocks == whole + 1, "{blocks} blocks, {whole} whole, {ranges} of ranges");
    let [blocks, whole, ranges] = logged(0x55, 4096);
    assert!(ranges == 0 && (FILES..=FILES + 2).contains(&whole), "{blocks} blocks, {whole} whole, {ranges} of ranges");
    b.check();
}

/// Q3: behind the end of a file its last block may hold anything. The page has zeros there; the base of its record has
/// what lies at home, else recovery would find another image than was logged.
#[test]
fn a_base_is_what_lies_at_home_not_what_the_file_shows() {
    for profile in [Profile::Auto, Profile::Selective, Profile::Wasteless] {
        let mut b = Bench::new(profile.choices());
        let f = b.create("f");
        b.write(f, 0, &pattern(3000));
        b.volume.fsync(f, false).unwrap();
        let home = b.volume.extents(f, 0, 4096, 1).unwrap()[0].physical;
        b.again();
        b.device.inner().write_from(home + 3500, &[0x77; 64], Region::Data).unwrap();
        b.write(f, 100, &[0xaa; 50]);
        b.volume.fsync(f, false).unwrap();
        assert!(b.volume.maintenance().journal_stats().range_records > 0);
        // The power goes; what is in the log is merged with the block at home.
        let crashed = Arc::new(MemDevice::new(b.device.inner().snapshot()));
        let v = Volume::open(Devices::one(crashed), Arc::new(SystemClock), b.options.clone()).unwrap();
        let (mut got, mut want) = (vec![0; 3000], pattern(3000));
        want[100..150].fill(0xaa);
        v.read(f, 0, &mut got).unwrap();
        assert!(got == want, "{profile}");
    }
}

/// Bytes of which hardly any are zero.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect()
}

/// Profile `single-io`: whole blocks, and yet one write and one flush.
#[test]
fn single_io_commits_with_one_write_and_one_flush() {
    let b = Bench::new(Profile::SingleIo.choices());
    let f = b.create("f");
    b.write(f, 0, &vec![7; 64 << 10]);
    b.volume.fsync(f, false).unwrap();
    // One of them may lie on both sides of where the log's inode is in two pieces.
    let costs = (0..4u8).map(|n| {
        b.counted(|| {
            b.write(f, 300, &[n; 100]);
            b.volume.fsync(f, false).unwrap();
        })
    });
    let costs: Vec<_> = costs.map(|d| figures(&d)).collect();
    let whole = costs.iter().filter(|c| **c == [0, 1, 3 * 4096, 0, 1]).count();
    assert!(whole >= 3, "head, inode, data: {costs:?}");
    b.check();
}

/// What an fsync costs where it writes home what earlier transactions logged of the file, as ext4's does: the write of
/// those blocks, besides what single-I/O pays. What is written home once is not written again by a checkpoint.
#[test]
fn an_fsync_that_checkpoints_writes_earlier_journaled_blocks_home() {
    let home = |d: &DeviceStats| d.region(Region::Metadata).writes.bytes;
    let mut homes = Vec::new();
    for (checkpoint, each) in [(Checkpoint::Lazy, 0), (Checkpoint::Fsync, 4096)] {
        let b = Bench::new(Choices { checkpoint, ..Profile::SingleIo.choices() });
        let (f, other) = (b.create("f"), b.create("other"));
        b.write(f, 0, &[7; 64 << 10]);
        b.write(other, 0, &[7; 64 << 10]);
        b.volume.sync().unwrap();
        for n in 0..3u8 {
            // Another block each time: those of the transaction before are not in this one.
            let d = b.counted(|| {
                b.write(f, u64::from(n) * 4096, &[n; 4096]);
                b.volume.fsync(f, true).unwrap();
            });
            let expected = if n == 0 { each * 15 } else { each };
            assert_eq!(
                (home(&d), d.flushes.count),
                (expected, 1),
                "{checkpoint}, {n}: only of this file, and no flush"
            );
        }
        let before = b.volume.maintenance().journal_stats();
        b.volume.maintenance().checkpoint().unwrap();
        let after = b.volume.maintenance().journal_stats();
        homes.push(after.home_blocks - before.home_blocks);
        let mut written = vec![0; 64 << 10];
        assert_eq!(b.volume.read(f, 0, &mut written).unwrap(), written.len());
        assert!(written[..4096] == [0; 4096] && written[8192..12288] == [2; 4096] && written[12288..] == [7; 52 << 10]);
        b.check();
    }
    assert_eq!(homes[0] - homes[1], 15, "all of the file but the last block is there already");
}

/// The nine small writes of JoJ's text (section 3.1), 2,576 bytes in all, made durable together: 45,056 bytes of log by
/// blocks, as the paper has it: nine pages, the inode, and one block more.
#[test]
fn nine_small_writes_take_two_blocks_of_log_at_most_and_eleven_as_whole_blocks() {
    const SIZES: [usize; 9] = [286, 286, 286, 286, 286, 286, 286, 286, 288];
    for (profile, least, most) in [
        (choices(Route::Journal, Record::Range, CommitMode::Checksum), 4096, 8192),
        (Profile::SingleIo.choices(), 45_056, 45_056),
    ] {
        let b = Bench::new(profile);
        let f = b.create("f");
        b.write(f, 0, &vec![7; 64 << 10]);
        b.volume.fsync(f, false).unwrap();
        let d = b.counted(|| {
            for (n, len) in (0u8..).zip(SIZES) {
                b.write(f, 4096 * u64::from(n) + 100, &vec![n + 10; len]);
            }
            b.volume.fsync(f, false).unwrap();
        });
        let bytes = figures(&d)[2];
        assert!((least..=most).contains(&bytes), "{profile}: {bytes}");
        b.check();
    }
}

#[test]
fn metadata_calls_are_one_block_and_one_flush() {
    let b = Bench::new(choices(Route::Journal, Record::Range, CommitMode::Checksum));
    let f = b.create("f");
    b.volume.fsync(f, false).unwrap();
    for n in 0..6u64 {
        let append = b.counted(|| {
            b.write(f, n * 100, &[3; 100]);
            b.volume.fsync(f, false).unwrap();
        });
        let mut made = None;
        let create = b.counted(|| {
            let ino = b.create(&format!("n{n}"));
            b.write(ino, 0, &[5; 1024]);
            b.volume.fsync(ino, false).unwrap();
            made = Some(ino);
        });
        let rename = b.counted(|| {
            let (old, new) = (format!("n{n}"), format!("m{n}"));
            b.volume.rename(Ino::ROOT, old.as_bytes(), Ino::ROOT, new.as_bytes(), Default::default()).unwrap();
            b.volume.fsync(Ino::ROOT, false).unwrap();
        });
        // The first ones read bitmaps, and write whole what they had not read long before.
        if n > 2 {
            assert_eq!(figures(&append), ONE_BLOCK, "append");
            assert_eq!(figures(&create), ONE_BLOCK, "create");
            assert_eq!(figures(&rename), ONE_BLOCK, "rename");
        }
        b.volume.forget(made.unwrap(), 1);
    }
    b.check();
}

/// Q5: data in place is flushed before a commit that names it, and only then.
#[test]
fn ordered_data_takes_a_flush_of_its_own_only_where_it_must() {
    let b = Bench::new(choices(Route::Ordered, Record::Range, CommitMode::Checksum));
    let (f, g) = (b.create("f"), b.create("g"));
    b.volume.fsync(f, false).unwrap();
    for n in 0..3u64 {
        let d = b.counted(|| {
            b.write(f, n * 8192, &[1; 8192]);
            b.volume.fsync(f, false).unwrap();
        });
        assert_eq!(
            (d.flushes.count, b.volume.maintenance().journal_stats().data_flushes),
            (2, n + 1),
            "new data, then what names it"
        );
        // Somebody else's pending data is not our matter.
        b.write(g, n * 4096, &[2; 4096]);
        let d = b.counted(|| {
            b.volume
                .setattr(f, &crate::SetAttr { mode: Some(0o600), ..Default::default() })
                .map(drop)
                .and_then(|()| b.volume.fsync(f, false))
                .unwrap()
        });
        assert_eq!(d.flushes.count, 1);
    }
    b.check();
}

/// What a call costs on the device when all is warm, `auto` beside jbd2's way: reads, writes, bytes, FUA writes,
/// flushes.
#[test]
fn calls_cost_one_block_and_one_flush_beside_what_they_cost_with_jbd2() {
    let auto = call_costs(Profile::Auto.choices());
    let jbd2 = call_costs(Profile::Ext4Journal.choices());
    println!("{:30} {:>26} {:>26}", "[reads, writes, bytes, FUA, flushes]", "auto", "ext4-journal");
    for ((call, ours), (_, theirs)) in auto.iter().zip(&jbd2) {
        println!("{call:36} {:>26} {:>26}", format!("{ours:?}"), format!("{theirs:?}"));
        assert_eq!(*ours, ONE_BLOCK, "{call}");
        // Descriptor, whole images, flush; commit block, durable on return.
        let [reads, writes, bytes, fua, flushes] = *theirs;
        assert_eq!((reads, writes, fua, flushes), (0, 2, 1, 1), "{call}");
        assert!(bytes >= 3 * 4096, "{call}: {bytes}");
    }
}

fn call_costs(choices: Choices) -> Vec<(&'static str, [u64; 5])> {
    let b = Bench::new(choices);
    let (f, g) = (b.create("f"), b.create("g"));
    b.write(g, 0, &vec![7; 64 << 10]);
    b.volume.sync().unwrap();
    let mut costs = Vec::new();
    // The first rounds read bitmaps and what is overwritten.
    for n in 0..8u64 {
        let synced = |ino| b.volume.fsync(ino, false).unwrap();
        let append = b.counted(|| {
            b.write(f, n * 100, &[3; 100]);
            synced(f);
        });
        let overwrite = b.counted(|| {
            b.write(g, 8192 + n * 100, &[4; 100]);
            synced(g);
        });
        let create = b.counted(|| {
            let ino = b.create(&format!("n{n}"));
            b.write(ino, 0, &[5; 1024]);
            synced(ino);
        });
        let rename = b.counted(|| {
            let (old, new) = (format!("n{n}"), format!("m{n}"));
            b.volume.rename(Ino::ROOT, old.as_bytes(), Ino::ROOT, new.as_bytes(), Default::default()).unwrap();
            synced(Ino::ROOT);
        });
        costs = vec![
            ("append 100 bytes", figures(&append)),
            ("overwrite 100 bytes", figures(&overwrite)),
            ("create and write 1 KiB", figures(&create)),
            ("rename", figures(&rename)),
        ];
    }
    b.check();
    costs
}

/// Q8: a log of Quire's in an image whose superblock does not have the feature bit is refused and left as it is.
#[test]
fn a_quire_log_without_its_feature_bit_is_refused() {
    let b = Bench::new(Profile::Auto.choices());
    b.create("f");
    b.volume.maintenance().commit().unwrap();
    let mut image = b.device.inner().snapshot();
    let mut sb = Superblock::decode(&image[1024..2048]).unwrap();
    for cleared in [incompat::QUIRE_LOG, incompat::QUIRE_LOG | incompat::RECOVER] {
        let mut f = sb.features();
        f.incompat &= !cleared;
        sb.set_features(f);
        sb.seal();
        image[1024..2048].copy_from_slice(sb.bytes());
        let device = Arc::new(MemDevice::new(image.clone()));
        let opened = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), Options::default());
        assert!(matches!(opened, Err(Error::Corrupt(_))), "{cleared:#x}");
        assert!(device.snapshot() == image, "nothing is written");
    }
}
