//! The routes that choose between journal and place: what goes which way, and what each call costs.

use super::{Bench, file, image, options};
use crate::config::Route;
use crate::config::{Choices, CommitMode, Profile};
use crate::data::WriteFlags;
use crate::{Cred, Devices, JournalingMode, ModeRule, New, NewKind, Options, RenameFlags, Volume, XattrFlags};
use quire_device::sync::Arc;
use quire_device::{DeviceStats, Region};
use quire_layout::Ino;
use quire_layout::inode::flags;
use quire_testkit::{MemDevice, Model, Modelled, VirtualClock};
use std::time::Duration;

fn bench(route: Route, files: u32) -> Bench {
    Bench::new("32M", &["-t", "ext4", "-b", "4096"], files, options(route))
}

fn write(b: &Bench, ino: Ino, at: u64, data: &[u8]) {
    assert_eq!(b.volume.write(ino, at, data, WriteFlags::default()).unwrap(), data.len());
}

/// Overwritten blocks go to the log and nowhere else, new ones in place and not to the log.
#[test]
fn what_is_overwritten_is_journaled_and_what_is_new_is_not() {
    let b = bench(Route::Overwrite, 1);
    let d = b.counted(|| {
        write(&b, file(0), 0, &[1; 64 << 10]);
        b.volume.fsync(file(0), false).unwrap();
    });
    assert_eq!(d.region(Region::Data).writes.bytes, 64 << 10);
    assert!(d.region(Region::Log).writes.bytes < 64 << 10);
    // Half over what is there, half behind it.
    let d = b.counted(|| {
        write(&b, file(0), 32 << 10, &[2; 64 << 10]);
        b.volume.fsync(file(0), false).unwrap();
    });
    assert_eq!(d.region(Region::Data).writes.bytes, 32 << 10);
    assert!(d.region(Region::Log).writes.bytes >= 32 << 10);
    b.check();
}

/// `auto`: new data is logged with the commit up to the boundary, and goes in place beyond it, or if nobody waits for
/// the commit.
#[test]
fn small_new_data_is_logged_and_large_new_data_goes_in_place() {
    let o = Options { auto_threshold: Some(16 << 10), ..options(Route::Auto) };
    let b = Bench::new("32M", &["-t", "ext4", "-b", "4096"], 4, o);
    let data = |d: DeviceStats| d.region(Region::Data).writes.bytes;
    for (n, len, in_place) in [(0, 16 << 10, 0), (1, 20 << 10, 20 << 10)] {
        let d = b.counted(|| {
            write(&b, file(n), 0, &vec![1; len]);
            b.volume.fsync(file(n), false).unwrap();
        });
        assert_eq!(data(d), in_place, "{len} bytes");
        assert!(b.read_after_a_crash(file(n), 1 << 20) == vec![1; len]);
    }
    let d = b.counted(|| {
        write(&b, file(2), 0, &[1; 4096]);
        b.volume.sync().unwrap();
    });
    assert_eq!(data(d), 4096, "a sync of many files flushes once for all");
    // A rename takes the data along.
    let d = b.counted(|| {
        write(&b, file(3), 0, &[1; 4096]);
        b.volume.rename(Ino::ROOT, b"f00003", Ino::ROOT, b"new", RenameFlags::default()).unwrap();
        b.volume.fsync(Ino::ROOT, false).unwrap();
    });
    assert_eq!(data(d), 0);
    assert!(b.read_after_a_crash(file(3), 1 << 20) == [1; 4096]);
    b.check();
}

/// JoJ's modes: new blocks of an ordered file are written in place and flushed before the commit that names them, also
/// where a commit checks itself; those of a journaled file are logged with it.
#[test]
fn growth_of_an_ordered_file_goes_in_place_before_the_commit() {
    let o = Options { adaptive_default: JournalingMode::Ordered, ..Options::default().with(Profile::Joj.choices()) };
    let b = Bench::new("32M", &["-t", "ext4", "-b", "4096"], 2, o);
    b.volume.inode_flags().set_journaling_mode(file(1), Some(JournalingMode::Journal)).unwrap();
    b.volume.sync().unwrap();
    for (n, in_place, flushes) in [(0, 4096, 2), (1, 0, 1)] {
        for block in 0..3_u8 {
            let d = b.counted(|| {
                write(&b, file(n), u64::from(block) * 4096, &[block + 1; 4096]);
                b.volume.fsync(file(n), false).unwrap();
            });
            let seen = (d.region(Region::Data).writes.bytes, d.flushes.count);
            assert_eq!(seen, (in_place, flushes), "file {n}, block {block}");
        }
        assert!(b.read_after_a_crash(file(n), 1 << 20) == b.read_all(file(n), 1 << 20));
    }
    b.check();
}

