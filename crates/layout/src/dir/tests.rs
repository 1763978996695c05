use super::entry::DirFormat;
use super::*;
use crate::bytes::{put_le16, put_le32};
use crate::units::{BlockSize, FileBlock, Ino};
use std::collections::BTreeMap;

/// A generator of numbers, the same ones on each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below).unwrap()).unwrap()
    }
}

fn format(log: u32, csum: bool, filetype: bool) -> DirFormat {
    let csum_seed = csum.then_some(0x1234_5678);
    DirFormat { block_size: BlockSize::from_log(log).unwrap(), csum_seed, filetype, inodes: 100_000, max_levels: 2 }
}

fn formats() -> impl Iterator<Item = DirFormat> {
    (0..=6).flat_map(|log| [(false, false), (false, true), (true, true)].map(|(c, f)| format(log, c, f)))
}

fn hasher() -> Hasher {
    Hasher::new(HashVersion::HalfMd4, false, [1, 2, 3, 4])
}

fn names(f: &DirFormat, block: &[u8]) -> BTreeMap<Vec<u8>, (u32, FileType)> {
    let mut out = BTreeMap::new();
    for e in f.entries(block) {
        let e = e.unwrap();
        if e.is_used() {
            assert!(out.insert(e.name.to_vec(), (e.ino.0, e.file_type)).is_none());
        }
    }
    out
}

#[test]
fn a_leaf_behaves_as_a_map() {
    for f in formats() {
        let mut n = Numbers(42);
        let mut block = vec![0; f.block_size.bytes()];
        f.init_first(&mut block, Ino(12), Ino(2));
        let ft = |t: FileType| if f.filetype { t } else { FileType::Unknown };
        let mut model = names(&f, &block);
        assert_eq!(model.len(), 2);
        for step in 0..3000u32 {
            let name = vec![b'a' + u8::try_from(n.next(20)).unwrap(); 1 + n.next(255)];
            match f.find(&block, &name).unwrap().map(|e| e.offset) {
                Some(at) if n.next(2) == 0 => {
                    f.remove(&mut block, at).unwrap();
                    model.remove(&name).unwrap();
                }
                Some(at) => {
                    f.replace(&mut block, at, Ino(step + 11), FileType::Fifo).unwrap();
                    *model.get_mut(&name).unwrap() = (step + 11, ft(FileType::Fifo));
                }
                None => {
                    assert!(!model.contains_key(&name));
                    if f.insert(&mut block, &name, Ino(step + 11), FileType::Regular).unwrap() {
                        model.insert(name, (step + 11, ft(FileType::Regular)));
                    }
                }
            }
            f.check_leaf(&block).unwrap();
        }
        assert_eq!(names(&f, &block), model);
        assert_eq!(f.dots(&block, Ino(12)).unwrap().ino, Ino(2));
        assert!(f.dots(&block, Ino(13)).is_err());
    }
}

#[test]
fn any_changed_byte_fails_the_checksum() {
    let f = format(0, true, true);
    let mut block = vec![0; 1024];
    f.init_first(&mut block, Ino(12), Ino(2));
    f.insert(&mut block, b"name", Ino(13), FileType::Regular).unwrap();
    f.check_leaf(&block).unwrap();
    for i in 0..block.len() {
        block[i] ^= 0x40;
        assert!(f.check_leaf(&block).is_err(), "byte {i}");
        block[i] ^= 0x40;
    }
    let other = DirFormat { csum_seed: Some(1), ..f };
    assert!(other.check_leaf(&block).is_err());
}

#[test]
fn a_split_keeps_every_name_and_the_order() {
    for f in formats() {
        let mut n = Numbers(7);
        let mut block = vec![0; f.block_size.bytes()];
        f.init_leaf(&mut block);
        let mut ino = 11;
        loop {
            let name = [format!("{ino}").into_bytes(), vec![b'x'; n.next(250)]].concat();
            if !f.insert(&mut block, &name, Ino(ino), FileType::Regular).unwrap() {
                break;
            }
            ino += 1;
        }
        let sorted = f.hashed(&block, 0, &hasher()).unwrap();
        let (mut left, mut right) = (vec![1; block.len()], vec![2; block.len()]);
        let hash = f.split(&sorted, &mut left, &mut right).unwrap();
        f.check_leaf(&left).unwrap();
        f.check_leaf(&right).unwrap();
        let majors = |b: &[u8]| f.hashed(b, 0, &hasher()).unwrap().iter().map(|h| h.hash.major).collect::<Vec<_>>();
        assert!(majors(&left).iter().all(|h| *h < hash));
        assert_eq!(majors(&right).iter().min(), Some(&hash));
        let mut both = names(&f, &left);
        both.extend(names(&f, &right));
        assert_eq!(both, names(&f, &block));
        // Whatever comes next fits.
        for half in [&mut left, &mut right] {
            assert!(f.insert(half, &[b'y'; 255], Ino(11), FileType::Regular).unwrap());
        }
    }
}

#[test]
fn names_of_one_hash_are_marked_as_continued() {
    let f = format(0, true, true);
    let mut block = vec![0; 1024];
    f.init_leaf(&mut block);
    for i in 0..6u32 {
        assert!(f.insert(&mut block, &[b'a' + u8::try_from(i).unwrap(); 100], Ino(11 + i), FileType::Regular).unwrap());
    }
    let mut sorted = f.hashed(&block, 0, &hasher()).unwrap();
    for h in &mut sorted {
        h.hash = NameHash { major: 0x100, minor: 0 };
    }
    let (mut left, mut right) = (vec![0; 1024], vec![0; 1024]);
    assert_eq!(f.split(&sorted, &mut left, &mut right).unwrap(), 0x101);
}

