//! Extended attributes: the entries in an inode's tail and in a block that inodes with equal attributes share.
//!
//! ```text
//! block:  0x00 magic EA020000  refcount  blocks=1  hash  checksum  0[3]     header, 32 bytes
//!         0x20 entry, entry, ... 0(32)                  ... value, value    value offsets count from the block's start
//! inode:  128 + extra_isize: magic(32) entry, ... 0(32) ... value, value    value offsets count from the first entry
//! entry:  name_len(8) index(8) value_offs(16) value_inum(32) value_size(32) hash(32) name, padded to 4
//! ```
//! The prefix of a name is a number ([`Namespace`]). Entries of a block are sorted by (index, name length, name), as
//! the kernel's search expects. The block's checksum is crc32c(file system's seed, block number(64), block).
//! Guarantees: what [`decode_block`] and [`decode_inline`] return takes no more memory than the region they read.
//! Source: kernel documentation, "ext4: extended attributes".

use crate::bytes::{le16, le32, lo16, lo32, put_le16, put_le32};
use crate::checksum::crc32c;
use crate::error::{Corrupt, Structure};
use crate::features::{Features, incompat};
use crate::inode::{GOOD_OLD_SIZE, Inode};
use crate::units::{BlockNo, Ino};

/// `h_magic` of a block, and of the region in an inode.
pub const MAGIC: u32 = 0xEA02_0000;
/// Bytes before the first entry of a block.
pub const HEADER: usize = 32;
/// Most inodes that may share a block.
pub const MAX_REFCOUNT: u32 = 1024;
/// Bytes of an entry before its name.
const ENTRY: usize = 16;
/// The zero word that ends the entries.
const END: usize = 4;
const CHECKSUM_AT: usize = 16;

/// What a name begins with; stored as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Namespace(pub u8);

impl Namespace {
    pub const USER: Namespace = Namespace(1);
    pub const ACL_ACCESS: Namespace = Namespace(2);
    pub const ACL_DEFAULT: Namespace = Namespace(3);
    pub const TRUSTED: Namespace = Namespace(4);
    pub const SECURITY: Namespace = Namespace(6);
    pub const SYSTEM: Namespace = Namespace(7);

    const PREFIXES: [(Namespace, &'static [u8]); 6] = [
        (Namespace::ACL_ACCESS, b"system.posix_acl_access"),
        (Namespace::ACL_DEFAULT, b"system.posix_acl_default"),
        (Namespace::USER, b"user."),
        (Namespace::TRUSTED, b"trusted."),
        (Namespace::SECURITY, b"security."),
        (Namespace::SYSTEM, b"system."),
    ];

    /// Splits a full name; `None` for a prefix that ext4 does not store.
    #[must_use]
    pub fn split(full: &[u8]) -> Option<(Namespace, &[u8])> {
        Self::PREFIXES.iter().find_map(|(ns, prefix)| {
            let rest = full.strip_prefix(*prefix)?;
            // An ACL's name is its prefix and nothing else.
            (!ns.is_acl() || rest.is_empty()).then_some((*ns, rest))
        })
    }

    /// The two names that stand for a POSIX ACL.
    #[must_use]
    pub fn is_acl(self) -> bool {
        matches!(self, Namespace::ACL_ACCESS | Namespace::ACL_DEFAULT)
    }

    /// The text before the stored name, or `None` for a number without one.
    #[must_use]
    pub fn prefix(self) -> Option<&'static [u8]> {
        Self::PREFIXES.iter().find(|(ns, _)| *ns == self).map(|(_, p)| *p)
    }
}

/// Where a value is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// In the region itself.
    Here(Vec<u8>),
    /// In an inode of its own (feature `ea_inode`); `hash` is the entry's.
    InInode { ino: Ino, size: u32, hash: u32 },
}

/// One attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Xattr {
    pub namespace: Namespace,
    /// Without the prefix.
    pub name: Vec<u8>,
    pub value: Value,
}

impl Xattr {
    #[must_use]
    pub fn new(namespace: Namespace, name: &[u8], value: &[u8]) -> Self {
        Xattr { namespace, name: name.to_vec(), value: Value::Here(value.to_vec()) }
    }

    /// The full name, or `None` where the prefix is unknown.
    #[must_use]
    pub fn full_name(&self) -> Option<Vec<u8>> {
        Some([self.namespace.prefix()?, &self.name].concat())
    }

    #[must_use]
    pub fn is(&self, namespace: Namespace, name: &[u8]) -> bool {
        self.namespace == namespace && self.name == name
    }

    /// Bytes that entry and value take.
    #[must_use]
    pub fn space(&self) -> usize {
        let value = match &self.value {
            Value::Here(v) => pad(v.len()),
            Value::InInode { .. } => 0,
        };
        ENTRY + pad(self.name.len()) + value
    }