/// The boundary follows the device: what it can write in the time that going in place would cost more.
#[test]
fn the_boundary_follows_the_device() {
    let image = image("32M", &["-t", "ext4", "-b", "4096"], 1);
    for (flush, least, most) in [(100, 4096, 96 << 10), (1500, 300 << 10, 1 << 20)] {
        let clock = Arc::new(VirtualClock::default());
        let model = Model { flush: Duration::from_micros(flush), ..Model::consumer_ssd() };
        let device = Arc::new(Modelled::new(MemDevice::new(image.clone()), model, clock.clone()));
        for commit_mode in [CommitMode::Barrier, CommitMode::Checksum] {
            let o = Options { commit_mode, ..options(Route::Auto) };
            let Ok(v) = Volume::open(Devices::one(device.clone()), clock.clone(), o) else { continue };
            for n in 0..20 {
                v.write(file(0), 0, &vec![n; 2 << 20], WriteFlags::default()).unwrap();
                v.fsync(file(0), false).unwrap();
                v.truncate(file(0), 0).unwrap();
                v.write(file(0), 0, &[n; 100], WriteFlags::default()).unwrap();
                v.fsync(file(0), false).unwrap();
            }
            let f = v.limits().auto_threshold.unwrap();
            assert!(f.flush >= Duration::from_micros(flush) && f.flush < Duration::from_micros(2 * flush), "{f:?}");
            assert!(f.bandwidth > 300_000_000 && f.bandwidth < 520_000_000, "{f:?}");
            if commit_mode == CommitMode::Checksum {
                let for_what_lives = f.bytes * f.home_percent / 100;
                assert!(for_what_lives >= least && for_what_lives <= most, "{f:?}");
            } else {
                assert!(f.bytes >= 4096 && f.bytes < 64 << 10, "{f:?}");
            }
            v.close().unwrap();
        }
    }
}

/// New data that dies in the log costs nothing there: the more of it did, the more rides. What went home counts against
/// it.
#[test]
fn the_boundary_follows_what_became_of_the_data_that_rode() {
    let image = image("64M", &["-t", "ext4", "-b", "4096"], 1);
    let clock = Arc::new(VirtualClock::default());
    let model = Model { flush: Duration::from_micros(200), ..Model::consumer_ssd() };
    let device = Arc::new(Modelled::new(MemDevice::new(image), model, clock.clone()));
    let o = Options { commit_mode: CommitMode::Checksum, ..options(Route::Auto) };
    let v = Volume::open(Devices::one(device), clock, o).unwrap();
    let goes_with_commit = |how_many: u8| {
        for n in 0..how_many {
            v.write(file(0), 0, &vec![n; 64 << 10], WriteFlags::default()).unwrap();
            v.fsync(file(0), false).unwrap();
            v.truncate(file(0), 0).unwrap();
            v.fsync(file(0), false).unwrap();
        }
        v.limits().auto_threshold.unwrap()
    };
    let begin = goes_with_commit(1);
    assert!(begin.home_percent > 90 && begin.bytes >= 64 << 10 && begin.bytes < 256 << 10, "{begin:?}");
    let died = goes_with_commit(100);
    assert!(died.home_percent < 20 && died.bytes > 4 * begin.bytes, "{died:?}");
    for n in 0..200 {
        v.write(file(0), n << 16, &[9; 64 << 10], WriteFlags::default()).unwrap();
        v.fsync(file(0), false).unwrap();
    }
    v.maintenance().checkpoint().unwrap();
    let home = v.limits().auto_threshold.unwrap();
    assert!(home.home_percent > 50 && home.bytes < died.bytes / 2, "{home:?}");
    v.close().unwrap();
}

/// F16: the parts of a request become durable together, whatever commits in between.
#[test]
fn a_request_that_overwrites_and_extends_is_one_unit() {
    for route in [Route::Journal, Route::Overwrite, Route::Auto] {
        let b = bench(route, 1);
        let most = b.volume.limits().atomic_bytes.unwrap();
        write(&b, file(0), 0, &vec![1; most / 2]);
        b.volume.sync().unwrap();
        let d = b.counted(|| write(&b, file(0), 0, &vec![2; most]));
        assert_eq!(d.flushes.count, 0, "a request of {most} bytes makes nothing wait");
        b.volume.maintenance().commit().unwrap();
        let seen = b.read_after_a_crash(file(0), 2 * most);
        assert!(seen == vec![1; most / 2] || seen == vec![2; most], "{route:?}");
        b.volume.sync().unwrap();
        assert!(b.read_after_a_crash(file(0), 2 * most) == vec![2; most], "{route:?}");
        b.check();
    }
}

