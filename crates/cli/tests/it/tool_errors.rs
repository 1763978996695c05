//! What the toolbox says and returns when an image, a host or an option is not as it should be.

use crate::common::{needs_tools, ok, quire, said, tool};
use crate::trees::Scratch;
use std::fs;

fn image(s: &Scratch, name: &str) -> String {
    needs_tools(&["mke2fs", "e2fsck", "debugfs"]);
    let path = s.text(name);
    ok(&mut quire(&["create", &path, "--size", "16M"]));
    path
}

#[test]
fn what_quire_cannot_read_has_the_exit_codes_that_help_names() {
    let s = Scratch::new();
    let encrypted = s.text("encrypted");
    ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", "encrypt", &encrypted, "16M"]));
    let disk = s.text("disk");
    let mut bytes = vec![0; 4 << 20];
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    fs::write(&disk, bytes).unwrap();
    // By short names: the directory of the test looks like one of Quire's.
    for img in ["encrypted", "disk"] {
        let commands = [(8, vec!["check", img]), (1, vec!["clone", img, "copy"]), (1, vec!["resize", img, "30M"])];
        for (expected, args) in commands {
            let (code, words) = said(quire(&args).current_dir(s.path("")));
            let beginning = format!("quire: {}: {img}: ", args[0]);
            assert!(code == expected && words.starts_with(&beginning), "{args:?}: {code}: {words}");
            assert!(!words.contains(".quire-") && !words.contains(".tmp"), "a temporary name: {words}");
        }
    }
    let mut damaged = fs::read(image(&s, "damaged")).unwrap();
    damaged[4096..8192].fill(0xA5);
    fs::write(s.path("damaged"), damaged).unwrap();
    assert_eq!(said(&mut quire(&["check", &s.text("damaged")])).0, 4, "damage is found, and is no trouble");
}

#[test]
fn an_image_that_is_written_is_neither_checked_nor_copied_and_the_way_out_is_named() {
    let s = Scratch::new();
    let img = image(&s, "used");
    let writer = fs::File::open(&img).unwrap();
    rustix::fs::flock(&writer, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (code, words) = said(quire(&["check"]).arg(&img));
    assert!(code == 8 && words.contains("unmount it, or check a copy (quire clone --mount"), "{code}: {words}");
    let (code, words) = said(quire(&["clone"]).arg(&img).arg(s.path("copy")));
    assert!(code == 1 && words.contains("name the mount with --mount"), "{code}: {words}");
    assert_eq!(said(&mut quire(&["check", "--bogus", "x"])).0, 16, "wrong usage, as of fsck(8)");
}

#[test]
fn diff_blames_the_image_that_is_damaged() {
    let s = Scratch::new();
    let (good, bad) = (image(&s, "good"), image(&s, "bad"));
    for img in [&good, &bad] {
        ok(&mut quire(&["mkdir", &format!("{img}:/d")]));
    }
    ok(tool("debugfs").args(["-w", "-R", "sif /d block[0] 999999", &bad]));
    for args in [["diff", &good, &bad], ["diff", &bad, &good]] {
        let (code, words) = said(&mut quire(&args));
        assert!(code == 2 && words.starts_with(&format!("quire: diff: {bad}:")), "{args:?}: {code}: {words}");
    }
}

#[test]
fn a_put_into_a_missing_directory_names_the_path_that_was_given() {
    let s = Scratch::new();
    let img = image(&s, "img");
    fs::write(s.path("hi"), "x").unwrap();
    for path in ["/nodir/", "/nodir/hi"] {
        let (code, words) = said(&mut quire(&["put", &s.text("hi"), &format!("{img}:{path}")]));
        let expected = format!("quire: put: {img}:/nodir/hi: no such file or directory\n");
        assert_eq!((code, words), (1, expected));
    }
}

#[test]
fn a_missing_directory_of_the_host_is_told_without_temporary_names() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let to = s.text("nodir/x");
    for args in [["create", &to, "-Lx"], ["export", &img, &to], ["clone", &img, &to]] {
        let (code, words) = said(&mut quire(&args));
        let expected = format!("quire: {}: {to}: No such file or directory (os error 2)\n", args[0]);
        assert_eq!((code, words), (1, expected));
    }
}

#[test]
fn a_refusal_of_mke2fs_has_its_words_and_the_name_of_the_image() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let img = s.text("img");
    for size in ["16M", "min"] {
        let (code, words) = said(&mut quire(&["create", &img, "-O", "^extent", "--size", size]));
        assert!(code == 1 && words.contains("Extents MUST be enabled"), "{size}: {code}: {words}");
        assert!(words.starts_with(&format!("quire: create: {img}: mke2fs failed: ")), "{size}: {words}");
    }
    assert!(!s.path("img").exists());
}

