//! What the commands say of damaged images, and that they change nothing where they cannot help.

use crate::common::{Place, needs_mounts, needs_root, needs_tools, ok, quire, said, skip, text, tool};
use quire_device::sync::Arc;
use quire_device::{FileDevice, OpenOptions, SystemClock};
use quire_fs::{Cred, Devices, New, NewKind, Options, Volume, WriteFlags};
use quire_layout::Ino;
use quire_layout::features::incompat;
use quire_layout::superblock::Superblock;
use std::fs;
use std::path::Path;

fn debugfs(image: &Path, commands: &[&str]) {
    for command in commands {
        ok(tool("debugfs").args(["-w", "-R", command]).arg(image));
    }
}

/// `recover` says the same with and without `--dry-run`, twice each, and changes nothing.
fn left(image: &Path, code: i32, word: &str) {
    let before = fs::read(image).unwrap();
    for args in [&["recover", "--dry-run"][..], &["recover"], &["recover"]] {
        let (found, words) = said(quire(args).arg(image));
        assert!(found == code && words.contains(word), "{args:?}: {found}: {words}");
        assert!(fs::read(image).unwrap() == before, "{args:?} has changed the image");
    }
}

/// A file "f" without links, recorded as the only orphan.
fn orphan(image: &Path) {
    debugfs(image, &["write /etc/passwd f", "sif f links_count 0", "ssv last_orphan 12", "unlink f"]);
}

#[test]
fn recover_claims_only_what_it_did() {
    needs_tools(&["mke2fs", "debugfs"]);
    for options in [&["-O", "bigalloc", "-C", "16384"][..], &["-O", "quota"]] {
        let place = Place::new("32M", options);
        orphan(&place.image());
        left(&place.image(), 4, options[1]);
    }
    let place = Place::new("16M", &[]);
    debugfs(&place.image(), &["ssv last_orphan 50"]);
    left(&place.image(), 4, "orphan list");
    let place = Place::new("16M", &[]);
    orphan(&place.image());
    let (code, words) = said(quire(&["recover"]).arg(place.image()));
    assert!(code == 1 && words.contains("deleted and truncated files finished"), "{code}: {words}");
    place.check();
    left(&place.image(), 0, "clean");
}

/// `e2fsck -y` would replay what is left in such a log, and the error be overlooked.
#[test]
fn recover_empties_a_log_that_is_not_needed_and_takes_over_its_error() {
    needs_tools(&["mke2fs", "debugfs", "e2fsck", "dumpe2fs"]);
    let with_word = |at: usize, word: i32| {
        let place = Place::new("16M", &["-b", "1024", "-J", "size=1", "-O", "^metadata_csum"]);
        let mut bytes = fs::read(place.image()).unwrap();
        let (_, block) = said(tool("debugfs").args(["-R", "bmap <8> 0"]).arg(place.image()));
        let block: usize = block.lines().find_map(|line| line.trim().parse().ok()).unwrap();
        bytes[block * 1024 + at..][..4].copy_from_slice(&word.to_be_bytes());
        fs::write(place.image(), bytes).unwrap();
        place
    };
    const START: usize = 0x1C;
    const ERRNO: usize = 0x20;
    for how in [&["recover"][..], &["recover", "--journal-only"]] {
        let place = with_word(START, 1);
        let (code, words) = said(quire(&["recover", "--dry-run"]).arg(place.image()));
        assert!(code == 4 && words.contains("not needed to be emptied"), "{code}: {words}");
        let (code, words) = said(quire(how).arg(place.image()));
        assert!(code == 1 && words.contains("a log that is not needed was emptied"), "{how:?}: {code}: {words}");
        place.check();
        assert_eq!(said(quire(how).arg(place.image())).0, 0, "{how:?}: now it is clean");
    }
    let place = with_word(ERRNO, -5);
    let (code, words) = said(quire(&["recover"]).arg(place.image()));
    assert!(code == 4 && words.contains("errors were recorded"), "{code}: {words}");
    let (_, words) = said(tool("dumpe2fs").arg("-h").arg(place.image()));
    assert!(words.contains("clean with errors") && !words.contains("Journal errno"), "{words}");
}

/// Orphans of an image with recorded errors are e2fsck's, as in the kernel: each run says so, and counts as no mount.
#[test]
fn recover_leaves_an_image_with_recorded_errors_as_it_is() {
    needs_tools(&["mke2fs", "debugfs"]);
    let place = Place::new("16M", &[]);
    debugfs(&place.image(), &["ssv state 2"]);
    left(&place.image(), 4, "recorded");
    orphan(&place.image());
    left(&place.image(), 4, "recorded");
}

