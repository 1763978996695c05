//! What a superblock may say of the hashes of new indexes.

use super::{Dirs, image};
use quire_layout::superblock::Superblock;

/// `s_def_hash_version` and `s_flags` in an image.
const HASH_VERSION: usize = 1024 + 0xFC;
const FLAGS: usize = 1024 + 0x160;

/// 3 to 5 mean hashes of bytes without a sign; an index that is made by the kernel or by us is read by `s_flags`. Names
/// with bytes from 0x80 on have other hashes then.
#[test]
fn an_index_is_read_by_the_hashes_that_it_was_made_with() {
    for version in 0..6 {
        for signs in [1, 2] {
            let mut image = image("16M", &["-t", "ext4", "-b", "1024"]);
            image[HASH_VERSION] = version;
            image[FLAGS] = (image[FLAGS] & !3) | signs;
            let mut sb = Superblock::decode_unverified(&image[1024..2048]).expect("a superblock");
            sb.seal();
            image[1024..2048].copy_from_slice(sb.bytes());
            let mut d = Dirs::on(image);
            let name = |n: usize| [&[0xFF; 8][..], n.to_string().as_bytes()].concat();
            (0..200).for_each(|n| d.add(&name(n), d.file(n)).expect("there is room"));
            assert!(d.levels().is_some(), "{version}, {signs}: no index");
            d.check();
            for n in 0..200 {
                assert_eq!(d.lookup(&name(n)).expect("sound"), Some(d.file(n)), "{version}, {signs}: name {n}");
            }
        }
    }
}