#[test]
fn a_label_that_is_too_long_is_wrong_usage_and_nothing_is_made() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let img = s.text("img");
    let (code, words) = said(&mut quire(&["create", &img, "--size", "16M", "-L", "seventeen-letters"]));
    assert!(code == 2 && words.contains("at most 16 bytes"), "{code}: {words}");
    assert!(!s.path("img").exists());
    ok(&mut quire(&["create", &img, "--size", "16M", "-L", "sixteen-letters-"]));
}

#[test]
fn an_image_in_the_directory_that_is_packed_is_left_out() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    fs::create_dir(s.path("d")).unwrap();
    fs::write(s.path("d/f"), "x").unwrap();
    let (dir, img) = (s.text("d"), s.text("d/x.img"));
    // The second time the old image is there, too.
    for size in ["64M", "min+20%"] {
        ok(&mut quire(&["create", &img, "--from", &dir, "--size", size]));
        assert_eq!(ok(&mut quire(&["ls", &img])), "f\nlost+found\n", "{size}");
    }
    ok(&mut quire(&["import", &img, &dir]));
    assert_eq!(ok(&mut quire(&["ls", &img])), "f\nlost+found\n");
}

#[test]
fn errors_of_files_of_the_host_name_these_and_not_the_image() {
    let s = Scratch::new();
    let (img, tar, out) = (image(&s, "img"), s.text("x.tar"), s.text("out/"));
    fs::write(&tar, vec![7; 4096]).unwrap();
    fs::create_dir_all(s.path("out/sub")).unwrap();
    let no_tar = "this is no tar archive, or a header of it is damaged (checksum)";
    for (args, expected) in [
        (["import", &img, &tar], format!("quire: import: {tar}: {no_tar}\n")),
        (["export", &img, &out], format!("quire: export: {out}: directory not empty\n")),
        (["export", &img, "/dev/full"], "quire: export: /dev/full: No space left on device (os error 28)\n".to_owned()),
    ] {
        assert_eq!(said(&mut quire(&args)), (1, expected));
    }
    for command in [&["import", &img, "-"][..], &["create", &s.text("new"), "--from", "-", "--size", "16M"]] {
        let (code, words) = said(quire(command).stdin(fs::File::open(&tar).unwrap()));
        let expected = format!("quire: {}: standard input: {no_tar}\n", command[0]);
        assert_eq!((code, words), (1, expected));
    }
    let reader_is_gone = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let out = quire(&["export", &img, "-"]).stdout(reader_is_gone()).output().unwrap();
    let expected = "quire: export: standard output: Broken pipe (os error 32)\n";
    assert_eq!((out.status.code(), &*String::from_utf8_lossy(&out.stderr)), (Some(1), expected));
}

#[test]
fn an_archive_of_a_program_that_has_failed_makes_no_image() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let (img, zeros) = (s.text("img"), s.text("zeros"));
    for size in ["16M", "min"] {
        let refused = said(&mut quire(&["create", &img, "--from", "-", "--size", size]));
        assert_eq!(refused, (1, "quire: create: standard input: the archive is empty\n".to_owned()), "{size}");
        assert!(!s.path("img").exists(), "{size}");
    }
    fs::write(&zeros, [0; 1024]).unwrap();
    ok(&mut quire(&["create", &img, "--from", &zeros, "--size", "16M"]));
}

#[test]
fn what_is_no_image_is_named_as_what_it_is() {
    let s = Scratch::new();
    fs::create_dir(s.path("d")).unwrap();
    fs::write(s.path("small"), [0; 2047]).unwrap();
    let (dir, small, copy) = (s.text("d"), s.text("small"), s.text("copy"));
    for (code, args) in [(1, &["clone", &dir, &copy][..]), (8, &["check", &dir][..])] {
        let expected = format!("quire: {}: {dir}: a directory, not an image\n", args[0]);
        assert_eq!(said(&mut quire(args)), (code, expected));
    }
    let too_small = "not an ext4 file system: too small for a superblock";
    for command in ["ls", "df", "info", "recover", "mount"] {
        let mut args = vec![command, &small];
        args.extend((command == "mount").then_some(&*dir));
        let (_, words) = said(&mut quire(&args));
        assert_eq!(words, format!("quire: {}: {small}: {too_small}\n", args[0]));
    }
    assert!(!s.path("copy").exists());
}

#[test]
fn a_size_that_no_file_has_is_wrong_usage() {
    let s = Scratch::new();
    let img = image(&s, "img");
    for args in [["resize", &img, "9999999T"], ["create", &s.text("new"), "--size=16777215T"]] {
        let (code, words) = said(&mut quire(&args));
        assert!(code == 2 && words.contains("is too large: a file has less than 8 EiB"), "{args:?}: {code}: {words}");
    }
    assert!(!s.path("new").exists() && fs::metadata(&img).unwrap().len() == 16 << 20);
}

