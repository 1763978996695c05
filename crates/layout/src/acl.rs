//! POSIX access control lists: ext4's stored form and the form of the `system.posix_acl_*` attributes.
//!
//! ```text
//! stored:    version=1(32)  { tag(16) perm(16) [id(32) for named users and groups] } ...
//! attribute: version=2(32)  { tag(16) perm(16) id(32) } ...      id FFFFFFFF where the tag has none
//! ```
//! Source: POSIX 1003.1e draft 17; acl(5); kernel documentation, "ext4: extended attributes".

use crate::bytes::{le16, le32, try_le16, try_le32};
use crate::error::{Corrupt, Structure};

const STORED_VERSION: u32 = 1;
const XATTR_VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// Whom an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    UserObj,
    User(u32),
    GroupObj,
    Group(u32),
    Mask,
    Other,
}

impl Tag {
    fn number(self) -> u16 {
        match self {
            Tag::UserObj => 1,
            Tag::User(_) => 2,
            Tag::GroupObj => 4,
            Tag::Group(_) => 8,
            Tag::Mask => 0x10,
            Tag::Other => 0x20,
        }
    }

    fn id(self) -> Option<u32> {
        match self {
            Tag::User(id) | Tag::Group(id) => Some(id),
            _ => None,
        }
    }

    /// `id` is looked at for named users and groups only.
    fn of(number: u16, id: u32) -> Option<Tag> {
        Some(match number {
            1 => Tag::UserObj,
            2 => Tag::User(id),
            4 => Tag::GroupObj,
            8 => Tag::Group(id),
            0x10 => Tag::Mask,
            0x20 => Tag::Other,
            _ => return None,
        })
    }
}

/// One entry: who, and which of read (4), write (2), execute (1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub tag: Tag,
    pub perm: u16,
}

/// An access control list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    pub entries: Vec<Entry>,
}

impl Acl {
    /// From the attribute's form; `None` if it is malformed. An empty list is legal here: it stands for "no ACL".
    #[must_use]
    pub fn from_xattr(v: &[u8]) -> Option<Acl> {
        if try_le32(v, 0)? != XATTR_VERSION || !(v.len() - 4).is_multiple_of(8) {
            return None;
        }
        let entries =
            v[4..].chunks_exact(8).map(|e| Some(Entry { tag: Tag::of(le16(e, 0), le32(e, 4))?, perm: le16(e, 2) }));
        Some(Acl { entries: entries.collect::<Option<_>>()? })
    }