    /// The order in which a block holds its entries.
    fn key(&self) -> (Namespace, usize, &[u8]) {
        (self.namespace, self.name.len(), &self.name)
    }

    /// The entry's hash, over the name and the padded value.
    fn hash(&self) -> u32 {
        match &self.value {
            Value::InInode { hash, .. } => *hash,
            Value::Here(v) => {
                let name = self.name.iter().fold(0u32, |h, b| h.rotate_left(5) ^ u32::from(*b));
                v.chunks(4).fold(name, |h, word| {
                    let mut w = [0; 4];
                    w[..word.len()].copy_from_slice(word);
                    h.rotate_left(16) ^ u32::from_le_bytes(w)
                })
            }
        }
    }
}

fn pad(n: usize) -> usize {
    n.next_multiple_of(4)
}

/// Bytes in a block for entries and values.
#[must_use]
pub fn block_capacity(block_size: usize) -> usize {
    block_size - HEADER - END
}

/// Bytes in an inode for entries and values; 0 if there is no room at all.
#[must_use]
pub fn inline_capacity(inode: &Inode) -> usize {
    let start = GOOD_OLD_SIZE + inode.extra_isize();
    // The magic and the end word come off.
    if inode.extra_isize() == 0 { 0 } else { inode.raw().len().saturating_sub(start + 4 + END) }
}

/// Whether values may lie in inodes of their own (feature `ea_inode`). Without the feature `e_value_inum` must be 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueInodes {
    Allowed,
    Refused,
}

impl ValueInodes {
    #[must_use]
    pub fn of(f: Features) -> Self {
        if f.has_incompat(incompat::EA_INODE) { ValueInodes::Allowed } else { ValueInodes::Refused }
    }
}