/// In a path e2fsprogs take what is behind a `?` as options.
#[test]
fn an_image_below_a_directory_with_a_question_mark_is_resized() {
    needs_tools(&["resize2fs"]);
    let s = Scratch::new();
    let img = image(&s, "img");
    fs::create_dir(s.path("d?offset=1024")).unwrap();
    let moved = s.text("d?offset=1024/i?.img");
    fs::rename(img, &moved).unwrap();
    for (size, bytes) in [("20M", 20 << 20), ("16M", 16 << 20)] {
        assert_eq!(ok(&mut quire(&["resize", &moved, size])), "");
        assert_eq!(fs::metadata(&moved).unwrap().len(), bytes);
    }
    // By a bare name, too.
    assert_eq!(ok(quire(&["resize", "i?.img", "20M"]).current_dir(s.path("d?offset=1024"))), "");
    let (code, words) = said(&mut quire(&["resize", &moved, "100K"]));
    assert!(code == 1 && words.starts_with(&format!("quire: resize: {moved}: resize2fs: ")), "{code}: {words}");
    assert!(!words.contains(".quire-"), "a temporary name: {words}");
}

/// A file may have half a MiB at most: a copy of the image would end the command.
#[test]
fn a_clean_image_is_checked_without_a_copy() {
    let s = Scratch::new();
    let img = image(&s, "img");
    // Of these names e2fsck itself would take a part.
    for name in ["a?b", "LABEL=x"] {
        fs::copy(&img, s.path(name)).unwrap();
        let (code, words) = said(quire(&["check", name]).current_dir(s.path("")));
        assert!(code == 0 && words.contains(&format!("{name}: ")), "{code}: {words}");
    }
    let before = fs::read(&img).unwrap();
    let mut shell = tool("sh");
    shell.args(["-c", "ulimit -f 1024; exec \"$0\" check \"$1\"", env!("CARGO_BIN_EXE_quire"), &img]);
    let (code, words) = said(&mut shell);
    assert!(code == 0 && words.contains(&format!("{img}: ")), "{code}: {words}");
    assert!(fs::read(&img).unwrap() == before);
}

#[test]
fn a_time_limit_beyond_the_clock_is_none() {
    let s = Scratch::new();
    let img = image(&s, "img");
    assert_eq!(ok(&mut quire(&["wait", "--timeout", "18446744073709551615", &img])), "");
}

#[test]
fn listings_have_what_is_beside_a_damaged_inode_and_fail() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let at = |path: &str| format!("{img}:{path}");
    fs::write(s.path("f"), "x").unwrap();
    ok(&mut quire(&["mkdir", &at("/d")]));
    ["a", "bad", "c"].iter().for_each(|name| drop(ok(&mut quire(&["put", &s.text("f"), &at(&format!("/d/{name}"))]))));
    ok(tool("debugfs").args(["-w", "-R", "sif /d/bad mode 0", &img]));
    let damage = |words: &str| words.contains(&format!("quire: ls: {img}:/d/bad: corrupt"));
    let (code, words) = said(&mut quire(&["ls", &at("/d")]));
    assert!(code == 1 && words.starts_with("a\nbad\nc\n") && damage(&words), "{code}: {words}");
    let (code, words) = said(&mut quire(&["ls", "-l", &at("/d"), &at("/")]));
    let line = |name: &str| words.lines().find(|line| line.ends_with(&format!(" {name}"))).map(str::len);
    assert!(code == 1 && damage(&words) && words.contains("lost+found"), "{code}: {words}");
    assert!(line("a").is_some() && line("a") == line("c") && line("bad") == line("a").map(|len| len + 2), "{words}");
    let out = quire(&["ls", "--json", &at("/d")]).output().unwrap();
    let items: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let paths: Vec<_> = items.as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap()).collect();
    assert_eq!((out.status.code(), paths), (Some(1), vec!["/d/a", "/d/c"]));
    let begins = [("find", "/d\n/d/a\n/d/c\n"), ("tree", "/d\n  a\n  c\n"), ("du", "12288\t/d\n")];
    for (command, begin) in begins {
        let (code, words) = said(&mut quire(&[command, &at("/d")]));
        let end = format!("quire: {command}: {img}:/d/bad: corrupt");
        assert!(code == 1 && words.starts_with(begin) && words.contains(&end), "{code}: {words}");
    }
}

#[test]
fn ls_lists_what_is_beside_a_path_that_does_not_exist_and_fails() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let at = |path: &str| format!("{img}:{path}");
    let (code, words) = said(&mut quire(&["ls", "-d", &at("/none"), &at("/lost+found")]));
    assert!(code == 1 && words.contains("/lost+found\n") && words.contains("/none: no such file"), "{code}: {words}");
}
