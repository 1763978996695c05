//! FileDevice on block devices and odd hosts. Needs root, loop devices and mkfs.ext4; skipped otherwise.

use quire_device::nvram::{Nvram, NvramError, NvramMap, NvramOptions};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, ErrorKind, FileDevice, Holder, Io, OpenError, OpenOptions, Region};
use quire_testkit::{needs_root, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(command).args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn needs_loop_devices() {
    needs_root();
    if run("losetup", &["--find"]).is_none() {
        skip("no loop devices");
    }
}

/// A loop device on a new image; detached when dropped.
struct Loop {
    dev: String,
    image: tempfile::NamedTempFile,
}

impl Loop {
    fn new(size: u64, options: &[&str]) -> Loop {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(size).unwrap();
        let path = image.path().to_str().unwrap().to_owned();
        let args = [&["--find", "--show"], options, &[path.as_str()]].concat();
        Loop { dev: run("losetup", &args).expect("losetup"), image }
    }

    /// Detaches it; the image stays.
    fn detach(mut self) -> tempfile::TempPath {
        run("losetup", &["--detach", &std::mem::take(&mut self.dev)]).unwrap();
        let spare = tempfile::NamedTempFile::new().unwrap();
        std::mem::replace(&mut self.image, spare).into_temp_path()
    }

    fn open(&self) -> Result<FileDevice, OpenError> {
        FileDevice::open(&self.dev, OpenOptions::default())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The name may be somebody else's once it is detached.
        if !self.dev.is_empty() {
            run("losetup", &["--detach", &self.dev]);
        }
    }
}

/// A mount; gone when dropped.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(args: &[&str]) -> Mount {
        let dir = tempfile::tempdir().unwrap();
        let args = [args, &[dir.path().to_str().unwrap()]].concat();
        run("mount", &args).expect("mount");
        Mount(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.path().to_str().unwrap()]);
    }
}

fn holder(result: Result<FileDevice, OpenError>) -> Holder {
    match result {
        Err(OpenError::Busy { holder, .. }) => holder,
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("opened what is in use"),
    }
}

fn filled(len: usize, byte: u8) -> Arc<Buf> {
    let mut b = Buf::zeroed(len);
    b.fill(byte);
    Arc::new(b)
}

/// M3.
#[test]
fn an_image_that_the_kernel_uses_is_not_written_to() {
    needs_loop_devices();
    let l = Loop::new(8 << 20, &[]);
    let open = |read_only| FileDevice::open(l.image.path(), OpenOptions { read_only, ..OpenOptions::default() });
    assert_eq!(holder(open(false)), Holder::LoopDevice(PathBuf::from(&l.dev)));
    open(true).unwrap();
    // The kernel lets go of the image some time after it was told to: an open waits for that.
    let image = l.image.path().to_owned();
    std::thread::scope(|threads| {
        let detached = threads.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            l.detach()
        });
        let opened = FileDevice::open(&image, OpenOptions::default());
        let _image = detached.join().unwrap();
        opened.unwrap();
    });
}

/// M3.
#[test]
fn a_disk_has_one_owner() {
    needs_loop_devices();
    let l = Loop::new(16 << 20, &[]);
    run("mkfs.ext4", &["-q", &l.dev]).expect("mkfs.ext4");
    {
        let mount = Mount::new(&[&l.dev]);
        assert_eq!(holder(l.open()), Holder::Mount(mount.path().to_owned()));
        // Looking on is possible.
        let how = OpenOptions { read_only: true, lock: false, ..OpenOptions::default() };
        FileDevice::open(&l.dev, how).unwrap();
    }
    let dev = l.open().unwrap();
    assert_eq!((dev.info().size, dev.info().logical_sector, dev.is_direct()), (16 << 20, 512, true));
    assert!(matches!(holder(l.open()), Holder::Process { pid, .. } if pid == std::process::id()));
    assert!(Command::new("mount").args([&l.dev, "/mnt"]).output().is_ok_and(|o| !o.status.success()));
}

/// M12.
#[test]
fn a_memory_on_a_block_device_has_one_user() {
    needs_loop_devices();
    let l = Loop::new(4 << 20, &[]);
    let how = NvramOptions { simulated: true, size: Some(2 << 20), ..NvramOptions::default() };
    let memory = NvramMap::open(&l.dev, how).unwrap();
    assert_eq!(memory.size(), 2 << 20);
    let holder_of_memory = |how| match NvramMap::open(&l.dev, how) {
        Err(NvramError::Busy { holder, .. }) => Some(holder),
        Err(e) => panic!("{e}"),
        Ok(_) => None,
    };
    let pid = std::process::id();
    assert!(matches!(holder_of_memory(how), Some(Holder::Process { pid: held_by, .. }) if held_by == pid));
    assert!(matches!(holder(l.open()), Holder::Process { pid: held_by, .. } if held_by == pid));
    assert_eq!(holder_of_memory(NvramOptions { read_only: true, ..how }), None, "looking on is possible");
    drop(memory);
    assert_eq!(holder_of_memory(how), None);
}

