//! Tar archives that an export writes beside changes of the image, and what is left of an export that fails.

use crate::common::scratch;
use quire::archive::{ImportOptions, Source, export_dir, export_tar, import};
use quire::{ErrorKind, FileSystem};
use std::io::{self, Write};

/// An archive in memory, and what happens when one of its headers has this name.
struct Beside<'f> {
    bytes: Vec<u8>,
    name: &'static [u8],
    then: Option<Box<dyn FnOnce() + 'f>>,
}

impl<'f> Beside<'f> {
    fn new(name: &'static str, then: impl FnOnce() + 'f) -> Self {
        Beside { bytes: Vec::new(), name: name.as_bytes(), then: Some(Box::new(then)) }
    }
}

impl Write for Beside<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.bytes.write_all(buf)?;
        if buf.starts_with(self.name)
            && let Some(then) = self.then.take()
        {
            then();
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn imported(tar: Vec<u8>) -> quire::Result<FileSystem> {
    let fs = scratch();
    import(&fs, "/", Source::Stream(Box::new(io::Cursor::new(tar))), &ImportOptions::new())?;
    Ok(fs)
}

/// An image with `/f` of this size and `/g` behind it.
fn two_files(size: usize) -> FileSystem {
    let fs = scratch();
    fs.write("/f", vec![7; size]).unwrap();
    fs.write("/g", "behind").unwrap();
    fs
}

#[test]
fn tar_export_beside_a_shrinking_file_has_the_size_of_its_opening() {
    let fs = two_files(100_000);
    let mut out = Beside::new("./", || fs.open_file("/f").unwrap().set_len(700).unwrap());
    export_tar(&fs, "/", &mut out).unwrap();
    let again = imported(out.bytes).unwrap();
    assert_eq!((again.metadata("/f").unwrap().size, again.read("/g").unwrap()), (700, b"behind".to_vec()));
}

#[test]
fn tar_export_beside_a_file_that_grows_behind_a_hole_is_whole() {
    let fs = two_files(0);
    let mut out = Beside::new("./", || fs.open_file("/f").unwrap().write_at(b"end", 1 << 20).unwrap());
    export_tar(&fs, "/", &mut out).unwrap();
    let again = imported(out.bytes).unwrap();
    assert_eq!((again.metadata("/f").unwrap().size, again.read("/g").unwrap()), ((1 << 20) + 3, b"behind".to_vec()));
}

#[test]
fn tar_export_of_a_file_that_shrinks_under_it_is_an_error_and_no_whole_archive() {
    let fs = two_files(100_000);
    let mut out = Beside::new("f\0", || fs.open_file("/f").unwrap().set_len(700).unwrap());
    let error = export_tar(&fs, "/", &mut out).unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Io, "/./f: the file has become shorter"));
    let error = imported(out.bytes).map(drop).unwrap_err();
    assert!(error.to_string().contains("the archive ends in the middle of an entry"), "{error}");
}

/// Where each object is looked up from the top, this takes minutes.
#[test]
fn tar_export_of_a_deep_tree_looks_each_object_up_in_its_directory() {
    let fs = quire::CreateOptions::new().size(128 << 20).in_memory().unwrap();
    let mut dir = fs.create_dir("/deep").unwrap();
    for _ in 0..10_000 {
        dir = dir.create_dir("d").unwrap();
    }
    dir.write("f", "deep").unwrap();
    let start = std::time::Instant::now();
    export_tar(&fs, "/deep", &mut io::sink()).unwrap();
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn failed_tar_export_between_two_entries_leaves_an_archive_that_readers_refuse() {
    let (_dir, path) = crate::common::image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    fs.create_dir_all("/a/b").unwrap();
    fs.close().unwrap();
    crate::common::debugfs_write(&path, "ln / /a/b/up");
    let fs = FileSystem::options().read_only(true).open(&path).unwrap();
    let mut tar = Vec::new();
    assert_eq!(export_tar(&fs, "/", &mut tar).unwrap_err().kind(), ErrorKind::Corrupt);
    let error = imported(tar).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    assert!(error.to_string().contains("the archive ends in the middle of an entry"), "{error}");
}

/// Takes so many bytes, and fails then.
struct Failing(usize, i32);

impl Write for Failing {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(buf.len()).ok_or_else(|| io::Error::from_raw_os_error(self.1))?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn error_of_the_writer_of_a_tar_export_keeps_its_number_and_has_no_path_of_the_image() {
    let fs = two_files(100_000);
    for room in [0, 512, 20_000] {
        for (errno, kind) in [(28, ErrorKind::NoSpace), (32, ErrorKind::Io)] {
            let error = export_tar(&fs, "/", &mut Failing(room, errno)).unwrap_err();
            assert_eq!((error.errno(), error.kind(), error.path()), (errno, kind, None), "{room}: {error}");
            assert!(error.is_of_host(), "{error}");
        }
    }
}

#[test]
fn error_of_the_reader_of_an_archive_keeps_its_number() {
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(5))
        }
    }
    let error = import(&scratch(), "/", Source::Stream(Box::new(Broken)), &ImportOptions::new()).unwrap_err();
    assert_eq!((error.errno(), error.kind(), error.is_of_host()), (5, ErrorKind::Io, true), "{error}");
}

#[test]
fn errors_about_files_of_the_host_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("x.tar");
    std::fs::write(&tar, vec![7; 2048]).unwrap();
    let fs = scratch();
    let no_tar = import(&fs, "/", Source::Tar(tar.clone()), &ImportOptions::new()).unwrap_err();
    assert_eq!((no_tar.path(), no_tar.is_of_host()), (Some(&*tar), true), "{no_tar}");
    let full = export_dir(&fs, "/", dir.path()).unwrap_err();
    assert_eq!((full.kind(), full.is_of_host()), (ErrorKind::DirectoryNotEmpty, true), "{full}");
}

#[test]
fn hard_link_to_itself_keeps_the_file() {
    let tar = [
        quire_testkit::tar::entry("a", b'0', b"kept"),
        quire_testkit::tar::link("a", b'1', "a"),
        quire_testkit::tar::link("./a", b'1', "./a"),
        vec![0; 1024],
    ];
    let fs = imported(tar.concat()).unwrap();
    assert_eq!((fs.read("/a").unwrap(), fs.metadata("/a").unwrap().links), (b"kept".to_vec(), 1));
}

#[test]
fn image_in_the_directory_that_is_imported_is_left_out() {
    let (dir, path) = crate::common::image(16 << 20, &[]);
    std::fs::write(dir.path().join("f"), "x").unwrap();
    std::fs::hard_link(&path, dir.path().join("other-name")).unwrap();
    let fs = FileSystem::open(&path).unwrap();
    assert!(fs.is_image(dir.path().join("other-name")) && !fs.is_image(dir.path().join("f")));
    import(&fs, "/", Source::Dir(dir.path().into()), &ImportOptions::new()).unwrap();
    let names: Vec<_> = fs.read_dir("/").unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["f", "lost+found"]);
}