#[test]
fn recover_says_what_a_mount_would_refuse() {
    needs_tools(&["mke2fs", "debugfs"]);
    let place = Place::new("16M", &["-b", "1024"]);
    let cut = place.path("cut");
    fs::copy(place.image(), &cut).unwrap();
    fs::File::options().write(true).open(&cut).unwrap().set_len(9 << 20).unwrap();
    left(&cut, 4, "truncated");
    let mut bytes = fs::read(place.image()).unwrap();
    bytes[2048..3072].fill(0xa5);
    fs::write(&cut, bytes).unwrap();
    left(&cut, 4, "group descriptor");
    let place = Place::new("16M", &[]);
    debugfs(&place.image(), &["clri <2>"]);
    left(&place.image(), 4, "inode 2");
    let place = Place::new("16M", &[]);
    debugfs(&place.image(), &["ssv state 3"]);
    left(&place.image(), 4, "errors");
}

#[test]
fn recover_decides_before_it_writes() {
    needs_tools(&["mke2fs", "debugfs"]);
    let zeros = |place: &Place| {
        let path = place.path("zeros");
        fs::write(&path, [0; 1024]).unwrap();
        path
    };
    let spoil = |place: &Place, ino: u32| {
        let (_, words) = said(tool("debugfs").args(["-R", &format!("imap <{ino}>")]).arg(place.image()));
        let block = words.split("at block ").nth(1).unwrap().split(',').next().unwrap().to_owned();
        let script = place.path("script");
        fs::write(&script, format!("jo\njw -b {block} {}\njc\n", zeros(place).display())).unwrap();
        ok(tool("debugfs").args(["-w", "-f", text(&script)]).arg(place.image()));
    };
    // The journal would be lost: nothing is done.
    let place = Place::new("16M", &["-b", "1024", "-O", "^metadata_csum"]);
    spoil(&place, 8);
    left(&place.image(), 4, "journal inode 8");
    // The root would be: the log is replayed, so that e2fsck can do the rest.
    let place = Place::new("16M", &["-b", "1024", "-O", "^metadata_csum", "-I", "1024"]);
    spoil(&place, 2);
    let (code, words) = said(quire(&["recover", "--dry-run"]).arg(place.image()));
    assert!(code == 4 && words.contains("inode 2"), "{code}: {words}");
    let (code, words) = said(quire(&["recover"]).arg(place.image()));
    assert!(code == 4 && words.contains("replayed") && words.contains("inode 2"), "{code}: {words}");
    left(&place.image(), 4, "inode 2");
}

/// What is not the journal's is neither done nor claimed.
#[test]
fn recover_of_the_journal_only_leaves_orphans() {
    needs_tools(&["mke2fs", "debugfs"]);
    let place = Place::new("16M", &[]);
    orphan(&place.image());
    let before = fs::read(place.image()).unwrap();
    for args in [&["recover", "--journal-only", "--dry-run"][..], &["recover", "--journal-only"]] {
        let (code, words) = said(quire(args).arg(place.image()));
        assert!(code == 0 && words.contains("the journal is empty"), "{args:?}: {code}: {words}");
        assert!(fs::read(place.image()).unwrap() == before, "{args:?} has changed the image");
    }
}

/// The place of an image in the log that says it belongs outside of the device.
#[test]
fn an_error_of_the_log_names_the_log_s_block() {
    needs_tools(&["mke2fs", "debugfs"]);
    let place = Place::new("16M", &["-b", "1024", "-O", "^metadata_csum,^64bit"]);
    let content = place.path("content");
    fs::write(&content, [7; 1024]).unwrap();
    let script = place.path("script");
    fs::write(&script, format!("jo\njw -b 9000 {}\njc\n", text(&content))).unwrap();
    ok(tool("debugfs").args(["-w", "-f", text(&script)]).arg(place.image()));
    let mut bytes = fs::read(place.image()).unwrap();
    let descriptor = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1];
    let at = bytes.windows(8).position(|w| w == descriptor).expect("a descriptor block");
    assert_eq!(bytes[at + 12..at + 16], 9000_u32.to_be_bytes(), "the first tag's block");
    bytes[at + 12..at + 16].copy_from_slice(&77_000_000_u32.to_be_bytes());
    fs::write(place.image(), bytes).unwrap();
    let image = at / 1024 + 1;
    left(&place.image(), 8, &format!("in block {image}: the home of an image is outside the device"));
}