#[test]
fn a_disk_reads_writes_zeroes_and_discards() {
    needs_loop_devices();
    let l = Loop::new(16 << 20, &[]);
    let dev = l.open().unwrap();
    let write = |n: u64, fua| Io::Write { at: n * 12288, data: vec![filled(8192, 7)], region: Region::Data, fua };
    let t = dev.submit((0..500).map(|n| write(n, n % 7 == 0)).collect());
    dev.wait(t).unwrap();
    dev.run(vec![Io::Flush]).unwrap();
    assert!(dev.info().discards);
    dev.run(vec![Io::Zero { at: 0, len: 512, region: Region::Log }, Io::Discard { at: 1 << 20, len: 1 << 20 }])
        .unwrap();
    dev.preallocate(0, 4096).unwrap();
    let all = dev.read(0, 6_144_000, Region::Data).unwrap();
    for (i, sector) in all.chunks(512).enumerate() {
        let want = if i == 0 || i % 24 >= 16 { 0 } else { 7 };
        assert!((2048..4096).contains(&i) || sector.iter().all(|b| *b == want), "sector {i}");
    }
    assert_eq!(dev.read(16 << 20, 512, Region::Data).unwrap_err().kind, ErrorKind::OutOfRange);
}

#[test]
fn the_holes_behind_a_loop_device_are_filled() {
    needs_loop_devices();
    let l = Loop::new(16 << 20, &["--offset", "1048576"]);
    let dev = l.open().unwrap();
    dev.write(3 << 20, filled(4096, 7), Region::Log).unwrap();
    dev.run(vec![Io::Flush]).unwrap();
    dev.preallocate(2 << 20, 4 << 20).unwrap();
    let hole = |from: u64| rustix::fs::seek(l.image.as_file(), rustix::fs::SeekFrom::Hole(from)).unwrap();
    assert!(hole(0) < 3 << 20 && hole(3 << 20) >= 7 << 20, "holes at {} and {}", hole(0), hole(3 << 20));
    let all = dev.read(2 << 20, 4 << 20, Region::Log).unwrap();
    let written = (1 << 20)..(1 << 20) + 4096;
    assert!(all.iter().enumerate().all(|(n, b)| *b == if written.contains(&n) { 7 } else { 0 }));
}

#[test]
fn sectors_of_4096_bytes_still_give_a_superblock() {
    needs_loop_devices();
    let l = Loop::new(8 << 20, &["--sector-size", "4096"]);
    let dev = l.open().unwrap();
    assert_eq!((dev.info().logical_sector, dev.info().physical_sector), (4096, 4096));
    dev.write(0, filled(4096, 1), Region::Data).unwrap();
    dev.write(1024, filled(1024, 2), Region::Superblock).unwrap();
    assert!(dev.read(1024, 1024, Region::Superblock).unwrap().iter().all(|b| *b == 2));
    let block = dev.read(0, 4096, Region::Data).unwrap();
    assert!(block.iter().enumerate().all(|(i, b)| *b == if (1024..2048).contains(&i) { 2 } else { 1 }));
    let how = OpenOptions { offset: 512, lock: false, read_only: true, ..OpenOptions::default() };
    let opened = FileDevice::open(&l.dev, how).map(drop);
    assert!(matches!(opened, Err(OpenError::Unaligned { sector: 4096, .. })), "{opened:?}");
}

#[test]
fn a_full_host_is_no_space() {
    needs_loop_devices();
    let host = Mount::new(&["-t", "tmpfs", "-o", "size=1m", "none"]);
    let path = host.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let dev = FileDevice::open(&path, OpenOptions::default()).unwrap();
    let e = (0..64).find_map(|n| dev.write(n << 18, filled(64 << 10, 1), Region::Data).err()).unwrap();
    assert_eq!((e.kind, e.errno, e.len), (ErrorKind::NoSpace, 28, 64 << 10));
    let t = dev.submit(
        (0..64)
            .map(|n| Io::Write { at: n << 19, data: vec![filled(4096, 1)], region: Region::Log, fua: false })
            .collect(),
    );
    assert_eq!(dev.wait(t).unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(dev.preallocate(0, 64 << 20).unwrap_err().kind, ErrorKind::NoSpace);
}

#[test]
fn a_host_without_direct_io_is_used_buffered() {
    needs_loop_devices();
    let host = Mount::new(&["-t", "ramfs", "none"]);
    let path = host.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let dev = FileDevice::open(&path, OpenOptions::default()).unwrap();
    assert!(!dev.is_direct());
    dev.run(
        (0..4)
            .map(|n| Io::Write { at: n << 16, data: vec![filled(512, 3)], region: Region::Data, fua: true })
            .collect(),
    )
    .unwrap();
    dev.run(vec![Io::Discard { at: 0, len: 4096 }]).unwrap();
    dev.run(vec![Io::Zero { at: 1 << 16, len: 512, region: Region::Data }]).unwrap();
    assert_eq!(dev.read(1 << 16, 512, Region::Data).unwrap()[0], 0);
    assert_eq!(dev.read(2 << 16, 512, Region::Data).unwrap()[0], 3);
}