    /// The attribute's form.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = XATTR_VERSION.to_le_bytes().to_vec();
        for e in &self.entries {
            out.extend(e.tag.number().to_le_bytes());
            out.extend(e.perm.to_le_bytes());
            out.extend(e.tag.id().unwrap_or(NO_ID).to_le_bytes());
        }
        out
    }

    /// From ext4's stored form.
    ///
    /// # Errors
    /// Corrupt: a version, tag or length that does not exist, or a list that is not valid.
    pub fn decode(v: &[u8]) -> Result<Acl, Corrupt> {
        let acl = Self::parse(v).ok_or(Corrupt::new(Structure::Acl, "malformed"))?;
        if acl.is_valid() { Ok(acl) } else { Err(Corrupt::new(Structure::Acl, "not a valid list")) }
    }

    fn parse(v: &[u8]) -> Option<Acl> {
        if try_le32(v, 0)? != STORED_VERSION {
            return None;
        }
        let (mut at, mut entries) = (4, Vec::new());
        while at < v.len() {
            let (number, perm) = (try_le16(v, at)?, try_le16(v, at + 2)?);
            let named = matches!(number, 2 | 8);
            let id = if named { try_le32(v, at + 4)? } else { NO_ID };
            entries.push(Entry { tag: Tag::of(number, id)?, perm });
            at += if named { 8 } else { 4 };
        }
        Some(Acl { entries })
    }

    /// ext4's stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = STORED_VERSION.to_le_bytes().to_vec();
        for e in &self.entries {
            out.extend(e.tag.number().to_le_bytes());
            out.extend(e.perm.to_le_bytes());
            if let Some(id) = e.tag.id() {
                out.extend(id.to_le_bytes());
            }
        }
        out
    }

    /// One owner, named users, one owning group, named groups, a mask if there is a name, others: in this order.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let order = self.entries.windows(2).all(|w| {
            let (a, b) = (w[0].tag.number(), w[1].tag.number());
            a < b || (a == b && w[0].tag.id().is_some())
        });
        let count = |n: u16| self.entries.iter().filter(|e| e.tag.number() == n).count();
        let named = count(2) + count(8) > 0;
        let ids = self.entries.iter().all(|e| e.tag.id() != Some(NO_ID) && e.perm <= 7);
        order && ids && count(1) == 1 && count(4) == 1 && count(0x20) == 1 && (!named || count(0x10) == 1)
    }

    /// Permission bits that say what this list says to owner, group class (mask, if any) and others.
    #[must_use]
    pub fn mode(&self) -> u16 {
        let perm = |wanted: Tag| self.entries.iter().find(|e| e.tag == wanted).map(|e| e.perm & 7);
        let group = perm(Tag::Mask).or(perm(Tag::GroupObj));
        perm(Tag::UserObj).unwrap_or(0) << 6 | group.unwrap_or(0) << 3 | perm(Tag::Other).unwrap_or(0)
    }

    /// True if permission bits alone say the same.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.entries.iter().all(|e| matches!(e.tag, Tag::UserObj | Tag::GroupObj | Tag::Other))
    }

    /// Makes owner, group class and others be what `chmod` asked for.
    pub fn chmod(&mut self, mode: u16) {
        let masked = self.entries.iter().any(|e| e.tag == Tag::Mask);
        for e in &mut self.entries {
            match e.tag {
                Tag::UserObj => e.perm = mode >> 6 & 7,
                Tag::GroupObj if !masked => e.perm = mode >> 3 & 7,
                Tag::Mask => e.perm = mode >> 3 & 7,
                Tag::Other => e.perm = mode & 7,
                _ => {}
            }
        }
    }

    /// Makes a directory's default list the access list of a new object created with `mode`: each side keeps only
    /// what both grant. Returns the object's permission bits.
    pub fn create(&mut self, mode: u16) -> u16 {
        let both = self.mode() & mode;
        self.chmod(both);
        both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(Tag, u16)]) -> Acl {
        Acl { entries: entries.iter().map(|(tag, perm)| Entry { tag: *tag, perm: *perm }).collect() }
    }

    fn full() -> Acl {
        let named = [(Tag::User(7), 5), (Tag::GroupObj, 4), (Tag::Group(9), 6), (Tag::Mask, 6), (Tag::Other, 1)];
        acl(&[&[(Tag::UserObj, 7), (Tag::User(3), 4)][..], &named].concat())
    }

    #[test]
    fn both_forms_round_trip() {
        for a in [full(), acl(&[(Tag::UserObj, 7), (Tag::GroupObj, 5), (Tag::Other, 0)])] {
            assert!(a.is_valid());
            assert_eq!(Acl::from_xattr(&a.to_xattr()), Some(a.clone()));
            assert_eq!(Acl::decode(&a.encode()), Ok(a.clone()));
            for cut in 0..a.encode().len() {
                assert!(Acl::decode(&a.encode()[..cut]).is_err());
            }
        }
    }

    #[test]
    fn invalid_lists_are_refused() {
        let three = [(Tag::UserObj, 7), (Tag::GroupObj, 5), (Tag::Other, 0)];
        assert!(!acl(&three[..2]).is_valid());
        assert!(!acl(&[three[0], (Tag::User(1), 7), three[1], three[2]]).is_valid(), "a name needs a mask");
        assert!(!acl(&[three[1], three[0], three[2]]).is_valid(), "order");
        assert!(!acl(&[three[0], three[0], three[1], three[2]]).is_valid(), "twice");
        assert!(!acl(&[(Tag::UserObj, 8), three[1], three[2]]).is_valid(), "bits");
        assert!(!acl(&[]).is_valid());
    }

    #[test]
    fn mode_and_list_follow_each_other() {
        let mut a = full();
        assert_eq!((a.mode(), a.is_minimal()), (0o761, false));
        a.chmod(0o640);
        assert_eq!(a.mode(), 0o640);
        assert_eq!(a.entries[3].perm, 4, "with a mask the owning group keeps its own");
        let mut d = full();
        assert_eq!(d.create(0o644), 0o640);
        assert_eq!(d.mode(), 0o640);
    }
}