/// Data that is overwritten or deleted before its checkpoint is never written home; fsync writes no journaled data
/// home.
#[test]
fn what_dies_in_the_log_is_never_written_home() {
    for route in [Route::Journal, Route::Overwrite, Route::Auto] {
        let b = bench(route, 2);
        for n in 0..2 {
            write(&b, file(n), 0, &[1; 64 << 10]);
        }
        b.volume.sync().unwrap();
        b.volume.maintenance().checkpoint().unwrap();
        let before = b.volume.maintenance().journal_stats().memory.never_written_home;
        let d = b.counted(|| {
            for round in 0..5 {
                write(&b, file(0), 0, &[10 + round; 64 << 10]);
                b.volume.fsync(file(0), round % 2 == 0).unwrap();
            }
        });
        assert_eq!(d.region(Region::Data).writes.count + d.region(Region::Metadata).writes.count, 0, "{route:?}");
        b.volume.truncate(file(0), 0).unwrap();
        b.volume.fsync(file(0), false).unwrap();
        let dead = b.volume.maintenance().journal_stats().memory.never_written_home - before;
        assert!(dead >= 5 * 16, "{route:?}: {dead} of {} images", 5 * 16);
        let d = b.counted(|| b.volume.maintenance().checkpoint().unwrap());
        let home = d.region(Region::Data).writes.bytes + d.region(Region::Metadata).writes.bytes;
        assert!(home < 64 << 10, "{route:?}: {home} bytes");
        b.check();
    }
}

/// A stream over old data is cut into pieces that fit a transaction, each whole.
#[test]
fn a_long_overwrite_is_written_back_in_pieces() {
    let b = bench(Route::Overwrite, 1);
    write(&b, file(0), 0, &vec![1; 4 << 20]);
    b.volume.sync().unwrap();
    for n in 0..64 {
        write(&b, file(0), n << 16, &[2; 1 << 16]);
    }
    b.volume.fsync(file(0), false).unwrap();
    assert!(b.read_after_a_crash(file(0), 8 << 20) == vec![2; 4 << 20]);
    b.check();
}

/// Device operations of a call: reads, writes, FUA writes among them, bytes written, flushes.
type Cost = (u64, u64, u64, u64, u64);

fn cost(d: &DeviceStats) -> Cost {
    let writes = d.total(|r| r.writes);
    (d.total(|r| r.reads).count, writes.count, d.total(|r| r.fua).count, writes.bytes, d.flushes.count)
}

/// What fsync costs after an append, an overwrite, a create and a rename, in the steady state.
fn costs(choices: Choices) -> [Cost; 4] {
    let b = Bench::new("32M", &["-t", "ext4", "-b", "4096"], 2, Options::default().with(choices));
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred { uid: 0, gid: 0 } };
    let append = WriteFlags { append: true, ..WriteFlags::default() };
    let mut last = [Cost::default(); 4];
    write(&b, file(0), 0, &[1; 6000]);
    write(&b, file(1), 0, &[1; 6000]);
    b.volume.sync().unwrap();
    for n in 0..6u8 {
        last[0] = cost(&b.counted(|| {
            b.volume.write(file(0), 0, &[n; 100], append).unwrap();
            b.volume.fsync(file(0), false).unwrap();
        }));
        last[1] = cost(&b.counted(|| {
            write(&b, file(1), 1000, &[n; 100]);
            b.volume.fsync(file(1), false).unwrap();
        }));
        let name = format!("n{n}").into_bytes();
        let ino = b.volume.create(Ino::ROOT, &name, &new).unwrap().ino;
        b.volume.fsync(Ino::ROOT, false).unwrap();
        b.volume.forget(ino, 1);
        b.volume.unlink(Ino::ROOT, &name).unwrap();
        b.volume.sync().unwrap();
        last[2] = cost(&b.counted(|| {
            let ino = b.volume.create(Ino::ROOT, &name, &new).unwrap().ino;
            write(&b, ino, 0, &[n; 1024]);
            b.volume.fsync(ino, false).unwrap();
            b.volume.forget(ino, 1);
        }));
        last[3] = cost(&b.counted(|| {
            let to = [name.as_slice(), b".new"].concat();
            b.volume.rename(Ino::ROOT, &name, Ino::ROOT, &to, RenameFlags::default()).unwrap();
            b.volume.fsync(Ino::ROOT, false).unwrap();
        }));
    }
    b.check();
    last
}

