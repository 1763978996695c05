//! Blocks reserved for root, and for the user and the group that the mount or the superblock names.

use super::{Bench, file, image, options};
use crate::config::{Options, Route};
use crate::data::{Falloc, WriteFlags};
use crate::error::Error;
use crate::{Cred, New, NewKind};
use crate::{Volume, XattrFlags};
use quire_layout::Ino;
use quire_testkit::run;

const ROOT: Cred = Cred { uid: 0, gid: 0 };
const USER: Cred = Cred { uid: 1000, gid: 1000 };

/// A fifth of the image is reserved, for user 66 and group 77.
fn bench(args: &[&str], files: u32, o: Options) -> Bench {
    let raw = image("16M", &[args, &["-m", "20"]].concat(), files);
    let at = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(at.path(), raw).unwrap();
    run("tune2fs", &["-u", "66", "-g", "77", at.path().to_str().unwrap()]);
    Bench::on(std::fs::read(at.path()).unwrap(), o)
}

/// Writes to file `n` until there is no space; bytes written.
fn fill(v: &Volume, n: u32, from: u64) -> u64 {
    let (mut at, mut step) = (from, 16384);
    while step > 0 {
        match v.write(file(n), at, &vec![7; step], WriteFlags::default()) {
            Ok(0) => panic!("nothing written, no error"),
            Ok(done) => at += done as u64,
            Err(Error::NoSpace) => step = if step > 1024 { 1024 } else { 0 },
            Err(e) => panic!("{e}"),
        }
    }
    at - from
}

/// A8: as in ext4: a user meets the end of the space before the reserve, whoever may take it goes on, and all of it is
/// written back.
#[test]
fn the_reserve_is_for_root_and_whom_the_superblock_names() {
    for (route, args) in [
        (Route::Ordered, &["-t", "ext4", "-b", "1024"][..]),
        (Route::Ordered, &["-t", "ext3", "-b", "1024"]),
        (Route::Journal, &["-t", "ext4", "-b", "1024"]),
    ] {
        let mut b = bench(args, 3, options(route));
        let reserved = b.volume.superblock().reserved_blocks() * 1024;
        let user = b.volume.on_account_of(USER);
        assert!(fill(&user, 0, 0) > 6 << 20);
        b.volume.sync().unwrap();
        assert!(b.volume.statfs().free * 1024 >= reserved, "{route:?} {args:?}: a user took of the reserve");
        let allocate = |v: &Volume| v.fallocate(file(1), Falloc::Allocate { keep_size: true }, 0, 64 << 10);
        let root = b.volume.on_account_of(ROOT);
        if !args.contains(&"ext3") {
            assert!(matches!(allocate(&user), Err(Error::NoSpace)));
            allocate(&root).unwrap();
        }
        let group = b.volume.on_account_of(Cred { uid: 5, gid: 77 });
        assert_eq!(group.write(file(1), 0, &[2; 100_000], WriteFlags::default()).unwrap(), 100_000);
        let more = fill(&root, 2, 0);
        assert!(more > reserved / 2, "{route:?} {args:?}: root got {more} of {reserved}");
        // What was accepted is written back, in nobody's name.
        b.volume.sync().unwrap();
        b.remount();
        assert_eq!(b.read_all(file(1), 100_000), [2; 100_000]);
        assert_eq!(b.volume.getattr(file(2)).unwrap().size, more);
        b.check();
    }
}

/// `-o resuid=,resgid=` replace what the superblock says. Names, links and attributes take from the reserve, too.
#[test]
fn options_name_others() {
    let o = Options { reserve_uid: Some(7), reserve_gid: Some(8), ..options(Route::Ordered) };
    let b = bench(&["-t", "ext4", "-b", "1024"], 2, o);
    let may = |uid, gid| b.volume.may_use_reserve(Cred { uid, gid });
    assert!(may(0, 0) && may(0, 5) && may(7, 5) && may(5, 8));
    assert!(!may(66, 5) && !may(5, 77) && !may(5, 0) && !may(5, 5));
    let user = b.volume.on_account_of(USER);
    fill(&user, 0, 0);
    b.volume.sync().unwrap();
    // A name so long that a block of the directory holds three of them.
    let long = |n: u32| format!("{n:0250}").into_bytes();
    let link = |v: &Volume| (0..8).try_for_each(|n| v.link(file(1), Ino::ROOT, &long(n)).map(|a| v.forget(a.ino, 1)));
    assert!(matches!(link(&user), Err(Error::NoSpace)));
    let value = vec![1; 900];
    assert!(matches!(user.xattrs().set(file(1), b"user.a", &value, XattrFlags::Any), Err(Error::NoSpace)));
    let new = New { kind: NewKind::Dir, mode: 0o755, umask: 0, cred: USER };
    assert!(matches!(user.create(Ino::ROOT, b"d", &new), Err(Error::NoSpace)));

    let named = b.volume.on_account_of(Cred { uid: 7, gid: 5 });
    (8..16).try_for_each(|n| named.link(file(1), Ino::ROOT, &long(n)).map(|a| named.forget(a.ino, 1))).unwrap();
    named.xattrs().set(file(1), b"user.a", &value, XattrFlags::Any).unwrap();
    let made = named.create(Ino::ROOT, b"d", &New { cred: Cred { uid: 7, gid: 5 }, ..new }).unwrap();
    named.forget(made.ino, 1);
    b.check();
}
