//! How images are damaged: single bits, fields with values that nobody expects, and random mixtures.

use super::base::Base;
use super::case::{Case, Edit};
use super::places::{Kind, Place};
use quire_layout::bytes::{le16, le32};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Bits of all metadata of a base.
#[must_use]
pub fn flip_count(base: &Base) -> u64 {
    base.places.iter().map(|p| p.len as u64 * 8).sum()
}

/// The case that flips bit `n` of all metadata, checksums as they were.
///
/// # Panics
/// If there are not so many.
#[must_use]
pub fn flip_of(base: &Base, mut n: u64) -> Case {
    for p in &base.places {
        let bits = p.len as u64 * 8;
        if n < bits {
            let at = p.at + n / 8;
            let mut b = [0];
            base.image.read(at, &mut b);
            return case(base, vec![Edit { at, bytes: vec![b[0] ^ 1 << (n % 8)] }], false);
        }
        n -= bits;
    }
    panic!("not so many bits");
}

fn case(base: &Base, edits: Vec<Edit>, seal: bool) -> Case {
    Case { base: base.name.to_owned(), edits, seal }
}

/// Numbers at a place: offset, bytes, big-endian.
type Field = (usize, usize, bool);

/// The names of a directory block, entry by entry.
fn entry_fields(bytes: &[u8]) -> Vec<Field> {
    let (mut f, mut at) = (Vec::new(), 0);
    while at + 12 <= bytes.len() && f.len() < 24 {
        f.extend([(at, 4, false), (at + 4, 2, false), (at + 6, 1, false), (at + 7, 1, false), (at + 8, 1, false)]);
        at += usize::from(le16(bytes, at + 4)).max(12);
    }
    f
}

/// Every field of a place that means something.
fn fields(p: &Place, bytes: &[u8]) -> Vec<Field> {
    let little = |at: &[usize], width| at.iter().map(|a| (*a, width, false)).collect::<Vec<_>>();
    let every = |from: usize, to: usize, step: usize, width: usize| {
        (from..to.min(bytes.len())).step_by(step).map(|a| (a, width, false)).collect::<Vec<_>>()
    };
    let big = |from: usize, to: usize| (from..to).step_by(4).map(|a| (a, 4, true)).collect::<Vec<_>>();
    let mut out = match p.kind {
        Kind::Superblock => {
            let mut f = every(0, 0x2C, 4, 4);
            f.extend(little(
                &[0x34, 0x36, 0x38, 0x3A, 0x3C, 0x3E, 0x58, 0x5A, 0xCE, 0xFC, 0xFE, 0x15C, 0x15E, 0x174],
                2,
            ));
            f.extend(little(
                &[0x4C, 0x54, 0x5C, 0x60, 0x64, 0xE0, 0xE4, 0xE8, 0x100, 0x104, 0x150, 0x154, 0x158, 0x160],
                4,
            ));
            f.extend(little(&[0x248, 0x24C, 0x250, 0x254, 0x26C, 0x270, 0x280], 4));
            f
        }
        Kind::Descriptor(_) => every(0, 0x0C, 4, 4).into_iter().chain(every(0x0C, 64, 2, 2)).collect(),
        Kind::BlockBitmap(_) | Kind::InodeBitmap(_) => every(0, 64, 16, 4),
        Kind::Inode(_) => {
            let mut f = little(&[0, 0x1A, 0x74, 0x76, 0x80, 0x84], 2);
            f.extend(little(&[0x04, 0x14, 0x1C, 0x20, 0x64, 0x68, 0x6C, 0xA0, 0xA4, 0xA8, 0xAC], 4));
            f.extend(every(0x28, 0x34, 2, 2));
            f.extend(every(0x28, 0x64, 4, 4));
            f
        }
        Kind::ExtentNode(_) => {
            every(0, 12, 2, 2).into_iter().chain(every(12, 36, 4, 4)).chain(every(16, 36, 2, 2)).collect()
        }
        Kind::IndirectBlock(_) => every(0, 16, 4, 4),
        Kind::DirLeaf(_) => entry_fields(bytes),
        Kind::HtreeRoot(_) => every(0, 8, 4, 4)
            .into_iter()
            .chain(every(4, 32, 2, 2))
            .chain(every(32, 36, 2, 2))
            .chain(every(28, 64, 4, 4))
            .collect(),
        Kind::HtreeNode(_) => every(0, 12, 2, 2).into_iter().chain(every(12, 40, 4, 4)).collect(),
        Kind::Xattrs => every(0, 20, 4, 4).into_iter().chain(every(32, 80, 2, 2)).chain(every(36, 48, 4, 4)).collect(),
        Kind::OrphanFile(_) => every(0, 16, 4, 4).into_iter().chain(little(&[bytes.len() - 8], 4)).collect(),
        Kind::JournalDevice => little(&[0x04, 0x14, 0x18, 0x5C, 0x60, 0x64, 0x68], 4),
        Kind::JournalSuperblock => big(0, 0x60),
        Kind::LogDescriptor => big(0, 64),
        Kind::LogRevoke => big(0, 48),
        Kind::LogCommit => big(0, 0x3C),
        Kind::LogImage { .. } => every(0, 1024, 4, 4),
    };
    out.retain(|(at, width, _)| at + width <= bytes.len());
    out
}

