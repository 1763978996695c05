//! PAX records: `length key=value`, where values may hold any bytes.

use super::entry::Kind;
use super::pax_xattrs::{Form, Found, Record, parse, texts};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// Bytes of the records of all global headers: each entry has what they say.
const MAX_GLOBAL: usize = 256 << 10;

/// The records of one extended header, in order.
#[derive(Default)]
pub(super) struct Pax {
    records: Vec<Record>,
    /// Records of global headers: one counts unless there is a record of its key in `records`.
    global: Rc<GlobalRecords>,
}

/// The records of the global headers so far, which are about all entries behind them.
#[derive(Default)]
pub(super) struct Global(Rc<GlobalRecords>);

#[derive(Clone, Default)]
struct GlobalRecords {
    /// By key.
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// The attributes that they have, by form and key. Parsed once; an error counts if the attribute does.
    attributes: BTreeMap<(Form, Vec<u8>), Result<Option<Record>>>,
    /// Bytes of keys and values.
    bytes: usize,
}

impl Global {
    /// Takes the records of a further header, which replace those of the same keys. What can only be about one entry
    /// (its name, its size, its holes) is left out.
    ///
    /// # Errors
    /// Bad input: all of them are too large.
    pub(super) fn add(&mut self, header: Pax) -> Result<()> {
        let is_of_one = |key: &[u8]| [b"path".as_slice(), b"linkpath", b"size"].contains(&key);
        let all = Rc::make_mut(&mut self.0);
        for (key, value) in header.records {
            if is_of_one(&key) || key.starts_with(b"GNU.sparse.") {
                continue;
            }
            if let Some(form) = Form::of(&key) {
                let parsed = parse(form, &key, &value);
                all.attributes.insert((form, key.clone()), parsed);
            }
            let key_bytes = key.len();
            all.bytes += key_bytes + value.len();
            if let Some(old) = all.values.insert(key, value) {
                all.bytes -= key_bytes + old.len();
            }
            if all.bytes > MAX_GLOBAL {
                return Err(bad("the global headers are too large"));
            }
        }
        Ok(())
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
        let of_all = || self.global.values.get(key.as_bytes()).map(Vec::as_slice);
        last_of(&self.records, key).or_else(of_all).filter(|v| !v.is_empty())
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
    /// which have records of their own. The bytes win, and what the entry's own records say.
    ///
    /// # Errors
    /// Bad input: a record is malformed; the names are longer than Linux has them.
    pub(super) fn attributes(&self, kind: &Kind) -> Result<Vec<Record>> {
        let mut found = Found::default();
        for (key, value) in &self.records {
            if let Some(form @ (Form::Bytes | Form::Base64)) = Form::of(key)
                && let Some(attribute) = parse(form, key, value)?
            {
                found.put(attribute, form == Form::Bytes)?;
            }
        }
        for (key, name) in texts(kind) {
            if !found.has(name)
                && let Some(text) = last_of(&self.records, key)
                && let Some(attribute) = parse(Form::Text, key.as_bytes(), text)?
            {
                found.put(attribute, false)?;
            }
        }
        if !self.global.attributes.is_empty() {
            self.add_global(kind, &mut found)?;
        }
        Ok(found.into_list())
    }

    /// Adds the attributes that only global headers have.
    fn add_global(&self, kind: &Kind, found: &mut Found) -> Result<()> {
        let own: HashSet<&[u8]> = self.records.iter().map(|(key, _)| key.as_slice()).collect();
        for ((form, key), parsed) in &self.global.attributes {
            let is_of_kind = || texts(kind).iter().any(|(text, name)| text.as_bytes() == key && !found.has(name));
            if own.contains(key.as_slice()) || *form == Form::Text && !is_of_kind() {
                continue;
            }
            match parsed {
                Ok(Some((name, value))) if !found.has(name) => found.put((name.clone(), value.clone()), false)?,
                Ok(_) => {}
                Err(e) => return Err(e.clone()),
            }
        }
        Ok(())
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
    fn values_may_hold_line_ends_and_zeros() {
        let bytes = [record("SCHILY.xattr.security.capability", b"\x01\n\0="), record("mtime", b"-1.25")].concat();
        let pax = Pax::parse(&bytes).unwrap();
        let capability = (b"security.capability".to_vec(), b"\x01\n\0=".to_vec());
        assert_eq!(pax.attributes(&Kind::File(0)).unwrap(), [capability]);
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
    fn a_label_is_an_attribute_unless_it_is_empty_or_there_are_bytes() {
        let label = &[record("RHT.security.selinux", b"label")][..];
        let attributes = |own: &[Vec<u8>], global: &[Vec<u8>]| over(own, global).attributes(&Kind::File(0)).unwrap();
        let expected = [(b"security.selinux".to_vec(), b"label\0".to_vec())];
        assert_eq!(attributes(label, &[]), expected);
        assert_eq!(attributes(&[], label), expected);
        assert!(attributes(&[record("RHT.security.selinux", b"")], label).is_empty());
        let bytes = [record("SCHILY.xattr.security.selinux", b"bytes"), label.concat()];
        assert_eq!(attributes(&[], &bytes), [(b"security.selinux".to_vec(), b"bytes".to_vec())]);
    }

    #[test]
    fn a_malformed_global_attribute_counts_only_for_entries_that_have_none_of_its_key() {
        let global = [record("LIBARCHIVE.xattr.user.a", b"!"), record("SCHILY.acl.default", b"nonsense")];
        let own = record("LIBARCHIVE.xattr.user.a", b"aGVsbG8");
        assert!(over(&[], &global).attributes(&Kind::File(0)).is_err());
        let of_file = over(std::slice::from_ref(&own), &global).attributes(&Kind::File(0)).unwrap();
        assert_eq!(of_file, [(b"user.a".to_vec(), b"hello".to_vec())]);
        assert!(over(&[own], &global).attributes(&Kind::Dir).is_err(), "only directories have default ACLs");
    }

    /// In a quadratic time each of these takes minutes.
    const SOON: std::time::Duration = std::time::Duration::from_secs(10);

    #[test]
    fn attributes_without_bound_are_refused_in_time() {
        let start = std::time::Instant::now();
        let many: Vec<u8> = (0..150_000).flat_map(|n| record(&format!("SCHILY.xattr.{n}"), b"")).collect();
        let error = Pax::parse(&many).unwrap().attributes(&Kind::File(0)).unwrap_err();
        assert_eq!(error.to_string(), "the names of its attributes have more than 65536 bytes");
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }

    #[test]
    fn many_global_attributes_are_parsed_once_for_many_entries() {
        let start = std::time::Instant::now();
        let header: Vec<u8> = (0..6_000).flat_map(|n| record(&format!("LIBARCHIVE.xattr.{n}"), b"aGVsbG8")).collect();
        let mut global = Global::default();
        global.add(Pax::parse(&header).unwrap()).unwrap();
        for _ in 0..1_000 {
            let pax = Pax::parse(&record("uid", b"7")).unwrap().over(&global);
            assert_eq!((pax.attributes(&Kind::Dir).unwrap().len(), pax.number("uid").unwrap()), (6_000, Some(7)));
        }
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
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
