//! A host that takes no more, an image that becomes shorter under its mount, sockets of daemons that were killed.

use crate::common::{Mounted, Place, needs_mounts, needs_root, needs_tools, ok, quire, said, text, tool, wait_until};
use crate::trees::Scratch;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

fn contents(n: usize) -> Vec<u8> {
    vec![u8::try_from(n % 251).expect("small"); 300_000]
}

/// Writes and syncs files until one is refused. Returns how many were acknowledged.
fn fill(m: &Mounted) -> usize {
    let one = |n: usize| {
        let mut file = File::create(m.path(&format!("f{n}")))?;
        file.write_all(&contents(n))?;
        file.sync_all()
    };
    (0..200).take_while(|n| one(*n).is_ok()).count()
}

/// The host's file system is full under a sparse image: errors, and no end; all that was synced is there.
#[test]
fn a_full_host_is_an_error_and_what_was_synced_is_there() {
    needs_mounts();
    needs_root();
    for options in ["", "data=ordered", "data=journal,writethrough"] {
        let place = Place::new("64M", &[]);
        let host = place.path("host");
        fs::create_dir(&host).unwrap();
        ok(tool("mount").args(["-t", "tmpfs", "-o", "size=24M", "tmpfs"]).arg(&host));
        let image = host.join("image");
        ok(tool("cp").arg("--sparse=always").arg(place.image()).arg(&image));
        let m = place.mount_image(&image, options);
        let acknowledged = fill(&m);
        assert!((5..84).contains(&acknowledged), "{options}: {acknowledged} files of 300,000 bytes in 24 MiB");
        assert!(m.is_alive(), "{options}");
        assert_eq!(fs::read(m.path("f0")).unwrap().len(), 300_000);
        // Whether it can be left clean depends on where the host has blocks.
        said(&mut quire(&["umount", m.dir()]));
        wait_until("the daemon's end", || !m.is_alive());
        drop(m);
        ok(tool("mount").args(["-o", "remount,size=100M"]).arg(&host));
        let m = place.mount_image(&image, "");
        for n in 0..acknowledged {
            assert_eq!(fs::read(m.path(&format!("f{n}"))).unwrap(), contents(n), "{options}: {n}");
        }
        // The refused writes are recorded in the superblock as errors of the disk, which asks for e2fsck.
        said(&mut quire(&["umount", m.dir()]));
        wait_until("the daemon's end", || !m.is_alive());
        drop(m);
        let (code, words) = said(tool("e2fsck").arg("-fy").arg(&image));
        assert!(code <= 1, "{options}: {code}: {words}");
        crate::common::check(&image);
        ok(tool("umount").arg(&host));
    }
}

/// The image is cut under its mount: errors that say where, and no end.
#[test]
fn an_image_that_is_truncated_while_it_is_mounted_is_an_error_and_no_end() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("");
    fs::write(m.path("before"), [1; 5000]).unwrap();
    ok(&mut quire(&["sync", m.dir()]));
    File::options().write(true).open(place.image()).unwrap().set_len(1 << 20).unwrap();
    // The file's blocks may lie in what was cut off; what matters is that calls end.
    for n in 0..20 {
        fs::write(m.path(&format!("f{n}")), vec![2; 100_000]).ok();
        fs::read(m.path("before")).ok();
    }
    assert!(m.is_alive());
    said(&mut quire(&["umount", m.dir()]));
    wait_until("the daemon's end", || !m.is_alive());
}

fn sockets() -> Vec<std::path::PathBuf> {
    fs::read_dir("/run/quire").into_iter().flatten().flatten().map(|f| f.path()).collect()
}

