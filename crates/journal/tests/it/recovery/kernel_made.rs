//! Logs that the kernel leaves: images copied from under a live mount.

use super::judge::{Dirty, assert_clean, compare, path, recover_with_ours, superblock, to_file, tool};
use quire_layout::jbd2::Checksums;
use quire_testkit::{Rng, needs_root, skip};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use tempfile::{NamedTempFile, TempDir};

/// Skips the test where the kernel does not mount for us.
fn needs_kernel_mounts() {
    needs_root();
    if !Path::new("/dev/loop-control").exists() {
        skip("no loop devices");
    }
}

/// A loop device over a file; detached when dropped.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Self {
        let (code, said) = tool("losetup", &["-f", "--show", file.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{said}");
        Loop(said.trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        tool("losetup", &["-d", &self.0]);
    }
}

/// A kernel mount; unmounted when dropped.
struct Mounted {
    dir: TempDir,
}

impl Mounted {
    fn new(device: &str, options: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let (code, said) = tool("mount", &["-t", "ext4", "-o", options, device, dir.path().to_str().unwrap()]);
        assert_eq!(code, Some(0), "{said}");
        Mounted { dir }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        tool("umount", &[self.dir.path().to_str().unwrap()]);
    }
}

/// Metadata work that ends durable in the log, most of it not at home.
fn work(dir: &Path, rng: &mut Rng, rounds: u64) {
    let sync = |p: &Path| File::open(p).unwrap().sync_all().unwrap();
    for round in 0..rounds {
        let d = dir.join(format!("d{}", rng.below(6)));
        let _ = fs::create_dir(&d);
        let name = d.join(format!("f{}", rng.below(12)));
        match rng.below(6) {
            0 => drop(fs::remove_file(&name)),
            1 => drop(fs::remove_dir_all(&d)),
            2 => drop(fs::rename(&name, dir.join(format!("r{round}")))),
            _ => {
                let mut f = OpenOptions::new().append(true).create(true).open(&name).unwrap();
                let mut data = vec![0; usize::try_from(rng.below(20_000)).unwrap()];
                rng.fill(&mut data);
                if data.len() > 4 && rng.one_in(3) {
                    data[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
                }
                f.write_all(&data).unwrap();
                f.sync_all().unwrap();
            }
        }
        if rng.one_in(3) {
            sync(dir);
        }
    }
    fs::write(dir.join("last"), b"last").unwrap();
    sync(&dir.join("last"));
    sync(dir);
}

fn make(options: &[&str]) -> NamedTempFile {
    let f = NamedTempFile::new().unwrap();
    let mut args = vec!["-q", "-F", "-t", "ext4"];
    args.extend(options);
    args.extend([path(&f), "48M"]);
    let (code, said) = tool("mke2fs", &args);
    assert_eq!(code, Some(0), "{said}");
    f
}

/// The bytes of a device in use, as they stood at one moment: the kernel may write while we read, so two readings must
/// be the same.
fn still(path: &Path) -> Vec<u8> {
    let mut first = fs::read(path).unwrap();
    for _ in 0..100 {
        let second = fs::read(path).unwrap();
        if first == second {
            return first;
        }
        first = second;
    }
    panic!("{} does not stand still", path.display());
}

/// Mounts, works, copies the image while it is mounted.
fn left_by_kernel(mkfs: &[&str], mount: &str, seed: u64, rounds: u64) -> Dirty {
    let f = make(mkfs);
    let dev = Loop::new(f.path());
    let m = Mounted::new(&dev.0, mount);
    work(m.dir.path(), &mut Rng::new(seed), rounds);
    Dirty { image: still(f.path()), external: None }
}

/// A small image, for tests that recover it many times; skips the test where the kernel cannot be asked.
pub(crate) fn small() -> Dirty {
    needs_kernel_mounts();
    left_by_kernel(&["-b", "1024", "-J", "size=1"], "commit=600", 4, 25)
}

fn log_format(d: &Dirty) -> quire_layout::jbd2::LogFormat {
    let home = std::sync::Arc::new(quire_testkit::MemDevice::new(d.image.clone()));
    *super::judge::open_on(d, home, None).log.unwrap().format()
}

#[test]
fn kernel_logs_replay_as_e2fsck_does() {
    needs_kernel_mounts();
    let mkfs: [&[&str]; 5] = [
        &["-b", "1024", "-J", "size=4"],
        &["-b", "2048", "-J", "size=4"],
        &["-b", "4096", "-J", "size=4"],
        &["-b", "4096", "-J", "size=4", "-O", "^metadata_csum,^64bit"],
        &["-b", "1024", "-J", "size=4", "-O", "^extent,^64bit,^metadata_csum,^flex_bg", "-I", "128"],
    ];
    for (n, mkfs) in mkfs.iter().enumerate() {
        for mount in ["commit=600", "commit=600,data=journal", "commit=600,journal_checksum"] {
            let d = left_by_kernel(mkfs, mount, n as u64, 120);
            let plan = compare(&d);
            assert!(plan.transactions > 5 && plan.images().len() > 5, "{mkfs:?} {mount}");
            assert!(superblock(&recover_with_ours(&d).after.image).features().incompat & 4 == 0);
        }
    }
}

/// Without metadata_csum the kernel's `journal_checksum` is v1; and its asynchronous commits.
#[test]
fn old_checksums_and_async_commits_of_the_kernel_replay() {
    needs_kernel_mounts();
    let old = ["-b", "1024", "-J", "size=4", "-O", "^metadata_csum"];
    let new = ["-b", "1024", "-J", "size=4"];
    for (mkfs, mount, sums, is_async) in [
        (&old[..], "commit=600,journal_checksum", Checksums::V1, false),
        (&old[..], "commit=600,journal_checksum,journal_async_commit,data=writeback", Checksums::V1, true),
        (&new[..], "commit=600,journal_async_commit,data=writeback", Checksums::V3, true),
        (&new[..], "commit=600,journal_async_commit,data=journal", Checksums::V3, true),
    ] {
        let d = left_by_kernel(mkfs, mount, 9, 80);
        let f = log_format(&d);
        assert_eq!((f.checksums, f.async_commit), (sums, is_async), "{mount}");
        assert!(compare(&d).transactions > 5);
    }
}

/// So much work that the log has wrapped, some of it checkpointed.
#[test]
fn a_wrapped_log_of_the_kernel_replays() {
    needs_kernel_mounts();
    let mkfs = ["-b", "1024", "-J", "size=1"];
    let mut wrapped = 0;
    for rounds in [350, 420, 500, 600, 700, 800] {
        let d = left_by_kernel(&mkfs, "commit=600,data=journal", rounds, rounds);
        let plan = compare(&d);
        let start =
            super::judge::open_on(&d, std::sync::Arc::new(quire_testkit::MemDevice::new(d.image.clone())), None);
        let start = start.log.unwrap().superblock().start().unwrap();
        wrapped += u32::from(plan.head < start && plan.transactions > 0);
    }
    assert!(wrapped > 0, "none of the logs had wrapped");
}

#[test]
fn a_kernel_log_on_another_device_replays() {
    needs_kernel_mounts();
    for bs in ["1024", "4096"] {
        let journal = NamedTempFile::new().unwrap();
        let (code, said) = tool("mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", bs, path(&journal), "8M"]);
        assert_eq!(code, Some(0), "{said}");
        let jdev = Loop::new(journal.path());
        let f = make(&["-b", bs, "-J", &format!("device={}", jdev.0)]);
        let dev = Loop::new(f.path());
        let m = Mounted::new(&dev.0, &format!("commit=600,journal_path={}", jdev.0));
        work(m.dir.path(), &mut Rng::new(3), 100);
        let d = Dirty { image: still(f.path()), external: Some(still(journal.path())) };
        drop(m);
        let plan = compare(&d);
        assert!(plan.transactions > 5);
    }
}

/// Fast commits after the last transaction are refused by name and nothing is written; a log whose fast commits a full
/// commit has made void is replayed.
#[test]
fn fast_commits_are_refused_and_void_ones_are_not() {
    needs_kernel_mounts();
    let f = make(&["-b", "1024", "-J", "size=8", "-O", "fast_commit"]);
    let dev = Loop::new(f.path());
    let m = Mounted::new(&dev.0, "commit=600");
    let sync_all = || assert_eq!(tool("sync", &["-f", m.dir.path().to_str().unwrap()]).0, Some(0));
    let write = |name: &str| {
        let mut file = File::create(m.dir.path().join(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.sync_all().unwrap();
    };
    fs::create_dir(m.dir.path().join("d")).unwrap();
    sync_all();
    ["a", "b", "c"].iter().for_each(|n| write(n));
    let d = Dirty { image: still(f.path()), external: None };
    let ours = recover_with_ours(&d);
    let e = ours.plan.unwrap_err().to_string();
    assert!(e.starts_with("unsupported: fast_commit replay (3 fast commits"), "{e}");
    assert!(ours.after.image == d.image, "nothing is written");

    // A full commit makes them void. e2fsck 1.47.0 fails on such an area, so here the kernel is the judge.
    sync_all();
    fs::create_dir(m.dir.path().join("e")).unwrap();
    sync_all();
    let d = Dirty { image: still(f.path()), external: None };
    let ours = recover_with_ours(&d);
    let plan = ours.plan.unwrap();
    assert!(plan.fast_commits.commits == 0 && plan.transactions > 0 && !plan.is_damaged());
    assert_clean(&ours.after);
    let copy = to_file(&ours.after.image);
    let dev = Loop::new(copy.path());
    let m = Mounted::new(&dev.0, "ro");
    let content = |n: &str| fs::read(m.dir.path().join(n)).unwrap();
    assert_eq!((content("a"), content("c")), (b"a".to_vec(), b"c".to_vec()));
    assert!(m.dir.path().join("e").is_dir());
}
