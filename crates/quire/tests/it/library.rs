//! The library as its users see it, with e2fsck, debugfs and the kernel as judges.

use crate::common::{debugfs, fsck, image, scratch};
use quire::{CreateOptions, ErrorKind, FileOptions, FileSystem, FileType, Links, NewNode, SetMetadata, Timestamp};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

#[test]
fn files_read_back_what_was_written_after_the_image_was_closed() {
    let (dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    let mut file = fs.create_file("/a").unwrap();
    file.write_all(b"hello world").unwrap();
    file.seek(SeekFrom::Start(6)).unwrap();
    file.write_all(b"quire").unwrap();
    fs.close().unwrap();
    fsck(&path);
    assert_eq!(debugfs(&path, "cat /a"), "hello quire");
    let fs = FileSystem::options().read_only(true).open(&path).unwrap();
    assert_eq!(fs.read("/a").unwrap(), b"hello quire");
    assert_eq!(fs.write("/b", "").unwrap_err().kind(), ErrorKind::ReadOnly);
    drop(dir);
}

#[test]
fn dropping_the_last_handle_leaves_a_clean_image() {
    let (_dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    let kept = fs.open_dir("/lost+found").unwrap();
    fs.write("/x", vec![7; 3 << 20]).unwrap();
    drop(fs);
    kept.write("y", "still open").unwrap();
    drop(kept);
    fsck(&path);
    assert_eq!(debugfs(&path, "cat /lost+found/y"), "still open");
}

#[test]
fn symbolic_links_are_followed_inside_the_image_only() {
    let fs = scratch();
    fs.create_dir_all("/usr/bin").unwrap();
    fs.write("/usr/bin/sh", "#!").unwrap();
    fs.symlink("usr/bin", "/bin").unwrap();
    fs.symlink("/usr/../../../usr/bin/sh", "/abs").unwrap();
    assert_eq!(fs.read("/bin/sh").unwrap(), b"#!");
    assert_eq!(fs.read("/abs").unwrap(), b"#!");
    assert_eq!(fs.read("/../../bin/../bin/sh").unwrap(), b"#!");
    assert!(fs.symlink_metadata("/bin").unwrap().is_symlink());
    assert!(fs.symlink_metadata("/bin/").unwrap().is_dir());
    // A file that is made through a dangling link is made at its target.
    fs.symlink("new", "/usr/dangling").unwrap();
    fs.write("/usr/dangling", "made").unwrap();
    assert_eq!(fs.read("/usr/new").unwrap(), b"made");
    fs.symlink("loop2", "/loop1").unwrap();
    fs.symlink("loop1", "/loop2").unwrap();
    assert_eq!(fs.read("/loop1").unwrap_err().kind(), ErrorKind::TooManySymlinks);
}

#[test]
fn a_slash_at_the_end_asks_for_a_directory() {
    let fs = scratch();
    fs.write("/f", "1").unwrap();
    let kind = |done: quire::Result<()>| done.unwrap_err().kind();
    assert_eq!(kind(fs.rename("/f", "/new/")), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.rename("/f/", "/new")), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.remove_file("/f/")), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.hard_link("/f", "/new/")), ErrorKind::NotFound);
    fs.create_dir("/d").unwrap();
    fs.rename("/d/", "/e/").unwrap();
    assert!(fs.metadata("/e").unwrap().is_dir() && fs.metadata("/f").unwrap().is_file());
}