/// What a field may be made: nothing, everything, one off, and numbers that mean something here.
fn values(base: &Base, p: &Place, bytes: &[u8], (at, width, be): Field) -> Vec<Vec<u8>> {
    let old = &bytes[at..at + width];
    let mut n = [0; 8];
    old.iter().enumerate().for_each(|(i, b)| n[if be { width - 1 - i } else { i }] = *b);
    let old_value = u64::from_le_bytes(n);
    let own = match p.kind {
        Kind::Inode(ino) | Kind::DirLeaf(ino) | Kind::HtreeRoot(ino) | Kind::HtreeNode(ino) => u64::from(ino.0),
        _ => 11,
    };
    let journal = base.places.iter().find(|q| q.kind == Kind::JournalSuperblock).map_or(3, |q| q.block.0);
    let top = 1u64 << (8 * width - 1);
    let numbers = [
        0,
        1,
        2,
        3,
        4,
        7,
        12,
        u64::MAX,
        u64::MAX - 1,
        top,
        top.wrapping_sub(1),
        top.wrapping_add(1),
        0x8000,
        0xFFFF,
        0x10000,
        old_value.wrapping_add(1),
        old_value.wrapping_sub(1),
        old_value << 1,
        old_value >> 1,
        old_value ^ top,
        p.block.0,
        p.block.0.wrapping_sub(1),
        p.block.0.wrapping_add(1),
        own,
        2,
        8,
        journal,
        journal.wrapping_add(1),
        base.sb.blocks_count(),
        base.sb.blocks_count() - 1,
        u64::from(base.sb.inodes_count()),
        u64::from(base.sb.inodes_count()) + 1,
        1024,
        1023,
    ];
    let mut out: Vec<Vec<u8>> = Vec::new();
    for v in numbers {
        let mut b = v.to_le_bytes()[..width].to_vec();
        if be {
            b.reverse();
        }
        if b != old && !out.contains(&b) {
            out.push(b);
        }
    }
    out
}

/// Every field of a place with every such value, checksums mended.
#[must_use]
pub fn field_cases(base: &Base, place: usize) -> Vec<Case> {
    let p = &base.places[place];
    let mut bytes = vec![0; p.len];
    base.image.read(p.at, &mut bytes);
    let edit = |f: Field, bytes| case(base, vec![Edit { at: p.at + f.0 as u64, bytes }], true);
    fields(p, &bytes)
        .into_iter()
        .flat_map(|f| values(base, p, &bytes, f).into_iter().map(move |v| edit(f, v)))
        .collect()
}

/// One to four random edits: mostly fields, some bytes anywhere, blocks copied over others.
#[must_use]
pub fn random_case(base: &Base, seed: u64) -> Case {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut edits = Vec::new();
    if rng.random_range(0..6) == 0 {
        edits.extend(freed(base, &mut rng));
    }
    for _ in 0..rng.random_range(1..=4) {
        let p = pick(base, &mut rng);
        let mut bytes = vec![0; p.len];
        base.image.read(p.at, &mut bytes);
        let edit = match rng.random_range(0..10) {
            0..6 => {
                let f = fields(p, &bytes);
                let f = f[rng.random_range(0..f.len())];
                let v = match rng.random_range(0..4) {
                    0 if f.1 == 4 => number_of_another(base, f.2, &mut rng),
                    _ => {
                        let mut v = values(base, p, &bytes, f);
                        v.swap_remove(rng.random_range(0..v.len()))
                    }
                };
                Edit { at: p.at + f.0 as u64, bytes: v }
            }
            6..9 => {
                let (at, n) = (rng.random_range(0..p.len), rng.random_range(1..=8));
                let n: usize = (p.len - at).min(n);
                Edit { at: p.at + at as u64, bytes: (0..n).map(|_| rng.random()).collect() }
            }
            _ => {
                let from = pick(base, &mut rng);
                let mut bytes = vec![0; from.len.min(p.len)];
                base.image.read(from.at, &mut bytes);
                Edit { at: p.at, bytes }
            }
        };
        edits.push(edit);
    }
    case(base, edits, rng.random_range(0..8) > 0)
}

