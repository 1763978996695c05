//! What the toolbox reads of the host: files whose size says nothing, files with holes, and the date of a build.

use crate::common::{needs_tools, ok, quire, said, skip, tool};
use crate::trees::{Scratch, fsck};
use rustix::fs::inotify;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn image(s: &Scratch, size: &str) -> String {
    needs_tools(&["mke2fs"]);
    let image = s.text("image");
    ok(&mut quire(&["create", &image, "--size", size]));
    image
}

/// The bytes of a file in an image.
fn bytes(image: &str, path: &str) -> Vec<u8> {
    quire(&["cat", &format!("{image}:{path}")]).output().unwrap().stdout
}

fn stat(image: &str, path: &str) -> serde_json::Value {
    let said = ok(&mut quire(&["stat", "--json", &format!("{image}:{path}")]));
    serde_json::from_str::<serde_json::Value>(&said).unwrap()[0].clone()
}

fn put_is_whole(file: &str) {
    let Ok(expected) = fs::read(file) else { skip(format_args!("no {file}")) };
    let s = Scratch::new();
    let image = image(&s, "16M");
    ok(&mut quire(&["put", file, &format!("{image}:/f")]));
    assert!(!expected.is_empty() && bytes(&image, "/f") == expected, "{file}: {:?}", bytes(&image, "/f"));
}

#[test]
fn a_put_of_a_file_of_proc_which_has_no_size_has_what_it_says() {
    put_is_whole("/proc/filesystems");
}

#[test]
fn a_put_of_a_file_of_sys_which_has_a_page_of_size_has_what_it_says() {
    put_is_whole("/sys/devices/system/cpu/online");
}

#[test]
fn a_put_of_a_file_that_is_not_there_leaves_no_name_in_an_image_without_a_journal() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let image = s.text("image");
    ok(&mut quire(&["create", &image, "--size", "16M", "-O", "^has_journal"]));
    assert_eq!(said(&mut quire(&["put", &s.text("missing"), &format!("{image}:/f")])).0, 1);
    let names = ok(&mut quire(&["find", &image]));
    assert!(names.contains("/lost+found\n") && !names.contains("quire-put"), "{names}");
}

#[test]
fn a_put_of_a_file_with_holes_has_its_size_and_its_holes() {
    let s = Scratch::new();
    let image = image(&s, "16M");
    let (holes, mixed) = (File::create(s.path("holes")).unwrap(), File::create(s.path("mixed")).unwrap());
    holes.set_len(50 << 20).unwrap();
    mixed.set_len(60_000_001).unwrap();
    mixed.write_all_at(b"in the middle", 30 << 20).unwrap();
    for (name, most_bytes) in [("holes", 0), ("mixed", 64 << 10)] {
        let target = format!("{image}:/{name}");
        ok(&mut quire(&["put", &s.text(name), &target]));
        assert!(bytes(&image, &format!("/{name}")) == fs::read(s.path(name)).unwrap(), "{name}");
        let stat = stat(&image, &format!("/{name}"));
        assert!(stat["allocated"].as_u64().unwrap() <= most_bytes, "{name}: {stat}");
    }
    fsck(Path::new(&image));
}

#[test]
fn a_put_of_a_file_that_is_cut_meanwhile_has_no_zeros_behind_what_was_read() {
    const BYTES: usize = 128 << 20;
    let s = Scratch::new();
    let (image, source) = (image(&s, "256M"), s.path("source"));
    let cut_in_time = || {
        fs::write(&source, vec![7; BYTES]).unwrap();
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, &source, inotify::WatchFlags::ACCESS).unwrap();
        let mut put = quire(&["put", &s.text("source"), &format!("{image}:/f")]).spawn().unwrap();
        // It has read its first bytes.
        rustix::io::read(&watch, &mut [0; 256]).unwrap();
        File::options().write(true).open(&source).unwrap().set_len((1 << 20) + 1).unwrap();
        assert!(put.wait().unwrap().success());
        let got = bytes(&image, "/f");
        assert!(got.iter().all(|b| *b == 7), "{} of {} bytes are no data", count_zeros(&got), got.len());
        got.len() < BYTES
    };
    assert!((0..5).any(|_| cut_in_time()), "each put was faster");
}

fn count_zeros(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b == 0).count()
}

/// An archive of one file, whose directories it does not describe.
fn archive(s: &Scratch) -> String {
    needs_tools(&["tar"]);
    fs::create_dir_all(s.path("tree/d/e")).unwrap();
    fs::write(s.path("tree/d/e/f"), "hello").unwrap();
    ok(tool("tar").arg("-C").arg(s.path("tree")).args(["-cf", &s.text("f.tar"), "d/e/f"]));
    s.text("f.tar")
}

#[test]
fn imports_of_the_same_archive_and_date_into_equal_images_give_the_same_bytes() {
    let s = Scratch::new();
    let (a, tar) = (image(&s, "16M"), archive(&s));
    let b = s.text("b");
    fs::copy(&a, &b).unwrap();
    ok(&mut quire(&["import", &a, &tar, "--source-date-epoch", "1700000000"]));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    ok(quire(&["import", &b, &tar]).env("SOURCE_DATE_EPOCH", "1700000000"));
    assert!(fs::read(&a).unwrap() == fs::read(&b).unwrap());
    for path in ["/d", "/d/e", "/d/e/f", "/"] {
        let stat = stat(&a, path);
        let changed = stat["changed"].as_str().unwrap();
        assert!(changed.starts_with("2023-11-14T22:13:20"), "{path}: {stat}");
    }
    fsck(Path::new(&a));
}

#[test]
fn an_empty_date_in_the_environment_is_as_none() {
    let s = Scratch::new();
    let (image, tar) = (s.text("image"), archive(&s));
    needs_tools(&["mke2fs"]);
    ok(quire(&["create", &image, "--size", "16M"]).env("SOURCE_DATE_EPOCH", ""));
    ok(quire(&["import", &image, &tar]).env("SOURCE_DATE_EPOCH", ""));
    let stat = stat(&image, "/d");
    assert!(stat["changed"].as_str().unwrap() > "2024", "{stat}");
    let (code, words) = said(quire(&["import", &image, &tar]).env("SOURCE_DATE_EPOCH", "yesterday"));
    assert!(code == 2 && words.contains("--source-date-epoch"), "{code}: {words}");
}