#[test]
fn a_link_with_a_slash_behind_it_is_neither_removed_nor_renamed_nor_its_target() {
    let fs = scratch();
    fs.create_dir_all("/d/sub").unwrap();
    fs.create_dir("/other").unwrap();
    fs.symlink("d", "/link").unwrap();
    fs.symlink("d/sub/../../link", "/far").unwrap();
    fs.symlink("none", "/dangling").unwrap();
    let kind = |done: quire::Result<()>| done.unwrap_err().kind();
    for path in ["/link/", "far/", "/d/../link//", "/dangling/"] {
        assert_eq!(kind(fs.remove_all(path)), ErrorKind::NotADirectory, "{path}");
        assert_eq!(kind(fs.remove_dir(path)), ErrorKind::NotADirectory, "{path}");
        assert_eq!(kind(fs.remove_file(path)), ErrorKind::NotADirectory, "{path}");
        assert_eq!(kind(fs.rename(path, "/new")), ErrorKind::NotADirectory, "{path}");
        assert_eq!(kind(fs.rename("/other", path)), ErrorKind::NotADirectory, "{path}");
        assert_eq!(kind(fs.create_dir(path).map(drop)), ErrorKind::Exists, "{path}");
    }
    // What the path means is the directory, as before; and a link on the way is followed.
    assert!(fs.symlink_metadata("/link/").unwrap().is_dir());
    fs.remove_dir("/link/sub/").unwrap();
    let names: Vec<_> = fs.walk("/").unwrap().map(|e| e.unwrap().path).collect();
    assert_eq!(names, ["/", "/d", "/dangling", "/far", "/link", "/lost+found", "/other"].map(PathBuf::from));
}

#[test]
fn a_removal_of_the_root_removes_nothing() {
    let fs = scratch();
    fs.create_dir_all("/a/b").unwrap();
    for path in ["/", "/a/b/..", "."] {
        assert_eq!(fs.remove_all(path).unwrap_err().kind(), ErrorKind::Busy);
    }
    assert!(fs.exists("/a/b").unwrap());
}

#[test]
fn a_path_that_ends_in_a_dot_has_no_last_name() {
    let fs = scratch();
    fs.create_dir_all("/d/sub").unwrap();
    fs.write("/f", "1").unwrap();
    fs.symlink("d", "/link").unwrap();
    let kind = |done: quire::Result<()>| done.unwrap_err().kind();
    for path in ["/d/.", "/d/./", "d/sub/..//.", "/link/.", "."] {
        assert_eq!(kind(fs.remove_all(path)), ErrorKind::Busy, "{path}");
        assert_eq!(kind(fs.remove_dir(path)), ErrorKind::Busy, "{path}");
        assert_eq!(kind(fs.remove_file(path)), ErrorKind::Busy, "{path}");
        assert_eq!(kind(fs.rename(path, "/new")), ErrorKind::Busy, "{path}");
        assert_eq!(kind(fs.rename("/f", path)), ErrorKind::Busy, "{path}");
        assert_eq!(kind(fs.create_dir(path).map(drop)), ErrorKind::Exists, "{path}");
        assert_eq!(kind(fs.hard_link("/f", path)), ErrorKind::Exists, "{path}");
        assert_eq!(kind(fs.symlink("f", path)), ErrorKind::Exists, "{path}");
    }
    for path in ["/new/.", "/new/./"] {
        assert_eq!(kind(fs.create_dir(path).map(drop)), ErrorKind::NotFound, "{path}");
        assert_eq!(kind(fs.write(path, "")), ErrorKind::NotFound, "{path}");
        assert_eq!(kind(fs.rename("/d", path)), ErrorKind::NotFound, "{path}");
    }
    assert_eq!(kind(fs.metadata("/f/.").map(drop)), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.remove_file("/f/.")), ErrorKind::NotADirectory);
    let names: Vec<_> = fs.walk("/").unwrap().map(|e| e.unwrap().path).collect();
    assert_eq!(names, ["/", "/d", "/d/sub", "/f", "/link", "/lost+found"].map(PathBuf::from));
}