/// The number of a block or inode that is something else's.
fn number_of_another(base: &Base, big_endian: bool, rng: &mut StdRng) -> Vec<u8> {
    let other = pick(base, rng);
    let n = match other.kind {
        Kind::Inode(ino) => ino.0,
        _ => u32::try_from(other.block.0).expect("a small image"),
    };
    if big_endian { n.to_be_bytes().to_vec() } else { n.to_le_bytes().to_vec() }
}

/// A bitmap in which things in use are free, with counts that agree: some bits, or all.
fn freed(base: &Base, rng: &mut StdRng) -> Vec<Edit> {
    let is_map = |p: &&Place| matches!(p.kind, Kind::BlockBitmap(_) | Kind::InodeBitmap(_));
    let maps: Vec<&Place> = base.places.iter().filter(is_map).collect();
    let p = maps[rng.random_range(0..maps.len())];
    let (g, blocks) = match p.kind {
        Kind::BlockBitmap(g) => (g, true),
        Kind::InodeBitmap(g) => (g, false),
        _ => unreachable!("only bitmaps"),
    };
    let (from, n) =
        if blocks { (base.sb.group_start(g).0, base.sb.blocks_in(g)) } else { (0, base.sb.inodes_per_group()) };
    let bs = base.sb.block_size();
    let own = |i: u32| {
        let at = bs.offset(quire_layout::BlockNo(from + u64::from(i)));
        blocks && base.zones.iter().any(|(start, end)| (*start..*end).contains(&at)) || !blocks && i < 11
    };
    let mut bits = vec![0; p.len];
    base.image.read(p.at, &mut bits);
    let every = rng.random_range(1..40);
    let first_free = rng.random_range(0..8);
    for i in (first_free..n).filter(|i| i % every == 0 && !own(*i)) {
        quire_layout::bitmap::clear(&mut bits, i, i + 1);
    }
    let free = quire_layout::bitmap::count_free(&bits, n).to_le_bytes();
    let Some(d) = base.places.iter().find(|q| q.kind == Kind::Descriptor(g)) else { return Vec::new() };
    let (count, flags) = (d.at + if blocks { 0x0C } else { 0x0E }, d.at + 0x12);
    vec![
        Edit { at: p.at, bytes: bits },
        Edit { at: count, bytes: free[..2].to_vec() },
        Edit { at: flags, bytes: vec![4, 0] },
    ]
}

/// A place: kinds are equally likely, however many of a kind there are.
fn pick<'a>(base: &'a Base, rng: &mut StdRng) -> &'a Place {
    let mut kinds: Vec<&str> = base.places.iter().map(|p| p.kind.name()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = kinds[rng.random_range(0..kinds.len())];
    let of_kind: Vec<&Place> = base.places.iter().filter(|p| p.kind.name() == kind).collect();
    of_kind[rng.random_range(0..of_kind.len())]
}

/// A case from any bytes: the base, then edits (place, offset, length, bytes). For fuzzers.
#[must_use]
pub fn from_bytes(bases: &[Base], input: &[u8]) -> Option<Case> {
    let (first, mut rest) = input.split_first()?;
    let base = &bases[usize::from(*first & 0x7F) % bases.len()];
    let mut edits = Vec::new();
    while rest.len() > 6 && edits.len() < 16 {
        let p = &base.places[usize::try_from(le32(rest, 0)).ok()? % base.places.len()];
        let offset = usize::from(le16(rest, 4)) % p.len;
        let n = (usize::from(rest[6]) % 16 + 1).min(rest.len() - 7).min(p.len - offset);
        edits.push(Edit { at: p.at + offset as u64, bytes: rest[7..7 + n].to_vec() });
        rest = &rest[7 + n..];
    }
    Some(case(base, edits, first & 0x80 == 0))
}
