//! PAX records: `length key=value`, where values may hold any bytes.

use super::acl_text;
use super::entry::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Timestamp;
use std::collections::HashSet;
use std::rc::Rc;

/// What begins the key of an extended attribute.
const XATTR: &[u8] = b"SCHILY.xattr.";
/// The record in which GNU tar has the label of SELinux, and its attribute.
const SELINUX: (&str, &[u8]) = ("RHT.security.selinux", b"security.selinux");

/// Bytes of the records of all global headers: each entry is compared with them.
const MAX_GLOBAL: usize = 256 << 10;

/// The records of one extended header, in order.
#[derive(Default)]
pub(super) struct Pax {
    records: Vec<Record>,
    /// Records of global headers: one counts unless there is a record of its key in `records`.
    global: Rc<Vec<Record>>,
}

/// The records of the global headers so far, which are about all entries behind them.
#[derive(Default)]
pub(super) struct Global(Rc<Vec<Record>>);

impl Global {
    /// Takes the records of a further header, which replace those of the same keys. What can only be about one entry
    /// (its name, its size, its holes) is left out.
    ///
    /// # Errors
    /// Bad input: all of them are too large.
    pub(super) fn add(&mut self, header: Pax) -> Result<()> {
        let is_of_one = |key: &[u8]| [b"path".as_slice(), b"linkpath", b"size"].contains(&key);
        let mut new = header.records;
        new.retain(|(key, _)| !is_of_one(key) && !key.starts_with(b"GNU.sparse."));
        let records = Rc::make_mut(&mut self.0);
        {
            let keys: HashSet<&[u8]> = new.iter().map(|(key, _)| key.as_slice()).collect();
            records.retain(|(key, _)| !keys.contains(key.as_slice()));
        }
        records.extend(new);
        let bytes: usize = records.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > MAX_GLOBAL { Err(bad("the global headers are too large")) } else { Ok(()) }
    }
}

fn bad(why: &str) -> Error {
    Error::new(ErrorKind::BadInput, why)
}

/// A decimal number of nothing but digits.
pub(super) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A key or name and its value.
pub(super) type Record = (Vec<u8>, Vec<u8>);

/// The last value of a key among these records.
fn last_of<'r>(records: &'r [Record], key: &str) -> Option<&'r [u8]> {
    records.iter().rev().find(|(k, _)| k == key.as_bytes()).map(|(_, v)| v.as_slice())
}

/// The data of an extended header with these records.
pub(super) fn encode(records: &[Record]) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in records {
        // The length counts its own digits.
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() > len {
            len += 1;
        }
        data.extend([len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat());
    }
    data
}

/// The key of an extended attribute. Because a key ends at its first `=`, GNU tar writes one in a name as `%3D`, and
/// `%` as `%25`.
pub(super) fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = XATTR.to_vec();
    for b in name {
        match b {
            b'%' => key.extend(b"%25"),
            b'=' => key.extend(b"%3D"),
            b => key.push(*b),
        }
    }
    key
}

/// The name in a key behind its prefix: as GNU tar reads it, any other `%` is one.
fn xattr_name(mut rest: &[u8]) -> Vec<u8> {
    let mut name = Vec::new();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = [(b"%25", b'%'), (b"%3D", b'=')].into_iter().find(|(code, _)| rest.starts_with(*code));
        let (b, behind) = escaped.map_or((*first, tail), |(_, b)| (b, &rest[3..]));
        name.push(b);
        rest = behind;
    }
    name
}

impl Pax {
    pub(super) fn parse(mut bytes: &[u8]) -> Result<Pax> {
        let malformed = || bad("a PAX record is malformed");
        let mut records = Vec::new();
        while !bytes.is_empty() && bytes[0] != 0 {
            let space = bytes.iter().position(|b| *b == b' ').ok_or_else(malformed)?;
            let len = parse_decimal(&bytes[..space]).and_then(|n| usize::try_from(n).ok()).ok_or_else(malformed)?;
            let record = bytes.get(space + 1..len).and_then(|r| r.strip_suffix(b"\n")).ok_or_else(malformed)?;
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(malformed)?;
            records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
            bytes = &bytes[len..];
        }
        Ok(Pax { records, ..Pax::default() })
    }