#[test]
fn a_path_that_ends_in_a_dot_is_read_as_the_directory_before_it() {
    let fs = scratch();
    let made = fs.create_dir_all("/d/sub/.").unwrap();
    made.write("f", "1").unwrap();
    fs.symlink("d/.", "/link").unwrap();
    for path in ["/d/sub/.", "d/./sub/./", "/link/sub/.", "/d/sub/../sub/."] {
        assert_eq!(fs.read_dir(path).unwrap().len(), 1, "{path}");
        assert!(fs.symlink_metadata(path).unwrap().is_dir(), "{path}");
        assert_eq!(fs.walk(path).unwrap().count(), 2, "{path}");
        fs.create_dir_all(path).unwrap();
        fs.chmod(path, 0o700).unwrap();
    }
    assert!(fs.symlink_metadata("/link/.").unwrap().is_dir() && fs.symlink_metadata("/link").unwrap().is_symlink());
    fs.remove_file("/link").unwrap();
    assert_eq!(fs.create_dir_all("/d/sub/f/.").map(drop).unwrap_err().kind(), ErrorKind::NotADirectory);
}

#[test]
fn missing_directories_are_made_also_where_the_path_goes_up_again() {
    let fs = scratch();
    fs.create_dir_all("/a/../b/./c").unwrap();
    let names: Vec<_> = fs.walk("/").unwrap().map(|e| e.unwrap().path).collect();
    assert_eq!(names, ["/", "/a", "/b", "/b/c", "/lost+found"].map(PathBuf::from));
    fs.symlink("none", "/dangling").unwrap();
    fs.write("/f", "").unwrap();
    assert_eq!(fs.create_dir_all("/dangling").map(drop).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(fs.create_dir_all("/f").map(drop).unwrap_err().kind(), ErrorKind::NotADirectory);
    fs.create_dir_all("/").unwrap();
    fs.open_dir("/a").unwrap().create_dir_all("x/y").unwrap();
    assert!(fs.metadata("/a/x/y").unwrap().is_dir());
}

#[test]
fn a_directory_handle_follows_its_directory_when_that_is_renamed() {
    let fs = scratch();
    let dir = fs.create_dir_all("/a/b").unwrap();
    fs.rename("/a", "/c").unwrap();
    dir.write("f", "1").unwrap();
    assert_eq!(fs.read("/c/b/f").unwrap(), b"1");
    assert_eq!(dir.read("../b/f").unwrap(), b"1");
}

#[test]
fn errors_name_the_path_and_the_kind() {
    let fs = scratch();
    fs.create_dir("/d").unwrap();
    fs.write("/d/f", "").unwrap();
    let kind = |e: quire::Error| (e.kind(), e.path().map(Path::to_owned));
    assert_eq!(kind(fs.read("/d/none").unwrap_err()), (ErrorKind::NotFound, Some(PathBuf::from("/d/none"))));
    assert_eq!(kind(fs.read("/d").unwrap_err()).0, ErrorKind::IsADirectory);
    assert_eq!(kind(fs.read("/d/f/x").unwrap_err()).0, ErrorKind::NotADirectory);
    assert_eq!(kind(fs.remove_dir("/d").unwrap_err()).0, ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(fs.create_dir("/d").map(drop).unwrap_err()).0, ErrorKind::Exists);
    assert_eq!(kind(fs.remove_dir("/").unwrap_err()).0, ErrorKind::Busy);
    assert_eq!(kind(fs.xattr("/d", Links::Follow, "user.none").unwrap_err()).0, ErrorKind::NoAttribute);
    assert_eq!(fs.write(format!("/{}", "n".repeat(256)), "").unwrap_err().kind(), ErrorKind::NameTooLong);
}

#[test]
fn a_damaged_inode_is_named_with_its_structure_and_block() {
    let (_dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    fs.write("/f", "x").unwrap();
    let ino = fs.metadata("/f").unwrap().ino;
    fs.close().unwrap();
    crate::common::debugfs_write(&path, &format!("sif <{ino}> block[0] 0"));
    let fs = FileSystem::options().read_only(true).open(&path).unwrap();
    let error = fs.read("/f").unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(Path::new("/f"))), "{error}");
    assert_eq!((error.structure().as_deref(), error.object()), (Some("extent node"), Some(u64::from(ino))), "{error}");
}