#[test]
fn an_index_grows_splits_and_deepens() {
    for f in formats() {
        let mut n = Numbers(99);
        let mut root = vec![0; f.block_size.bytes()];
        f.init_root(&mut root, Ino(12), Ino(2), HashVersion::Tea, FileBlock(1));
        let mut model: BTreeMap<u32, u32> = BTreeMap::from([(0, 1)]);
        loop {
            let (info, node) = f.root(&root, Ino(12)).unwrap();
            assert_eq!((info.hash_version, info.levels), (2, 0));
            if node.is_full() {
                break;
            }
            let hash = u32::try_from(n.next(1 << 31)).unwrap() << 1;
            let i = node.search(&root, hash);
            let (below, block) = model.range(..=hash).next_back().map(|(h, b)| (*h, *b)).unwrap();
            assert_eq!((node.hash(&root, i), node.child(&root, i)), (below, FileBlock(block)));
            if below != hash {
                let child = u32::try_from(model.len() + 1).unwrap();
                f.insert_pair(&mut root, node, i, hash, FileBlock(child));
                model.insert(hash, child);
            }
            f.check_root(&root, Ino(12)).unwrap();
        }
        let all = |b: &[u8], n: IndexNode| {
            (0..n.count()).map(|i| (n.hash(b, i), n.child(b, i).0)).collect::<BTreeMap<_, _>>()
        };
        let (_, node) = f.root(&root, Ino(12)).unwrap();
        assert_eq!(all(&root, node), model);

        let mut below = vec![0; root.len()];
        f.deepen(&mut root, node, &mut below, FileBlock(77));
        f.check_root(&root, Ino(12)).unwrap();
        f.check_node(&below).unwrap();
        let (info, top) = f.root(&root, Ino(12)).unwrap();
        assert_eq!((info.levels, top.count(), top.child(&root, 0)), (1, 1, FileBlock(77)));
        assert!(!f.can_deepen(info));
        assert_eq!(all(&below, f.node(&below).unwrap()), model);

        let mut right = vec![0; root.len()];
        let node = f.node(&below).unwrap();
        let hash = f.split_node(&mut below, node, &mut right);
        f.check_node(&below).unwrap();
        f.check_node(&right).unwrap();
        let mut upper = all(&right, f.node(&right).unwrap());
        let first = upper.remove(&0).unwrap();
        upper.insert(hash, first);
        let mut both = all(&below, f.node(&below).unwrap());
        both.extend(upper);
        assert_eq!(both, model);

        let (_, top) = f.root(&root, Ino(12)).unwrap();
        f.set_root_parent(&mut root, top, Ino(99));
        f.check_root(&root, Ino(12)).unwrap();
        assert_eq!(f.dots(&root, Ino(12)).unwrap().ino, Ino(99));
    }
}

#[test]
fn broken_records_are_named() {
    let f = format(0, false, true);
    let mut good = vec![0; 1024];
    f.init_first(&mut good, Ino(12), Ino(2));
    f.insert(&mut good, b"name", Ino(13), FileType::Regular).unwrap();
    let why = |change: &dyn Fn(&mut [u8])| {
        let mut b = good.clone();
        change(&mut b);
        f.check_leaf(&b).unwrap_err().why
    };
    assert_eq!(why(&|b| put_le16(b, 4, 8)), "entry too short");
    assert_eq!(why(&|b| put_le16(b, 4, 0)), "entry too short");
    assert_eq!(why(&|b| put_le16(b, 4, 14)), "entry length is not a multiple of 4");
    assert_eq!(why(&|b| put_le16(b, 24 + 4, 1004)), "entry leaves its block");
    assert_eq!(why(&|b| put_le16(b, 24 + 4, 992)), "entries end too close to the end of the block");
    assert_eq!(why(&|b| b[6] = 5), "name longer than its entry");
    assert_eq!(why(&|b| put_le32(b, 24, 100_001)), "inode number out of range");
    assert_eq!(why(&|b| b[24 + 6] = 0), "entry without a name");
    assert_eq!(why(&|b| b[24 + 9] = b'/'), "name holds a NUL or a slash");
}

/// Whatever the bytes are: an answer or a typed error, never a panic or an endless walk.
#[test]
fn damaged_blocks_never_panic() {
    let mut n = Numbers(0xD1CE);
    for f in formats() {
        for round in 0..300 {
            let mut block = vec![0; f.block_size.bytes()];
            match round % 3 {
                0 => f.init_first(&mut block, Ino(12), Ino(2)),
                1 => f.init_root(&mut block, Ino(12), Ino(2), HashVersion::Legacy, FileBlock(1)),
                _ => f.init_node(&mut block, FileBlock(1)),
            }
            for _ in 0..=n.next(8) {
                let at = if n.next(2) == 0 { n.next(64) } else { n.next(block.len()) };
                block[at] = u8::try_from(n.next(256)).unwrap();
            }
            let _ = (f.check_leaf(&block), f.check_node(&block), f.check_root(&block, Ino(12)));
            assert!(f.entries(&block).count() <= block.len() / 12);
            let _ = f.find(&block, b"x");
            let _ = f.dots(&block, Ino(12));
            for node in [f.node(&block).ok(), f.root(&block, Ino(12)).ok().map(|r| r.1)].into_iter().flatten() {
                for h in [0, 5, u32::MAX] {
                    assert!(node.search(&block, h) < node.count());
                }
            }
            let at = n.next(block.len()) & !3;
            let _ = f.insert(&mut block.clone(), &[b'n'; 200], Ino(11), FileType::Regular);
            let _ = f.remove(&mut block.clone(), at);
            let _ = f.replace(&mut block, at, Ino(11), FileType::Regular);
        }
    }
}
