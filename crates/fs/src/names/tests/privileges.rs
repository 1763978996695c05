//! What a change of a file takes from the privileges that the file gives.

use super::objects::{each_image, file};
use crate::{Privileges, SetAttr, XattrFlags};
use quire_layout::Ino;

/// Wherever they lie: beside 40 bytes they fit an inode of 256 bytes, and 600 bytes need a block.
#[test]
fn capabilities_fall_alone_where_the_ids_are_kept() {
    each_image(|t| {
        let v = &t.volume;
        for (name, before) in [("bare", None), ("small", Some(40)), ("large", Some(600))] {
            let f = file(v, Ino::ROOT, name);
            v.setattr(f.ino, &SetAttr { mode: Some(0o6755), ..SetAttr::default() }).unwrap();
            if let Some(len) = before {
                v.xattrs().set(f.ino, b"user.other", &vec![b'o'; len], XattrFlags::Any).unwrap();
                v.xattrs().set(f.ino, b"security.capability", b"caps", XattrFlags::Any).unwrap();
            }
            let a = v.setattr(f.ino, &SetAttr { privileges: Privileges::DropCapabilities, ..SetAttr::default() });
            assert_eq!(a.unwrap().mode, 0o106_755, "{name}");
            let left = v.xattrs().list(f.ino).unwrap();
            let other = before.map(|_| b"user.other".to_vec());
            assert_eq!(left, other.into_iter().collect::<Vec<_>>(), "{name}");
        }
        t.check();
    });
}