/// A daemon that is killed leaves its socket: nobody takes it for a mount, and a later mount is asked as ever.
#[test]
fn a_socket_that_a_killed_daemon_left_disturbs_nobody() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &[]);
    for _ in 0..3 {
        let before = sockets();
        let m = place.mount("");
        let dir = m.dir().to_owned();
        ok(&mut quire(&["stats", &dir]));
        m.end_by(Signal::KILL);
        let (code, words) = said(tool("timeout").args(["20", env!("CARGO_BIN_EXE_quire"), "stats", &dir]));
        assert!(code == 32, "{code}: {words}; sockets before: {before:?}");
        ok(tool("umount").args(["-l", &dir]));
        assert_eq!(fs::read_dir(&dir).expect("no dead mount").count(), 0);
    }
    let m = place.mount("");
    ok(&mut quire(&["stats", m.dir()]));
    m.unmount();
    place.check();
}

/// df(1) beside unmounts: none says "in use", and each mount that follows at once succeeds.
#[test]
fn unmounts_beside_df_and_mounts_right_after_them_succeed() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                said(tool("df").arg(place.mnt()));
            }
        });
        let faults: Vec<String> = (0..20)
            .filter_map(|n| {
                let (code, words) = said(&mut quire(&["mount", text(&place.image()), text(&place.mnt())]));
                if code != 0 {
                    return Some(format!("mount {n}: {code}: {words}"));
                }
                let (code, words) = said(&mut quire(&["umount", text(&place.mnt())]));
                (code != 0).then(|| format!("umount {n}: {code}: {words}"))
            })
            .collect();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(faults.is_empty(), "{faults:?}");
    });
    place.check();
}

/// What an access and chattr(1) have set is the same after an unmount.
#[test]
fn times_of_reads_and_flags_are_the_same_after_an_unmount() {
    use std::os::unix::fs::MetadataExt;
    needs_mounts();
    let times = |path: &Path| {
        let m = fs::metadata(path).unwrap();
        [(m.atime(), m.atime_nsec()), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())]
    };
    let place = Place::new("16M", &[]);
    let m = place.mount("strictatime,writethrough");
    fs::write(m.path("f"), [1; 5000]).unwrap();
    m.unmount();
    let m = place.mount("strictatime,writethrough");
    let made = times(&m.path("f"));
    fs::read(m.path("f")).unwrap();
    let read = times(&m.path("f"));
    assert!(read[0] > made[0] && read[1..] == made[1..], "a read is an access: {made:?} {read:?}");
    ok(tool("chattr").arg("+d").arg(m.path("f")));
    let flagged = times(&m.path("f"));
    assert!(flagged[2] > read[2] && flagged[..2] == read[..2], "chattr is a change: {read:?} {flagged:?}");
    m.unmount();
    let m = place.mount("strictatime,writethrough");
    assert_eq!(times(&m.path("f")), flagged);
    m.unmount();
    place.check();
}

/// The file of a shell's `>` takes whole pages until its file system is full. In an archive of empty files each is the
/// end of an entry.
#[test]
fn an_export_into_a_file_of_a_full_host_leaves_no_archive_that_looks_whole() {
    needs_root();
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let (image, host) = (s.text("image"), s.path("host"));
    fs::create_dir(s.path("tree")).unwrap();
    for n in 0..400 {
        fs::write(s.path(&format!("tree/{n}")), "").unwrap();
    }
    let date = ["--source-date-epoch", "1700000000", "--size", "16M"];
    ok(quire(&["create", &image, "--from", &s.text("tree")]).args(date));
    fs::create_dir(&host).unwrap();
    ok(tool("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&host));
    let archive = host.join("tar");
    let (code, words) = said(quire(&["export", &image, "-"]).stdout(File::create(&archive).unwrap()));
    let tar = said(tool("tar").arg("-tf").arg(&archive));
    let len = fs::metadata(&archive).unwrap().len();
    ok(tool("umount").arg(&host));
    assert!(code == 1 && words.contains("No space left"), "{code}: {words}");
    assert!(len > 40_000 && tar.0 != 0, "tar takes {len} bytes: {}", tar.1);
}