#[test]
fn all_attributes_are_as_set_and_debugfs_agrees() {
    let (_dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    fs.write("/f", "x").unwrap();
    let (a, m) = (Timestamp::new(-5, 7), Timestamp::new(1_234_567_890, 987_654_321));
    let set = SetMetadata::new().owner(70_000, 80_000).permissions(0o6755).accessed(a).modified(m);
    fs.set_metadata("/f", Links::Follow, set).unwrap();
    fs.create_node("/null", NewNode::new(FileType::CharDevice, 0o666).device(1, 3)).unwrap();
    fs.create_node("/pipe", NewNode::new(FileType::Fifo, 0o600)).unwrap();
    fs.hard_link("/f", "/g").unwrap();
    fs.set_xattr("/f", Links::Follow, "user.k", b"v\0w").unwrap();
    fs.symlink("f", "/l").unwrap();
    fs.set_metadata("/l", Links::NoFollow, SetMetadata::new().owner(5, 6)).unwrap();
    fs.close().unwrap();
    fsck(&path);
    let fs = FileSystem::options().read_only(true).open(&path).unwrap();
    let f = fs.metadata("/g").unwrap();
    assert_eq!((f.uid, f.gid, f.permissions(), f.links), (70_000, 80_000, 0o6755, 2));
    assert_eq!((f.accessed, f.modified), (a, m));
    assert_eq!(fs.xattr("/f", Links::Follow, "user.k").unwrap(), b"v\0w");
    assert_eq!(fs.metadata("/null").unwrap().device, (1, 3));
    assert_eq!(fs.symlink_metadata("/l").unwrap().uid, 5);
    let stat = debugfs(&path, "stat /f");
    assert!(stat.contains("User: 70000   Group: 80000") && stat.contains("Links: 2"), "{stat}");
    assert!(stat.contains("user.k"), "{stat}");
}

#[test]
fn sparse_files_tell_their_data_and_punched_holes_are_zeros() {
    let fs = scratch();
    let file = fs.create_file("/s").unwrap();
    file.write_at(&[1; 4096], 1 << 20).unwrap();
    file.set_len(2 << 20).unwrap();
    assert_eq!(file.next_data(0).unwrap(), Some((1 << 20, (1 << 20) + 4096)));
    assert_eq!(file.next_data((1 << 20) + 4096).unwrap(), None);
    file.punch_hole(1 << 20, 4096).unwrap();
    let mut all = Vec::new();
    file.duplicate().read_to_end(&mut all).unwrap();
    assert!(all.len() == 2 << 20 && all.iter().all(|b| *b == 0));
}

#[test]
fn appending_goes_to_the_end_and_create_new_refuses_what_exists() {
    let fs = scratch();
    fs.write("/log", "one\n").unwrap();
    let mut log = fs.open_with("/log", FileOptions::new().append(true)).unwrap();
    log.write_all(b"two\n").unwrap();
    assert_eq!(fs.read("/log").unwrap(), b"one\ntwo\n");
    let again = fs.open_with("/log", FileOptions::new().create_new(true)).map(drop);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Exists);
}

/// Each of several threads finds its own bytes right before the position that its write has left.
#[test]
fn position_after_an_append_is_the_end_of_its_own_bytes() {
    let fs = scratch();
    fs.write("/log", "").unwrap();
    std::thread::scope(|s| {
        for thread in 0..4 {
            let mut log = fs.open_with("/log", FileOptions::new().append(true)).unwrap();
            s.spawn(move || {
                for n in 0..300 {
                    let line = format!("{thread} {n:03}\n");
                    log.write_all(line.as_bytes()).unwrap();
                    let end = log.stream_position().unwrap();
                    let mut found = vec![0; line.len()];
                    log.read_at(&mut found, end - line.len() as u64).unwrap();
                    assert_eq!(String::from_utf8_lossy(&found), line);
                }
            });
        }
    });
    assert_eq!(fs.metadata("/log").unwrap().size, 4 * 300 * 6);
    let log = fs.open_with("/log", FileOptions::new()).unwrap();
    assert_eq!(log.append(b"end").unwrap(), 4 * 300 * 6 + 3);
    assert_eq!(log.append(b"").unwrap(), 4 * 300 * 6 + 3);
}