    /// The same with what global headers say.
    pub(super) fn over(self, global: &Global) -> Pax {
        Pax { global: Rc::clone(&global.0), ..self }
    }

    /// The last value of a key counts; an empty one takes it back.
    fn get(&self, key: &str) -> Option<&[u8]> {
        last_of(&self.records, key).or_else(|| last_of(&self.global, key)).filter(|v| !v.is_empty())
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<u64>> {
        let number = |v| parse_decimal(v).ok_or_else(|| bad(&format!("the PAX record {key} is no number")));
        self.get(key).map(number).transpose()
    }

    pub(super) fn path(&self) -> Option<Vec<u8>> {
        self.get("GNU.sparse.name").or_else(|| self.get("path")).map(<[u8]>::to_vec)
    }

    pub(super) fn link(&self) -> Option<Vec<u8>> {
        self.get("linkpath").map(<[u8]>::to_vec)
    }

    pub(super) fn size(&self) -> Result<Option<u64>> {
        self.number("size")
    }

    /// The size of a sparse file with its holes.
    pub(super) fn sparse_size(&self) -> Result<Option<u64>> {
        match self.number("GNU.sparse.realsize")? {
            Some(n) => Ok(Some(n)),
            None => self.number("GNU.sparse.size"),
        }
    }

    /// The map stands at the beginning of the data.
    pub(super) fn is_sparse_1(&self) -> bool {
        self.get("GNU.sparse.major") == Some(b"1")
    }

    /// The map of the formats 0.0, with a record for each number, and 0.1, with one for all.
    pub(super) fn sparse_map(&self, most: usize) -> Result<Vec<(u64, u64)>> {
        let malformed = || bad("the map of a sparse file is malformed");
        let numbers: Option<Vec<u64>> = match self.get("GNU.sparse.map") {
            Some(map) => map.split(|b| *b == b',').map(parse_decimal).collect(),
            None => {
                let keys = [b"GNU.sparse.offset".as_slice(), b"GNU.sparse.numbytes"];
                let parts = self.records.iter().filter(|(k, _)| keys.contains(&k.as_slice()));
                parts.map(|(_, v)| parse_decimal(v)).collect()
            }
        };
        let numbers = numbers.filter(|n| n.len() % 2 == 0 && n.len() / 2 <= most).ok_or_else(malformed)?;
        Ok(numbers.chunks_exact(2).map(|c| (c[0], c[1])).collect())
    }

    /// `seconds.fraction`, possibly negative.
    pub(super) fn time(&self, key: &str) -> Result<Option<Timestamp>> {
        self.get(key).map(|v| parse_time(v).ok_or_else(|| bad(&format!("the PAX record {key} is no time")))).transpose()
    }

    /// All extended attributes of an object of this kind: those with their bytes, and ACLs and the label of SELinux,
    /// which have records of their own. The bytes win.
    ///
    /// An access ACL that says no more than the permission bits is left out, because GNU tar gives one to each object.
    pub(super) fn attributes(&self, kind: &Kind) -> Result<Vec<Record>> {
        let mut found = self.own_attributes(kind)?;
        if self.global.is_empty() {
            return Ok(found);
        }
        let own: HashSet<&[u8]> = self.records.iter().map(|(key, _)| key.as_slice()).collect();
        let rest = self.global.iter().filter(|(key, _)| !own.contains(key.as_slice())).cloned().collect();
        for (name, value) in (Pax { records: rest, ..Pax::default() }).own_attributes(kind)? {
            if found.iter().all(|(known, _)| *known != name) {
                found.push((name, value));
            }
        }
        Ok(found)
    }

    /// The attributes that the records say without those of global headers.
    fn own_attributes(&self, kind: &Kind) -> Result<Vec<Record>> {
        let own = |key: &str| last_of(&self.records, key).filter(|v| !v.is_empty());
        let mut found = self.xattrs()?;
        let acls = match kind {
            Kind::Dir => &acl_text::RECORDS[..],
            // A link has no ACL.
            Kind::Symlink(_) | Kind::HardLink(_) => &[],
            Kind::File(_) | Kind::Node(..) => &acl_text::RECORDS[..1],
        };
        for (key, name) in acls {
            let text = own(key).filter(|_| found.iter().all(|(known, _)| known != name));
            let Some(acl) = text.map(acl_text::parse).transpose()? else { continue };
            if !acl.is_minimal() || *name != acl_text::RECORDS[0].1 {
                found.push((name.to_vec(), acl.to_xattr()));
            }
        }
        let (key, name) = SELINUX;
        if let Some(label) = own(key).filter(|_| found.iter().all(|(known, _)| known != name)) {
            // The kernel stores it with the zero at its end, tar without.
            let label = label.strip_suffix(b"\0").unwrap_or(label);
            found.push((name.to_vec(), [label, b"\0"].concat()));
        }
        Ok(found)
    }

    /// Extended attributes: `SCHILY.xattr.NAME` (`=` and `%` in the name percent-encoded) with the value,
    /// `LIBARCHIVE.xattr.NAME` (name percent-encoded) with the value in base 64. The first form wins, as its bytes are
    /// exact.
    fn xattrs(&self) -> Result<Vec<Record>> {
        let mut found: Vec<Record> = Vec::new();
        let mut put = |name: Vec<u8>, value: Vec<u8>, replace: bool| match found.iter_mut().find(|(n, _)| *n == name) {
            Some(known) if replace => known.1 = value,
            Some(_) => {}
            None => found.push((name, value)),
        };
        for (key, value) in &self.records {
            if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                let malformed = || bad("a LIBARCHIVE.xattr record is malformed");
                put(percent_decoded(name).ok_or_else(malformed)?, base64(value).ok_or_else(malformed)?, false);
            } else if let Some(name) = key.strip_prefix(XATTR) {
                put(xattr_name(name), value.clone(), true);
            }
        }
        Ok(found)
    }
}

fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let secs = i64::try_from(parse_decimal(whole.as_bytes())?).ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{:0<9.9}", fraction).parse().ok()?;
    Some(match (negative, nanos) {
        (false, n) => Timestamp::new(secs, n),
        (true, 0) => Timestamp::new(-secs, 0),
        (true, n) => Timestamp::new(-secs - 1, 1_000_000_000 - n),
    })
}

fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
            out.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &tail[2..];
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    Some(out)
}

/// Base 64 (RFC 4648), with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut out) = (0_u32, 0, Vec::new());
    for b in text.iter().take_while(|b| **b != b'=') {
        let value = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xFF).expect("eight bits"));
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        encode(&[(key.as_bytes().to_vec(), value.to_vec())])
    }

    #[test]
    fn a_record_counts_the_digits_of_its_length() {
        assert_eq!(record("a", b"b"), b"6 a=b\n");
        assert_eq!(record("a", b"bcde"), b"9 a=bcde\n");
        assert_eq!(record("a", b"bcdef"), b"11 a=bcdef\n");
    }

    #[test]
    fn names_of_attributes_go_through_a_key_whatever_bytes_they_have() {
        for name in [&b"user.a=b"[..], b"user.100%", b"user.%3D", b"user.%25=%", b"user.\xff\xfe"] {
            let key = xattr_key(name);
            assert!(!key.contains(&b'='), "{key:?}");
            let pax = Pax::parse(&encode(&[(key, b"v".to_vec())])).unwrap();
            assert_eq!(pax.xattrs().unwrap(), [(name.to_vec(), b"v".to_vec())]);
        }
        let pax = Pax::parse(&record("SCHILY.xattr.user.%41%3d%", b"v")).unwrap();
        assert_eq!(pax.xattrs().unwrap(), [(b"user.%41%3d%".to_vec(), b"v".to_vec())], "GNU tar encodes no others");
    }

    #[test]
    fn values_may_hold_line_ends_and_zeros() {
        let bytes = [record("SCHILY.xattr.security.capability", b"\x01\n\0="), record("mtime", b"-1.25")].concat();
        let pax = Pax::parse(&bytes).unwrap();
        assert_eq!(pax.xattrs().unwrap(), [(b"security.capability".to_vec(), b"\x01\n\0=".to_vec())]);
        assert_eq!(pax.time("mtime").unwrap(), Some(Timestamp::new(-2, 750_000_000)));
    }

    fn over(own: &[Vec<u8>], global: &[Vec<u8>]) -> Pax {
        let mut all = Global::default();
        global.iter().for_each(|header| all.add(Pax::parse(header).unwrap()).unwrap());
        Pax::parse(&own.concat()).unwrap().over(&all)
    }

    #[test]
    fn a_record_of_an_entry_counts_before_global_ones_and_a_later_global_one_before_an_earlier() {
        let global = [record("uid", b"1"), record("gid", b"2"), record("uid", b"3"), record("path", b"all")];
        let pax = over(&[], &global);
        let numbers = |pax: &Pax| ["uid", "gid"].map(|key| pax.number(key).unwrap());
        assert_eq!((numbers(&pax), pax.path()), ([Some(3), Some(2)], None));
        let pax = over(&[record("uid", b"4"), record("gid", b"")], &global);
        assert_eq!(numbers(&pax), [Some(4), None], "an empty value takes the global one back");
    }

    #[test]
    fn an_attribute_of_an_entry_wins_over_a_global_one_in_whatever_form() {
        let global = [record("SCHILY.xattr.user.a", b"global"), record("SCHILY.xattr.user.b", b"global")];
        let pax = over(&[record("LIBARCHIVE.xattr.user.a", b"aGVsbG8")], &global);
        let expected = [(b"user.a".to_vec(), b"hello".to_vec()), (b"user.b".to_vec(), b"global".to_vec())];
        assert_eq!(pax.attributes(&Kind::Dir).unwrap(), expected);
    }

    #[test]
    fn global_headers_of_more_than_the_limit_are_refused() {
        let mut all = Global::default();
        let mut add = |n: usize| all.add(Pax::parse(&record(&format!("key{n}"), &vec![b'x'; MAX_GLOBAL / 2])).unwrap());
        assert!(add(1).is_ok() && add(1).is_ok() && add(2).is_err());
    }

    #[test]
    fn attributes_of_libarchive_are_decoded() {
        let pax = Pax::parse(&record("LIBARCHIVE.xattr.user.a%3Db", b"aGVsbG8")).unwrap();
        assert_eq!(pax.xattrs().unwrap(), [(b"user.a=b".to_vec(), b"hello".to_vec())]);
    }

    #[test]
    fn maps_of_both_old_formats_are_read() {
        let one = Pax::parse(&record("GNU.sparse.map", b"0,5,1024,7")).unwrap();
        assert_eq!(one.sparse_map(9).unwrap(), [(0, 5), (1024, 7)]);
        let parts = [("GNU.sparse.offset", "0"), ("GNU.sparse.numbytes", "5")].map(|(k, v)| record(k, v.as_bytes()));
        assert_eq!(Pax::parse(&parts.concat()).unwrap().sparse_map(9).unwrap(), [(0, 5)]);
        assert!(one.sparse_map(1).is_err());
    }

    #[test]
    fn malformed_records_are_refused() {
        for bytes in [&b"5"[..], b"99 a=b\n", b"4 =", b"x a=b\n", b"6 a=bc", b"0 \n"] {
            assert!(Pax::parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
