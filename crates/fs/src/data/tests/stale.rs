//! What is in memory is never older than what the disk holds (J3), and what is pending never outlives its reason.

use super::{Bench, Then, file, image, options};
use crate::config::Route;
use crate::data::WriteFlags;
use crate::records;
use crate::{Devices, Volume};
use quire_device::sync::{Arc, lock};
use quire_device::{Io, Region, SystemClock};
use quire_layout::inode::flags;
use quire_layout::{BlockNo, FileBlock, Ino};

fn first_block(v: &Volume, ino: Ino) -> BlockNo {
    let found = v.run(|op| {
        let inode = records::inode(op, ino)?;
        crate::map::lookup(op, ino, &inode, FileBlock(0), 1)
    });
    found.unwrap().written().expect("it has data")
}

/// A block of a file is loaded (as the readahead of inodes does, where it lies behind their table) while the file is
/// overwritten in place: reads and writes of parts find the new bytes.
#[test]
fn a_load_on_its_way_does_not_hide_new_data() {
    // Hands over what was read of metadata only after that.
    let is_metadata = |io: &Io| matches!(io, Io::Read { region: Region::Metadata, .. });
    let device = Arc::new(Then::new(image("16M", &["-t", "ext4", "-b", "4096"], 1), is_metadata));
    let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options(Route::Ordered)).unwrap();
    v.write(file(0), 0, &[1; 8192], WriteFlags::default()).unwrap();
    v.fsync(file(0), false).unwrap();
    let b = first_block(&v, file(0));
    let theirs = v.clone();
    device.set(move || {
        theirs.write(file(0), 0, &[2; 8192], WriteFlags::default()).unwrap();
        theirs.fsync(file(0), false).unwrap();
    });
    v.engine().journal.load(&[b]).unwrap();
    assert!(device.has_done_it());
    lock(&v.data().files.clean).drop_from(file(0), FileBlock(0));
    let mut buf = [0; 8192];
    v.read(file(0), 0, &mut buf).unwrap();
    assert_eq!(buf, [2; 8192]);
    v.write(file(0), 10, &[3], WriteFlags::default()).unwrap();
    v.fsync(file(0), false).unwrap();
    v.read(file(0), 0, &mut buf).unwrap();
    assert_eq!((buf[9], buf[10], buf[11]), (2, 3, 2));
}

/// A size that was pending when the file was truncated is void, also if no time was pending with it (the kernel's cache
/// keeps the times).
#[test]
fn a_pending_size_does_not_outlive_a_truncate() {
    let b = Bench::new("16M", &["-t", "ext4", "-b", "4096"], 1, options(Route::Ordered));
    let v = &b.volume;
    let from_cache = WriteFlags { deferred: true, keep_times: true, ..WriteFlags::default() };
    v.write(file(0), 40_960, &[1; 4096], from_cache).unwrap();
    v.truncate(file(0), 5000).unwrap();
    v.truncate(file(0), 9000).unwrap();
    assert_eq!(v.getattr(file(0)).unwrap().size, 9000);
    b.check();
}

/// The names of a directory are its data.
#[test]
fn fdatasync_of_a_directory_makes_its_names_durable() {
    let b = Bench::new("16M", &["-t", "ext4"], 2, options(Route::Ordered));
    let v = &b.volume;
    v.sync().unwrap();
    v.link(file(0), Ino::ROOT, b"second").unwrap();
    v.fsync(Ino::ROOT, true).unwrap();
    v.unlink(Ino::ROOT, b"f00001").unwrap();
    v.fsync(Ino::ROOT, true).unwrap();
    let after = b.after_a_crash();
    assert!(after.lookup(Ino::ROOT, b"second").is_ok());
    assert!(after.lookup(Ino::ROOT, b"f00001").is_err());
}

/// Freeing many blocks that have records in the log is no reason to stop, however full the transaction is.
#[test]
fn journaled_files_of_any_size_are_removed() {
    let b = Bench::new("32M", &["-t", "ext4", "-b", "1024", "-J", "size=1"], 2, options(Route::Ordered));
    let v = &b.volume;
    let limit = v.engine().journal.limit() as u64;
    for n in 0..2 {
        let old = v.inode_flags().get(file(n)).unwrap();
        v.inode_flags().set(file(n), old | flags::JOURNAL_DATA).unwrap();
    }
    for _ in 0..3 {
        v.write(file(0), 0, &vec![1; usize::try_from(limit + 50).unwrap() * 1024], WriteFlags::default()).unwrap();
        v.sync().unwrap();
        // The transaction is nearly full when it is asked to forget more than it could hold.
        for n in 0..limit - 30 {
            v.write(file(1), n * 1024, &[2; 1024], WriteFlags::default()).unwrap();
        }
        v.truncate(file(0), 0).unwrap();
    }
    b.check();
}