/// Only the kernel makes fast commits. Quire does not replay them, and says so before it writes.
#[test]
fn recover_and_its_dry_run_refuse_fast_commits_alike() {
    needs_tools(&["mke2fs", "debugfs"]);
    needs_root();
    let place = Place::new("32M", &["-O", "fast_commit"]);
    let (mnt, crashed) = (place.mnt(), place.path("crashed"));
    let (code, words) = said(tool("mount").args(["-t", "ext4", "-o", "loop"]).arg(place.image()).arg(&mnt));
    if code != 0 {
        skip(format_args!("no loop mount: {words}"));
    }
    let fsynced = |path: &Path| fs::File::create(path).and_then(|f| f.sync_all());
    let made = fsynced(&mnt.join("first")).and_then(|()| {
        ok(tool("sync").arg("-f").arg(&mnt));
        (0..8).try_for_each(|n| fsynced(&mnt.join(format!("fast{n}"))))
    });
    let copied = fs::copy(place.image(), &crashed);
    ok(tool("umount").arg(&mnt));
    made.and(copied.map(drop)).unwrap();
    left(&crashed, 8, "fast_commit");
}

/// The newest head of the orphan list is at home, and the checksum beside it is of the time before.
#[test]
fn a_superblock_torn_between_its_sectors_is_taken_by_every_command() {
    needs_tools(&["mke2fs", "debugfs"]);
    let place = Place::new("64M", &["-b", "1024", "-O", "^orphan_file"]);
    let image = place.image();
    let crashed = {
        let device = Arc::new(FileDevice::open(&image, OpenOptions::default()).unwrap());
        let v = Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap();
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred { uid: 0, gid: 0 } };
        let kept = v.create(Ino::ROOT, b"kept", &new).unwrap().ino;
        let open = v.create(Ino::ROOT, b"open", &new).unwrap().ino;
        for ino in [kept, open] {
            v.write(ino, 0, &[7; 5000], WriteFlags::default()).unwrap();
            v.fsync(ino, false).unwrap();
        }
        v.unlink(Ino::ROOT, b"open").unwrap();
        v.fsync(open, false).unwrap();
        let mut bytes = fs::read(&image).unwrap();
        bytes[1024 + 0xe8..1024 + 0xec].copy_from_slice(&open.0.to_le_bytes());
        bytes
    };
    assert!(Superblock::decode_torn(&crashed[1024..2048]).is_err(), "more than flags is torn");
    fs::write(&image, &crashed).unwrap();
    let (code, words) = said(quire(&["info"]).arg(&image));
    assert!(code == 0 && words.contains("needs_recovery"), "{code}: {words}");
    let (code, words) = said(quire(&["recover", "--dry-run"]).arg(&image));
    assert!(code == 4 && words.contains("to replay"), "{code}: {words}");
    assert!(fs::read(&image).unwrap() == crashed);
    let (code, words) = said(quire(&["recover"]).arg(&image));
    assert!(code == 1 && words.contains("finished"), "{code}: {words}");
    place.check();
    let (_, words) = said(tool("debugfs").args(["-R", "stat kept"]).arg(&image));
    assert!(words.contains("Size: 5000"), "{words}");
}

/// With errors=remount-ro the log stays as it was at the error.
#[test]
fn umount_after_an_error_names_what_to_do() {
    needs_mounts();
    needs_tools(&["mke2fs", "debugfs"]);
    let place = Place::new("32M", &["-O", "^metadata_csum", "-b", "1024"]);
    debugfs(&place.image(), &["write /etc/passwd f", "sif f block[0] 0x11223344"]);
    let mounted = place.mount("errors=remount-ro");
    fs::write(mounted.path("before"), "here").unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap_err().raw_os_error(), Some(117));
    let (code, words) = said(&mut quire(&["umount", mounted.dir()]));
    assert!(code == 32 && words.contains("quire recover") && words.contains("e2fsck"), "{code}: {words}");
    let sb = Superblock::decode(&fs::read(place.image()).unwrap()[1024..2048]).unwrap();
    assert!(sb.features().has_incompat(incompat::QUIRE_LOG));
    let (code, words) = said(quire(&["recover"]).arg(place.image()));
    assert!(code == 4 && words.contains("e2fsck"), "{code}: {words}");
    let (code, words) = said(tool("e2fsck").arg("-fy").arg(place.image()));
    assert_eq!(code, 1, "{words}");
    place.check();
}

/// A record of orphans that cannot be used: others can use the image afterwards.
#[test]
fn a_mount_without_its_record_of_orphans_leaves_plain_ext4() {
    needs_mounts();
    needs_tools(&["mke2fs", "debugfs"]);
    let place = Place::new("16M", &[]);
    debugfs(&place.image(), &["ssv last_orphan 50"]);
    let mounted = place.mount("");
    assert_eq!(fs::write(mounted.path("f"), "x").unwrap_err().raw_os_error(), Some(30));
    ok(&mut quire(&["umount", mounted.dir()]));
    let (code, words) = said(tool("e2fsck").arg("-fy").arg(place.image()));
    assert!(code <= 1 && !words.contains("unsupported"), "{code}: {words}");
    place.check();
}
