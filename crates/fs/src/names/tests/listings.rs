//! Listings with attributes, and the references that they give.

use super::objects::{dir, each_image, file};
use crate::{Attributes, Error};
use quire_layout::Ino;

#[test]
fn a_listing_of_news_leaves_out_what_the_caller_knows() {
    each_image(|t| {
        let v = &t.volume;
        let (known, unknown) = (file(v, Ino::ROOT, "known").ino, file(v, Ino::ROOT, "unknown").ino);
        v.forget(unknown, 1);
        let mut told = Vec::new();
        v.readdir_plus(Ino::ROOT, 0, Attributes::Unreferenced, &mut |i, attr| {
            if i.ino == known || i.ino == unknown {
                told.push((i.name.to_vec(), attr.map(|a| a.ino)));
            }
            true
        })
        .unwrap();
        told.sort();
        assert_eq!(told, [(b"known".to_vec(), None), (b"unknown".to_vec(), Some(unknown))]);
        // The listing gave a reference on the one, not on the other.
        v.unlink(Ino::ROOT, b"known").unwrap();
        v.unlink(Ino::ROOT, b"unknown").unwrap();
        assert!(v.getattr(unknown).is_ok());
        v.forget(known, 1);
        assert!(matches!(v.getattr(known), Err(Error::Stale(_))));
        v.forget(unknown, 1);
        assert!(matches!(v.getattr(unknown), Err(Error::Stale(_))));
    });
}

#[test]
fn a_listing_gives_references_only_on_what_is_taken() {
    each_image(|t| {
        let v = &t.volume;
        let d = dir(v, Ino::ROOT, "d").ino;
        let names: Vec<String> = (0..6).map(|n| format!("f{n}")).collect();
        let files: Vec<Ino> = names.iter().map(|name| file(v, d, name).ino).collect();
        files.iter().for_each(|f| v.forget(*f, 1));
        // Two files: the third is refused, the others are not even shown.
        let (mut taken, mut refused) = (Vec::new(), None);
        v.readdir_plus(d, 0, Attributes::All, &mut |i, attr| {
            assert_eq!(attr.map(|a| a.ino), Some(i.ino));
            if taken.len() == 2 {
                assert_eq!(refused.replace(i.ino), None);
                return false;
            }
            taken.extend(files.contains(&i.ino).then_some(i.ino));
            true
        })
        .unwrap();
        assert!(refused.is_some());
        names.iter().for_each(|name| v.unlink(d, name.as_bytes()).unwrap());
        for f in files {
            if taken.contains(&f) {
                assert!(v.getattr(f).is_ok());
                v.forget(f, 1);
            }
            assert!(matches!(v.getattr(f), Err(Error::Stale(_))));
        }
        // Nor on the directory, which `.` names.
        v.rmdir(Ino::ROOT, b"d").unwrap();
        v.forget(d, 1);
        assert!(matches!(v.getattr(d), Err(Error::Stale(_))));
    });
}