/// Exact: the steady state, a warm cache, blocks of 4 KiB. With jbd2's log a commit is its body, a flush, and a commit
/// block that is written through.
#[test]
fn what_an_fsync_costs() {
    let table = [
        // append 100 bytes; overwrite 100 bytes; create and write 1 KiB; rename
        (Route::Ordered, [(0, 3, 1, 16384, 1), (0, 3, 1, 16384, 1), (0, 3, 1, 36864, 1), (0, 2, 1, 20480, 1)]),
        (Route::Journal, [(0, 2, 1, 16384, 1), (0, 2, 1, 16384, 1), (0, 2, 1, 36864, 1), (0, 2, 1, 20480, 1)]),
        (Route::Overwrite, [(0, 2, 1, 16384, 1), (0, 2, 1, 16384, 1), (0, 3, 1, 36864, 1), (0, 2, 1, 20480, 1)]),
        (Route::Auto, [(0, 2, 1, 16384, 1), (0, 2, 1, 16384, 1), (0, 2, 1, 36864, 1), (0, 2, 1, 20480, 1)]),
    ];
    for (route, expected) in table {
        assert_eq!(costs(options(route).choices()), expected, "{route:?}");
    }
}

/// With Quire's log a commit is one write and one flush; with `auto` it is one block, whatever the call.
#[test]
fn what_an_fsync_costs_with_quires_log() {
    let whole = [(0, 1, 0, 12288, 1), (0, 1, 0, 12288, 1), (0, 1, 0, 32768, 1), (0, 1, 0, 16384, 1)];
    let data_packed = [(0, 1, 0, 8192, 1), (0, 1, 0, 8192, 1), (0, 1, 0, 28672, 1), (0, 1, 0, 16384, 1)];
    let table = [
        (Profile::Auto, [(0, 1, 0, 4096, 1); 4]),
        (Profile::Joj, whole),
        (Profile::SingleIo, whole),
        (Profile::Wasteless, data_packed),
        (Profile::Selective, data_packed),
    ];
    for (profile, expected) in table {
        assert_eq!(costs(profile.choices()), expected, "{profile}");
    }
}

/// What precedes what: the setting, a rule, the directory's, the default; and it stays with the image.
#[test]
fn a_mode_is_set_ruled_handed_down_or_the_default() {
    use JournalingMode::{Journal, Ordered};
    let rules = ModeRule::parse("*-journal=journal,*-wal=ordered").unwrap();
    for default in [Journal, Ordered] {
        let o = Options { adaptive_default: default, journal_rules: rules.clone(), ..options(Route::Adaptive) };
        let mut b = Bench::new("32M", &["-t", "ext4", "-b", "4096"], 1, o);
        let v = b.volume.clone();
        let new = |kind| New { kind, mode: 0o755, umask: 0, cred: Cred { uid: 0, gid: 0 } };
        let make = |dir: Ino, name: &[u8], kind| v.create(dir, name, &new(kind)).unwrap().ino;
        let mode = |ino| v.inode_flags().journaling_mode(ino).unwrap();
        assert_eq!(mode(make(Ino::ROOT, b"plain", NewKind::File)), (None, default));
        let wal = make(Ino::ROOT, b"db-wal", NewKind::File);
        let rollback = make(Ino::ROOT, b"db-journal", NewKind::File);
        assert_eq!((mode(wal), mode(rollback)), ((None, Ordered), (None, Journal)));
        // What is set counts more than a rule, by attribute or by flag; an ordinary name has none.
        v.inode_flags().set_journaling_mode(wal, Some(Journal)).unwrap();
        assert_eq!(mode(wal), (Some(Journal), Journal));
        assert_eq!(v.inode_flags().get(wal).unwrap() & flags::JOURNAL_DATA, flags::JOURNAL_DATA);
        v.xattrs().set(rollback, b"user.quire.journal", b"ordered", XattrFlags::Any).unwrap();
        assert_eq!(mode(rollback), (Some(Ordered), Ordered));
        assert!(v.xattrs().set(rollback, b"user.quire.journal", b"fast", XattrFlags::Any).is_err());
        v.inode_flags().set(rollback, v.inode_flags().get(rollback).unwrap() | flags::JOURNAL_DATA).unwrap();
        assert_eq!(mode(rollback), (Some(Journal), Journal));
        assert!(v.xattrs().get(rollback, b"user.quire.journal").is_err(), "chattr has the last word");
        v.inode_flags().set_journaling_mode(rollback, None).unwrap();
        v.rename(Ino::ROOT, b"db-journal", Ino::ROOT, b"kept-wal", RenameFlags::default()).unwrap();
        assert_eq!(mode(rollback), (None, Ordered), "a rule goes by the name");
        // Directories hand their setting down, but to names with rules; further down, too.
        for set in [Journal, Ordered] {
            let dir = make(Ino::ROOT, format!("{set}-{default}").as_bytes(), NewKind::Dir);
            v.inode_flags().set_journaling_mode(dir, Some(set)).unwrap();
            let below = make(dir, b"below", NewKind::Dir);
            assert_eq!(mode(make(dir, b"file", NewKind::File)), (Some(set), set));
            assert_eq!(mode(make(below, b"file", NewKind::File)), (Some(set), set));
            assert_eq!(mode(make(below, b"x-wal", NewKind::File)), (None, Ordered));
            assert_eq!(mode(make(below, b"x-journal", NewKind::File)), (None, Journal));
        }
        b.remount();
        let v = &b.volume;
        assert_eq!(v.inode_flags().journaling_mode(wal).unwrap(), (Some(Journal), Journal));
        assert_eq!(v.inode_flags().journaling_mode(rollback).unwrap(), (None, default), "by no name yet");
        v.lookup(Ino::ROOT, b"kept-wal").unwrap();
        assert_eq!(v.inode_flags().journaling_mode(rollback).unwrap(), (None, Ordered));
        b.check();
    }
}

