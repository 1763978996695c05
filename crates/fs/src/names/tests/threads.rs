//! Several threads on one tree: no deadlock, no leak, a clean image.

use super::objects::{IMAGES, dir, give_back_all, new};
use crate::data::WriteFlags;
use crate::testing::TestVolume;
use crate::{Attributes, Error, NewKind, RenameFlags, Result, SetAttr, Volume, XattrFlags};
use quire_device::sync::thread;
use quire_layout::Ino;
use quire_layout::dir::is_dot;
use quire_testkit::Rng;

/// One thread's calls; the others are in the same directories.
fn calls(v: &Volume, dirs: &[Ino], seed: u64) {
    let allowed = |r: Result<()>| match r {
        Ok(()) => {}
        // Others were faster.
        Err(Error::NotFound | Error::Exists | Error::NotEmpty | Error::IsDir | Error::NotDir | Error::Stale(_)) => {}
        Err(Error::Invalid(_) | Error::NotPermitted(_) | Error::NoData) => {}
        Err(e) => panic!("{e}"),
    };
    let mut rng = Rng::new(seed);
    let mut below = |n: usize| rng.index(n);
    for _ in 0..600 {
        let (d, e) = (dirs[below(dirs.len())], dirs[below(dirs.len())]);
        let (a, b) = (format!("n{}", below(9)), format!("n{}", below(9)));
        let found = v.lookup(d, a.as_bytes());
        let done = match (below(9), &found) {
            (0, _) => v.create(d, a.as_bytes(), &new(NewKind::Dir, 0o755)).map(|a| v.forget(a.ino, 1)),
            (1 | 2, _) => v.create(d, a.as_bytes(), &new(NewKind::File, 0o644)).map(|a| v.forget(a.ino, 1)),
            (3, _) => v.unlink(d, a.as_bytes()),
            (4, _) => v.rmdir(d, a.as_bytes()),
            (5, _) => v.rename(d, a.as_bytes(), e, b.as_bytes(), RenameFlags::default()),
            (6, Ok(f)) => v.link(f.ino, e, b.as_bytes()).map(|a| v.forget(a.ino, 1)),
            (7, Ok(f)) if f.mode & 0xF000 == 0x8000 => {
                v.write(f.ino, u64::try_from(below(90_000)).unwrap(), &[1; 700], WriteFlags::default()).map(drop)
            }
            (8, Ok(f)) => v
                .xattrs()
                .set(f.ino, b"trusted.label", &vec![1; 300 + below(3)], XattrFlags::Any)
                .and_then(|()| v.setattr(f.ino, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).map(drop)),
            (_, Ok(f)) => v.getattr(f.ino).map(drop),
            _ => v.readdir_plus(d, 0, Attributes::All, &mut |i, a| {
                if a.is_some() && !is_dot(i.name) {
                    v.forget(i.ino, 1);
                }
                true
            }),
        };
        allowed(done);
        if let Ok(f) = found {
            v.forget(f.ino, 1);
        }
    }
}

#[test]
fn threads_share_a_tree() {
    for args in [IMAGES[0], IMAGES[1], IMAGES[3], IMAGES[6]] {
        println!("mke2fs {args:?}");
        let t = TestVolume::new("24M", args);
        let dirs: Vec<Ino> = (0..3).map(|n| dir(&t.volume, Ino::ROOT, &format!("d{n}")).ino).collect();
        let threads: Vec<_> = (1..5)
            .map(|n| {
                let (v, dirs) = (t.volume.clone(), dirs.clone());
                thread::spawn(move || calls(&v, &dirs, n))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        give_back_all(&t.volume);
        t.check();
    }
}
