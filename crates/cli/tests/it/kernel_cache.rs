//! What the kernel keeps of a file in its page cache, and what it knows of the file's mode: nothing of it may be lost,
//! shown as a hole, or used after it has changed.

use crate::common::{Place, needs_mounts, needs_root, needs_tools, ok, said, text, tool};
use rustix::fs::{IFlags, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

const USER: &[&str] = &["--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// A user who overwrites a set-user-ID program of root does not become root by running it.
#[test]
fn a_program_that_a_user_has_overwritten_runs_without_its_owners_rights() {
    needs_mounts();
    needs_root();
    needs_tools(&["setpriv"]);
    let place = Place::new("32M", &[]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let id = ok(tool("sh").args(["-c", "command -v id"]));
    let changes = [
        format!("dd if={} of=$0 conv=notrunc bs=1M status=none", id.trim()),
        format!("cat {} > $0", id.trim()),
        "truncate -s +1 $0".to_owned(),
        "fallocate -l 200k $0".to_owned(),
    ];
    for options in ["", "writethrough"] {
        let m = place.mount(options);
        for (n, change) in changes.iter().enumerate() {
            let program = m.path(&format!("sid{n}"));
            // Not by this process: a child of another test's, on its way to exec(2), would have it open for writing.
            ok(tool("cp").args([id.trim()]).arg(&program));
            fs::set_permissions(&program, fs::Permissions::from_mode(0o4777)).unwrap();
            let script = format!("{change} && $0 -u");
            let uid = ok(tool("setpriv").args(USER).args(["sh", "-c", &script]).arg(&program));
            assert_eq!(uid.trim(), "65534", "{options}: {change}");
        }
        m.unmount();
    }
    place.check();
}

/// The space of a file after it was made, after it has got an attribute that needs a block, and after it has lost it.
fn blocks_with_an_attribute(options: &str) {
    needs_mounts();
    let place = Place::new("32M", &["-b", "4096"]);
    let m = place.mount(options);
    let path = m.path("f");
    File::create(&path).unwrap();
    let blocks = || fs::metadata(&path).unwrap().blocks();
    let before = blocks();
    rustix::fs::setxattr(&path, "user.large", &[b'v'; 3000], XattrFlags::empty()).unwrap();
    let with = blocks();
    rustix::fs::removexattr(&path, "user.large").unwrap();
    let after = blocks();
    m.unmount();
    place.check();
    assert_eq!((before, with, after), (0, 8, 0), "st_blocks without, with and again without the attribute");
}

#[test]
fn the_space_of_an_attribute_shows_at_once() {
    blocks_with_an_attribute("");
}

#[test]
fn the_space_of_an_attribute_shows_at_once_with_writethrough() {
    blocks_with_an_attribute("writethrough");
}

/// Another process copies a file whose data the kernel has not handed over yet.
#[test]
fn data_in_the_kernels_cache_is_no_hole() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let mut file = File::create(m.path("f")).unwrap();
    file.write_all(&[5; 300_000]).unwrap();
    let mut other = File::open(m.path("f")).unwrap();
    assert_eq!(rustix::fs::seek(&other, SeekFrom::Data(0)), Ok(0));
    assert_eq!(rustix::fs::seek(&other, SeekFrom::Hole(0)), Ok(300_000));
    other.rewind().unwrap();
    // With a hole in the middle, and more writers than the mount has workers.
    file.write_all_at(&[6; 4096], 2 << 20).unwrap();
    let seekers: Vec<_> = (0..80)
        .map(|_| {
            let path = m.path("f");
            std::thread::spawn(move || rustix::fs::seek(File::open(path).unwrap(), SeekFrom::Data(300_000 + 8192)))
        })
        .collect();
    seekers.into_iter().for_each(|s| assert_eq!(s.join().unwrap(), Ok(2 << 20)));
    ok(tool("cp").arg("--sparse=auto").arg(m.path("f")).arg(place.path("copy")));
    assert!(fs::read(place.path("copy")).unwrap() == fs::read(m.path("f")).unwrap());
    drop((file, other));
    m.unmount();
    place.check();
}

/// Each write to a file with `chattr +S` is durable when it returns.
#[test]
fn a_write_to_a_synchronous_file_survives_a_kill() {
    needs_mounts();
    needs_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    File::create(m.path("f")).unwrap().sync_all().unwrap();
    ok(tool("chattr").arg("+S").arg(m.path("f")));
    let mut file = OpenOptions::new().write(true).open(m.path("f")).unwrap();
    file.write_all(&[8; 4096]).unwrap();
    m.end_by(Signal::KILL);
    drop(file);
    said(tool("umount").arg("-l").arg(place.mnt()));
    let m = place.mount("");
    assert_eq!(fs::read(m.path("f")).unwrap(), [8; 4096]);
    m.unmount();
    place.check();
}

/// As chattr(1). A program that is started would close its copies of our descriptors first, and the kernel hands over
/// what it keeps of a file when one is closed.
fn set_flag(path: &Path, flag: IFlags) {
    let file = File::open(path).unwrap();
    let flags = rustix::fs::ioctl_getflags(&file).unwrap();
    rustix::fs::ioctl_setflags(&file, flags | flag).unwrap();
}

/// `chattr +a` and `+i` hold for descriptors and mappings that were opened before, and honest appends go on.
#[test]
fn append_only_and_immutable_hold_for_open_files() {
    needs_mounts();
    needs_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let append = |name: &str| OpenOptions::new().read(true).append(true).create(true).open(m.path(name)).unwrap();
    let (mut log, mut fixed) = (append("log"), append("fixed"));
    for file in [&mut log, &mut fixed] {
        file.write_all(b"written before the flag, still in the kernel's cache").unwrap();
    }
    // SAFETY: bytes of the mappings are stored to and not read; nothing cuts the files off.
    let mut maps = unsafe { [&log, &fixed].map(|file| memmap2::MmapMut::map_mut(file).unwrap()) };
    set_flag(&m.path("log"), IFlags::APPEND);
    set_flag(&m.path("fixed"), IFlags::IMMUTABLE);
    // What was written before the flag is there.
    log.sync_all().unwrap();
    fixed.sync_all().unwrap();
    // Appends go on, through the old descriptor and a new one, and `touch` sets times of now.
    log.write_all(b", appended").unwrap();
    log.sync_all().unwrap();
    let mut again = OpenOptions::new().append(true).open(m.path("log")).unwrap();
    again.write_all(b", and again").unwrap();
    again.sync_all().unwrap();
    ok(tool("touch").arg(m.path("log")));
    // An append descriptor that is turned into one for any offset does not overwrite, from before the flag or after.
    for file in [&again, &log] {
        let flags = rustix::fs::fcntl_getfl(file).unwrap();
        rustix::fs::fcntl_setfl(file, flags - OFlags::APPEND).unwrap();
        assert!(file.write_at(b"X", 0).and_then(|_| file.sync_all()).is_err());
    }
    // Nothing changes the immutable file.
    let changed = fixed.write_all(b"X").and_then(|()| fixed.sync_all());
    assert!(changed.is_err());
    // Stores into mappings do not arrive.
    for map in &mut maps {
        map[1] = b'X';
        assert!(map.flush().is_err());
    }
    // Nor do they stay in the kernel's cache: others read the file, and an honest append brings none of them along.
    for name in ["log", "fixed"] {
        let is_as_before = || fs::read(m.path(name)).unwrap().starts_with(b"written before");
        crate::common::wait_until("the kernel drops what was refused", is_as_before);
    }
    drop((log, again, fixed, maps));
    for (name, flag) in [("log", "-a"), ("fixed", "-i")] {
        ok(tool("chattr").arg(flag).arg(m.path(name)));
    }
    m.unmount();
    let m = place.mount("");
    let text_of = |name: &str| fs::read_to_string(m.path(name)).unwrap();
    let before = "written before the flag, still in the kernel's cache";
    assert_eq!(text_of("log"), format!("{before}, appended, and again"));
    assert_eq!(text_of("fixed"), before);
    m.unmount();
    place.check();
}

/// The kernel hands the times of writes over with an fsync and a close. A restore sets the flag so.
#[test]
fn a_file_that_its_writer_makes_immutable_is_synced_with_the_time_of_the_write() {
    needs_mounts();
    needs_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let mut file = File::create_new(m.path("f")).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    file.write_all(b"content").unwrap();
    let written = file.metadata().unwrap().modified().unwrap();
    let flags = rustix::fs::ioctl_getflags(&file).unwrap();
    rustix::fs::ioctl_setflags(&file, flags | IFlags::IMMUTABLE).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert!(said(tool("touch").arg(m.path("f"))).0 != 0, "an immutable file takes no other times");
    m.unmount();
    let m = place.mount("");
    assert_eq!(fs::metadata(m.path("f")).unwrap().modified().unwrap(), written);
    ok(tool("chattr").arg("-i").arg(m.path("f")));
    m.unmount();
    place.check();
}

/// A write to a file with `chattr +S` goes past the kernel's cache, whose time of the file stays as it was. A new link
/// has the kernel send it.
#[test]
fn the_time_of_a_write_past_the_kernels_cache_stays() {
    needs_mounts();
    needs_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    fs::write(m.path("f"), b"a").unwrap();
    set_flag(&m.path("f"), IFlags::SYNC);
    std::thread::sleep(Duration::from_millis(100));
    let before = SystemTime::now() - Duration::from_millis(50);
    OpenOptions::new().append(true).open(m.path("f")).unwrap().write_all(b"b").unwrap();
    fs::hard_link(m.path("f"), m.path("g")).unwrap();
    m.unmount();
    let m = place.mount("");
    assert!(fs::metadata(m.path("f")).unwrap().modified().unwrap() > before);
    // Another time that somebody sets is taken, after such a write, too.
    set_flag(&m.path("f"), IFlags::SYNC);
    OpenOptions::new().append(true).open(m.path("f")).unwrap().write_all(b"c").unwrap();
    ok(tool("touch").args(["-m", "-d", "@1000000000"]).arg(m.path("f")));
    m.unmount();
    let m = place.mount("");
    let set = fs::metadata(m.path("f")).unwrap().modified().unwrap();
    assert_eq!(set, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    m.unmount();
    place.check();
}

/// Programs that index and back up open directories so, too.
#[test]
fn a_directory_that_is_opened_with_o_noatime_keeps_its_access_time() {
    needs_mounts();
    needs_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("strictatime");
    // The kernel lists a directory once, and again from what it has kept.
    let listed = |name: &str, flags: OFlags| {
        fs::create_dir(m.path(name)).unwrap();
        let before = fs::metadata(m.path(name)).unwrap().accessed().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let dir = rustix::fs::open(m.path(name), OFlags::RDONLY | OFlags::DIRECTORY | flags, Mode::empty()).unwrap();
        assert_eq!(rustix::fs::Dir::new(dir).unwrap().count(), 2);
        fs::metadata(m.path(name)).unwrap().accessed().unwrap() > before
    };
    assert!(!listed("kept", OFlags::NOATIME));
    assert!(listed("set", OFlags::empty()));
    m.unmount();
    place.check();
}

/// The kernel checks who may set flags by the native number of the ioctl. The number of 32-bit programs goes past that
/// check when a 64-bit program gives it.
#[test]
fn a_user_cannot_set_flags_by_the_number_of_32_bit_programs() {
    needs_mounts();
    needs_root();
    needs_tools(&["perl"]);
    let place = Place::new("32M", &[]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let m = place.mount("allow_other");
    fs::write(m.path("f"), "x").unwrap();
    fs::set_permissions(m.path("f"), fs::Permissions::from_mode(0o644)).unwrap();
    let script =
        r#"open(F, "<", $ARGV[0]) or die; my $f = pack("i", 0x80010); ioctl(F, 0x40046602, $f) or exit($! + 0)"#;
    let (code, words) = said(tool("setpriv").args(USER).args(["perl", "-e", script]).arg(m.path("f")));
    assert_eq!(code, rustix::io::Errno::NOTTY.raw_os_error(), "{words}");
    let shown = ok(tool("lsattr").arg(m.path("f")));
    assert!(!shown.split(' ').next().unwrap().contains('i'), "{shown}");
    assert!(text(&m.path("f")).ends_with('f'));
    m.unmount();
    place.check();
}

/// A writer that looks at nothing but write(2) learns that the disk is full, before it has written twice what fits.
#[test]
fn a_full_disk_stops_a_writer_whose_data_the_kernel_keeps() {
    const MIB: usize = 1 << 20;
    needs_mounts();
    let place = Place::new("48M", &[]);
    let m = place.mount("");
    let keep = File::create(m.path("keep")).unwrap();
    // Opened while there is room, and then when there is none.
    for name in ["first", "second"] {
        let mut file = File::create(m.path(name)).unwrap();
        let fits = (0..100).take_while(|_| match file.write_all(&[7; MIB]) {
            Ok(()) => true,
            Err(e) => {
                assert_eq!(e.kind(), std::io::ErrorKind::StorageFull);
                false
            }
        });
        let written = fits.count();
        assert!(written < 90, "{name}: still writing after {written} MiB");
        // Looking is not writing.
        assert!(file.metadata().unwrap().len() <= 90 << 20);
        drop(file);
    }
    // What is freed can be used again, also through a file that was open all the time.
    fs::remove_file(m.path("first")).unwrap();
    fs::remove_file(m.path("second")).unwrap();
    (&keep).write_all(&[8; 20 * MIB]).unwrap();
    keep.sync_all().unwrap();
    drop(keep);
    m.unmount();
    place.check();
}

crate::common::over_uring! {
    a_program_that_a_user_has_overwritten_runs_without_its_owners_rights,
    data_in_the_kernels_cache_is_no_hole,
    a_write_to_a_synchronous_file_survives_a_kill,
    append_only_and_immutable_hold_for_open_files,
    a_full_disk_stops_a_writer_whose_data_the_kernel_keeps,
}