/// F9, F18: a mode changes while records of the file are live, and back, with data pending.
#[test]
fn a_mode_may_change_at_any_time() {
    let o = Options { adaptive_default: JournalingMode::Ordered, ..options(Route::Adaptive) };
    let b = Bench::new("16M", &["-t", "ext4", "-b", "1024"], 1, o);
    let mut r = super::Numbers(99);
    let mut content = vec![0; 60_000];
    write(&b, file(0), 0, &content);
    for round in 0..60 {
        let mode =
            [Some(JournalingMode::Journal), Some(JournalingMode::Ordered), None][usize::try_from(r.below(3)).unwrap()];
        b.volume.inode_flags().set_journaling_mode(file(0), mode).unwrap();
        for _ in 0..r.below(4) {
            let at = usize::try_from(r.below(50_000)).unwrap();
            let data = r.bytes(usize::try_from(r.0 % 9000).unwrap() + 1);
            write(&b, file(0), at as u64, &data);
            content[at..at + data.len()].copy_from_slice(&data);
        }
        if r.below(3) == 0 {
            b.volume.fsync(file(0), r.below(2) == 0).unwrap();
            assert!(b.read_after_a_crash(file(0), 1 << 20) == content, "round {round}");
        }
    }
    b.volume.fsync(file(0), true).unwrap();
    assert!(b.read_after_a_crash(file(0), 1 << 20) == content);
    b.check();
}

/// F17: the first update of a block decides for its sequence, which ends with its last record, or with its write-back.
#[test]
fn a_sequence_goes_the_way_of_its_first_update() {
    let b = bench(Route::Selective, 2);
    let fill = std::cell::Cell::new(10);
    let cost = |at: u64, len: usize| {
        // Other bytes each time: a whole block counts by those that differ.
        fill.set(fill.get() + 1);
        let d = b.counted(|| {
            write(&b, file(0), at, &vec![fill.get(); len]);
            b.volume.fsync(file(0), true).unwrap();
        });
        // Blocks in place, and whether blocks went to the log.
        (d.region(Region::Data).writes.bytes / 4096, d.region(Region::Log).writes.bytes > 0)
    };
    // New whole blocks go in place; so do overwrites of them, without a transaction.
    assert_eq!(cost(0, 16 << 10).0, 4);
    assert_eq!(cost(0, 8192), (2, false));
    // A small update goes to the log, and everything after it, while its record lives.
    assert_eq!(cost(100, 50), (0, true));
    assert_eq!(cost(0, 4096), (0, true));
    assert_eq!(cost(0, 8192), (1, true), "one block of the two is live");
    b.volume.maintenance().checkpoint().unwrap();
    assert_eq!(cost(0, 8192), (2, false));
    // Small new data rides; a block in place that is still to be written takes small updates along.
    assert_eq!(cost(16 << 10, 100), (0, true));
    write(&b, file(0), 4096, &[8; 4096]);
    assert_eq!(cost(5000, 10), (1, false));
    assert_eq!(cost(5000, 10), (0, true), "the sequence ended with the write-back");
    let want = b.read_all(file(0), 1 << 20);
    assert!(b.read_after_a_crash(file(0), 1 << 20) == want);
    b.check();
}