#[test]
fn remove_all_takes_deep_and_wide_trees_away() {
    let fs = scratch();
    let mut dir = fs.create_dir("/t").unwrap();
    for n in 0..200 {
        dir.write(format!("f{n}"), "x").unwrap();
        dir = dir.create_dir("d").unwrap();
    }
    for n in 0..100 {
        fs.create_dir(format!("/t/w{n}")).unwrap();
    }
    drop(dir);
    let before = fs.usage().unwrap().free_inodes;
    fs.remove_all("/t").unwrap();
    assert!(!fs.exists("/t").unwrap());
    assert!(fs.usage().unwrap().free_inodes >= before + 501);
    crate::common::fsck_bytes(&fs.into_bytes().unwrap().unwrap());
}

#[test]
fn the_same_calls_at_the_same_time_give_the_same_bytes() {
    let build = || {
        let t = Timestamp::new(1_700_000_000, 0);
        let fs = CreateOptions::new().size(16 << 20).uuid([9; 16]).time(t).in_memory().unwrap();
        fs.create_dir_all("/a/b").unwrap();
        fs.write("/a/b/c", vec![3; 100_000]).unwrap();
        fs.symlink("a/b", "/l").unwrap();
        fs.into_bytes().unwrap().unwrap()
    };
    assert!(build() == build());
}

#[test]
fn an_image_that_cannot_be_made_leaves_the_one_that_had_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let create = CreateOptions::new().size(16 << 20);
    let fs = create.create(&path).unwrap();
    fs.write("/f", "of the first image").unwrap();
    fs.close().unwrap();
    let refused = create.clone().feature("no_such_feature").create(&path).map(drop).unwrap_err();
    assert_eq!((refused.kind(), refused.path()), (ErrorKind::Tool, Some(&*path)));
    assert_eq!(FileSystem::open(&path).unwrap().read("/f").unwrap(), b"of the first image");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "what was begun is gone");
    assert!(!create.create(&path).unwrap().exists("/f").unwrap(), "a new image replaces it");
}

#[test]
fn a_partition_of_an_image_is_opened() {
    let fs = scratch();
    fs.write("/f", "in a partition").unwrap();
    let bytes = fs.into_bytes().unwrap().unwrap();
    let mut disk = vec![0; (1 << 20) + bytes.len() + 512];
    disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&u32::try_from(bytes.len() / 512).unwrap().to_le_bytes());
    disk[1 << 20..][..bytes.len()].copy_from_slice(&bytes);
    let fs = FileSystem::options().partition(1).open_bytes(disk.clone()).unwrap();
    assert_eq!(fs.read("/f").unwrap(), b"in a partition");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &disk).unwrap();
    let fs = FileSystem::options().offset(1 << 20).open(file.path()).unwrap();
    fs.write("/g", "2").unwrap();
    fs.close().unwrap();
    let fs = FileSystem::options().partition(1).read_only(true).open(file.path()).unwrap();
    assert_eq!(fs.read("/g").unwrap(), b"2");
    let none = FileSystem::options().partition(2).open(file.path()).map(drop).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_second_writer_is_refused_and_the_image_is_named() {
    let (_dir, path) = image(16 << 20, &[]);
    let first = FileSystem::open(&path).unwrap();
    let second = FileSystem::open(&path).map(drop).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Busy);
    assert!(second.to_string().starts_with(path.to_str().unwrap()), "{second}");
    drop(first);
    FileSystem::open(&path).unwrap();
}