/// Refuses values in inodes of their own where the file system has none.
fn check_places(attrs: &[Xattr], places: ValueInodes, bad: impl Fn(&'static str) -> Corrupt) -> Result<(), Corrupt> {
    let has = || attrs.iter().any(|x| matches!(x.value, Value::InInode { .. }));
    if places == ValueInodes::Refused && has() {
        return Err(bad("a value is in an inode, without the feature ea_inode"));
    }
    Ok(())
}

/// Where in `region` the values are counted from, and where the entries begin, is the same place but for a
/// block's header: `first` is the offset of the first entry.
fn decode(region: &[u8], first: usize, bad: impl Fn(&'static str) -> Corrupt) -> Result<Vec<Xattr>, Corrupt> {
    let mut out: Vec<Xattr> = Vec::new();
    let mut values = Vec::new();
    let (mut at, mut total) = (first, first + END);
    loop {
        let Some(head) = region.get(at..at + END) else { return Err(bad("entries run past the end")) };
        if le32(head, 0) == 0 {
            break;
        }
        let name_len = usize::from(region[at]);
        let Some(entry) = region.get(at..at + ENTRY + pad(name_len)) else {
            return Err(bad("entry runs past the end"));
        };
        let (offset, inum, size, hash) = (usize::from(le16(entry, 2)), le32(entry, 4), le32(entry, 8), le32(entry, 12));
        let value = if inum != 0 {
            Value::InInode { ino: Ino(inum), size, hash }
        } else {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let end = offset.checked_add(size).filter(|e| *e <= region.len());
            let Some(end) = end else { return Err(bad("value runs past the end")) };
            if size > 0 {
                values.push(offset);
            }
            Value::Here(region[offset.min(end)..end].to_vec())
        };
        let x = Xattr { namespace: Namespace(entry[1]), name: entry[ENTRY..ENTRY + name_len].to_vec(), value };
        total += x.space();
        if total > region.len() {
            return Err(bad("values overlap"));
        }
        out.push(x);
        at += ENTRY + pad(name_len);
    }
    if values.iter().any(|v| *v < at + END) {
        return Err(bad("value overlaps the entries"));
    }
    Ok(out)
}

/// Writes entries and values into a zeroed region. The caller has checked that they fit.
fn encode<'a>(region: &mut [u8], first: usize, attrs: impl Iterator<Item = &'a Xattr>, hashed: bool) {
    let (mut at, mut end) = (first, region.len());
    for x in attrs {
        region[at] = u8::try_from(x.name.len()).expect("names have at most 255 bytes");
        region[at + 1] = x.namespace.0;
        match &x.value {
            Value::Here(v) => {
                end -= pad(v.len());
                region[end..end + v.len()].copy_from_slice(v);
                let offset = if v.is_empty() { 0 } else { u32::try_from(end).expect("below 64 KiB") };
                put_le16(region, at + 2, lo16(offset));
                put_le32(region, at + 8, u32::try_from(v.len()).expect("fits the region"));
            }
            Value::InInode { ino, size, .. } => {
                put_le32(region, at + 4, ino.0);
                put_le32(region, at + 8, *size);
            }
        }
        if hashed || matches!(x.value, Value::InInode { .. }) {
            put_le32(region, at + 12, x.hash());
        }
        region[at + ENTRY..at + ENTRY + x.name.len()].copy_from_slice(&x.name);
        at += ENTRY + pad(x.name.len());
    }
    assert!(at + END <= end, "attributes fit their region");
}

/// True if `attrs` fit `capacity` bytes ([`block_capacity`], [`inline_capacity`]).
#[must_use]
pub fn fits(attrs: &[Xattr], capacity: usize) -> bool {
    attrs.iter().map(Xattr::space).sum::<usize>() <= capacity
}

/// Attributes in an inode's tail.
///
/// # Errors
/// Corrupt, with the inode as object.
pub fn decode_inline(ino: Ino, inode: &Inode, places: ValueInodes) -> Result<Vec<Xattr>, Corrupt> {
    let start = GOOD_OLD_SIZE + inode.extra_isize();
    let Some(tail) = inode.raw().get(start..) else { return Ok(Vec::new()) };
    if inode.extra_isize() == 0 || tail.len() < 4 + END || le32(tail, 0) != MAGIC {
        return Ok(Vec::new());
    }
    let bad = |why| Corrupt::new(Structure::InlineXattr, why).of(ino.0);
    let attrs = decode(&tail[4..], 0, bad)?;
    check_places(&attrs, places, bad)?;
    Ok(attrs)
}

/// Replaces the attributes in an inode's tail; `false`, and nothing changed, if they do not fit.
#[must_use]
pub fn encode_inline(inode: &mut Inode, attrs: &[Xattr]) -> bool {
    if !fits(attrs, inline_capacity(inode)) {
        return false;
    }
    if inline_capacity(inode) == 0 {
        return true;
    }
    let start = GOOD_OLD_SIZE + inode.extra_isize();
    let tail = &mut inode.raw_mut()[start..];
    tail.fill(0);
    if !attrs.is_empty() {
        put_le32(tail, 0, MAGIC);
        encode(&mut tail[4..], 0, attrs.iter(), false);
    }
    true
}

/// Checks a block: magic, checksum (`seed`: the file system's, with `metadata_csum`), entries.
///
/// # Errors
/// Corrupt, with the block.
pub fn check_block(b: &[u8], block: BlockNo, seed: Option<u32>, places: ValueInodes) -> Result<(), Corrupt> {
    let bad = |why| Corrupt::new(Structure::XattrBlock, why).at(block);
    if le32(b, 0) != MAGIC || le32(b, 8) != 1 {
        return Err(bad("no magic"));
    }
    if seed.is_some_and(|s| le32(b, CHECKSUM_AT) != checksum(b, block, s)) {
        return Err(bad("checksum does not match"));
    }
    if refcount(b) == 0 || refcount(b) > MAX_REFCOUNT {
        return Err(bad("reference count out of range"));
    }
    check_places(&decode(b, HEADER, bad)?, places, bad)
}

fn checksum(b: &[u8], block: BlockNo, seed: u32) -> u32 {
    let sum = crc32c(seed, &block.0.to_le_bytes());
    let sum = crc32c(sum, &b[..CHECKSUM_AT]);
    let sum = crc32c(sum, &[0; 4]);
    crc32c(sum, &b[CHECKSUM_AT + 4..])
}

/// Attributes of a block that has been checked.
///
/// # Errors
/// Corrupt, with the block.
pub fn decode_block(b: &[u8], block: BlockNo) -> Result<Vec<Xattr>, Corrupt> {
    decode(b, HEADER, |why| Corrupt::new(Structure::XattrBlock, why).at(block))
}

/// Inodes that share a block.
#[must_use]
pub fn refcount(b: &[u8]) -> u32 {
    le32(b, 4)
}

/// Hash over a block's entries; equal blocks have equal hashes. 0: not to be shared.
#[must_use]
pub fn block_hash(b: &[u8]) -> u32 {
    le32(b, 12)
}

/// True if two blocks hold the same attributes, whatever their counts and checksums.
#[must_use]
pub fn same_block(a: &[u8], b: &[u8]) -> bool {
    a[8..CHECKSUM_AT] == b[8..CHECKSUM_AT] && a[HEADER..] == b[HEADER..]
}

pub fn set_refcount(b: &mut [u8], n: u32) {
    put_le32(b, 4, n);
}

/// A block with these attributes and one reference, unsealed; `None` if they do not fit.
#[must_use]
pub fn encode_block(attrs: &[Xattr], block_size: usize) -> Option<Vec<u8>> {
    if !fits(attrs, block_capacity(block_size)) {
        return None;
    }
    let mut sorted: Vec<&Xattr> = attrs.iter().collect();
    sorted.sort_by(|a, b| a.key().cmp(&b.key()));
    let mut b = vec![0; block_size];
    put_le32(&mut b, 0, MAGIC);
    set_refcount(&mut b, 1);
    put_le32(&mut b, 8, 1);
    encode(&mut b, HEADER, sorted.iter().copied(), true);
    let hashes: Vec<u32> = sorted.iter().map(|x| x.hash()).collect();
    // An entry whose hash is 0 makes the block one that is not shared.
    let hash = if hashes.contains(&0) { 0 } else { hashes.iter().fold(0u32, |h, e| h.rotate_left(16) ^ e) };
    put_le32(&mut b, 12, hash);
    Some(b)
}

/// Recomputes the checksum of a block at its place.
pub fn seal_block(b: &mut [u8], block: BlockNo, seed: Option<u32>) {
    let sum = seed.map_or(0, |s| checksum(b, block, s));
    put_le32(b, CHECKSUM_AT, lo32(sum.into()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attrs() -> impl Strategy<Value = Vec<Xattr>> {
        let one = (1u8..8, prop::collection::vec(any::<u8>(), 1..40), prop::collection::vec(any::<u8>(), 0..90));
        prop::collection::vec(one, 0..6)
            .prop_map(|v| v.iter().map(|(i, n, d)| Xattr::new(Namespace(*i), n, d)).collect())
    }

    proptest! {
        #[test]
        fn blocks_and_inodes_round_trip(a in attrs()) {
            let mut b = encode_block(&a, 1024).unwrap();
            seal_block(&mut b, BlockNo(77), Some(5));
            check_block(&b, BlockNo(77), Some(5), ValueInodes::Refused).unwrap();
            let mut sorted = a.clone();
            sorted.sort_by(|x, y| x.key().cmp(&y.key()));
            prop_assert_eq!(decode_block(&b, BlockNo(77)).unwrap(), sorted);
            let mut inode = Inode::new(1024, 32);
            prop_assert!(encode_inline(&mut inode, &a));
            prop_assert_eq!(decode_inline(Ino(12), &inode, ValueInodes::Refused).unwrap(), a);
            prop_assert!(encode_inline(&mut inode, &[]));
            prop_assert!(inode.raw()[160..].iter().all(|b| *b == 0));
        }

        #[test]
        fn hostile_bytes_give_errors_or_bounded_results(mut b in prop::collection::vec(any::<u8>(), 1024), small in any::<bool>()) {
            if small {
                // Plausible entries get further.
                b.iter_mut().for_each(|x| *x &= 0x3F);
            }
            put_le32(&mut b, 0, MAGIC);
            put_le32(&mut b, 8, 1);
            let _ = check_block(&b, BlockNo(1), None, ValueInodes::Refused);
            if let Ok(a) = decode_block(&b, BlockNo(1)) {
                prop_assert!(fits(&a, block_capacity(1024)));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut inode = Inode::new(256, 32);
        assert_eq!(inline_capacity(&inode), 88);
        assert!(encode_inline(&mut inode, &[Xattr::new(Namespace::USER, b"a", &[1; 68])]));
        let before = inode.clone();
        assert!(!encode_inline(&mut inode, &[Xattr::new(Namespace::USER, b"a", &[1; 69])]));
        assert_eq!(inode, before);
        assert_eq!(inline_capacity(&Inode::new(128, 0)), 0);
        assert!(encode_block(&[Xattr::new(Namespace::USER, b"a", &[1; 968])], 1024).is_some());
        assert!(encode_block(&[Xattr::new(Namespace::USER, b"a", &[1; 969])], 1024).is_none());
    }

    #[test]
    fn a_changed_block_fails_its_checksum() {
        let mut b = encode_block(&[Xattr::new(Namespace::USER, b"a", b"1")], 1024).unwrap();
        seal_block(&mut b, BlockNo(9), Some(5));
        assert!(check_block(&b, BlockNo(9), Some(5), ValueInodes::Refused).is_ok());
        assert!(check_block(&b, BlockNo(8), Some(5), ValueInodes::Refused).is_err());
        b[1023] ^= 1;
        assert!(check_block(&b, BlockNo(9), Some(5), ValueInodes::Refused).is_err());
        assert!(check_block(&b, BlockNo(9), None, ValueInodes::Refused).is_ok());
    }

    #[test]
    fn names_split_at_their_prefix() {
        assert_eq!(Namespace::split(b"user.a.b"), Some((Namespace::USER, &b"a.b"[..])));
        assert_eq!(Namespace::split(b"system.posix_acl_access"), Some((Namespace::ACL_ACCESS, &b""[..])));
        assert_eq!(
            Namespace::split(b"system.posix_acl_accessory"),
            Some((Namespace::SYSTEM, &b"posix_acl_accessory"[..]))
        );
        assert_eq!(Namespace::split(b"os2.x"), None);
    }
}