/// RFJ, section 3.2: a commit leaves new data to the flusher, does not wait for it, and does not name it. One that
/// comes when the data is in place does.
#[test]
fn a_commit_leaves_new_data_to_the_flusher_and_names_it_when_it_is_in_place() {
    let b = Bench::new("32M", &["-t", "ext4", "-b", "4096"], 1, Options::default().with(Profile::Rfj.choices()));
    let data = |d: DeviceStats| d.region(Region::Data).writes.bytes;
    write(&b, file(0), 0, &[1; 64 << 10]);
    assert_eq!(data(b.counted(|| b.volume.maintenance().commit().unwrap())), 0);
    assert_eq!(b.read_after_a_crash(file(0), 1 << 20), []);
    assert_eq!(data(b.counted(|| b.volume.maintenance().write_back().unwrap())), 64 << 10);
    assert_eq!(data(b.counted(|| b.volume.maintenance().commit().unwrap())), 0);
    assert!(b.read_after_a_crash(file(0), 1 << 20) == [1; 64 << 10]);
    b.check();
}

/// RFJ, section 4.2: what it leaves in its log is a log of jbd2, which other tools recover.
#[test]
fn e2fsck_recovers_what_overwriting_requests_left_in_the_log() {
    let o = Options::default().with(Profile::Rfj.choices());
    let b = Bench::new("32M", &["-t", "ext4", "-b", "4096"], 1, o);
    write(&b, file(0), 0, &[1; 64 << 10]);
    b.volume.sync().unwrap();
    write(&b, file(0), 5000, &[2; 20_000]);
    write(&b, file(0), 64 << 10, &[3; 8192]);
    b.volume.fsync(file(0), false).unwrap();
    let want = b.read_all(file(0), 1 << 20);
    let extent = b.volume.extents(file(0), 8192, 4096, 1).unwrap()[0];
    let home = usize::try_from(extent.physical + 8192 - extent.logical).unwrap();
    let crashed = b.device.inner().inner().snapshot();
    assert_eq!(crashed[home], 1, "what is overwritten is in the log alone");
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), &crashed).unwrap();
    // 1: the file system was changed.
    let repaired = std::process::Command::new("e2fsck").arg("-fy").arg(image.path()).output().unwrap();
    assert!(matches!(repaired.status.code(), Some(0 | 1)), "{repaired:?}");
    let out = String::from_utf8_lossy(&repaired.stdout);
    assert!(out.contains("recovering journal") && !out.contains("FIXED"), "{out}");
    let recovered = std::fs::read(image.path()).unwrap();
    assert_eq!(recovered[home], 2, "e2fsck wrote it home");
    let dumped = tempfile::NamedTempFile::new().unwrap();
    let dump = format!("dump <{}> {}", file(0).0, dumped.path().to_str().unwrap());
    quire_testkit::run("debugfs", &["-R", &dump, image.path().to_str().unwrap()]);
    assert!(std::fs::read(dumped.path()).unwrap() == want);
    b.check();
}

/// The threshold is the caller's to choose.
#[test]
fn the_threshold_of_selective_counts_bytes_of_a_block() {
    let o = Options { write_threshold: Some(100), ..options(Route::Selective) };
    let b = Bench::new("32M", &["-t", "ext4", "-b", "4096"], 1, o);
    write(&b, file(0), 0, &[1; 16 << 10]);
    b.volume.sync().unwrap();
    for (at, len, in_place) in [(0, 99, 0), (4096, 100, 1), (2 * 4096 - 50, 120, 0)] {
        b.volume.maintenance().checkpoint().unwrap();
        let d = b.counted(|| {
            write(&b, file(0), at, &vec![7; len]);
            b.volume.fsync(file(0), true).unwrap();
        });
        let blocks = d.region(Region::Data).writes.bytes / 4096;
        assert_eq!(blocks, in_place, "{len} bytes at {at}");
    }
    b.check();
}
