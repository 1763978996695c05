//! Extended attributes in PAX records: `SCHILY.xattr.NAME` (`=` and `%` in the name percent-encoded) with the value,
//! `LIBARCHIVE.xattr.NAME` (name percent-encoded) with the value in base 64, and ACLs and the label of SELinux, which
//! have records of their own.

use super::acl_text;
use super::entry::Kind;
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;

/// What begins the key of an attribute's bytes.
const SCHILY: &[u8] = b"SCHILY.xattr.";
/// What begins the key of those in base 64.
const LIBARCHIVE: &[u8] = b"LIBARCHIVE.xattr.";
/// The key of a text, and the attribute that it stands for.
type Text = (&'static str, &'static [u8]);
const ACCESS: Text = acl_text::RECORDS[0];
const DEFAULT: Text = acl_text::RECORDS[1];
/// As GNU tar has it.
const SELINUX: Text = ("RHT.security.selinux", b"security.selinux");

/// Bytes of the names of all attributes of an object, each with a zero behind it: Linux's `XATTR_LIST_MAX`.
const MAX_NAME_BYTES: usize = 64 << 10;

/// A key or name and its value.
pub(super) type Record = (Vec<u8>, Vec<u8>);

fn bad(why: &str) -> Error {
    Error::new(ErrorKind::BadInput, why)
}

/// How a record has an attribute. Of two for the same attribute an earlier form wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Form {
    Bytes,
    Base64,
    Text,
}

impl Form {
    /// The form that records of this key have; `None`: they have no attribute.
    pub(super) fn of(key: &[u8]) -> Option<Form> {
        if key.starts_with(SCHILY) {
            Some(Form::Bytes)
        } else if key.starts_with(LIBARCHIVE) {
            Some(Form::Base64)
        } else {
            [ACCESS, DEFAULT, SELINUX].iter().any(|(text, _)| text.as_bytes() == key).then_some(Form::Text)
        }
    }
}

/// The texts that objects of a kind may have. A link has no ACL.
pub(super) fn texts(kind: &Kind) -> &'static [Text] {
    const OF_DIRS: &[Text] = &[ACCESS, DEFAULT, SELINUX];
    const OF_LINKS: &[Text] = &[SELINUX];
    const OF_OTHERS: &[Text] = &[ACCESS, SELINUX];
    match kind {
        Kind::Dir => OF_DIRS,
        Kind::Symlink(_) | Kind::HardLink(_) => OF_LINKS,
        Kind::File(_) | Kind::Node(..) => OF_OTHERS,
    }
}

/// The attribute of a record: name and value. `None`: an access ACL that says no more than the permission bits, which
/// GNU tar gives to each object, or a text that takes an earlier one back.
///
/// # Errors
/// Bad input: it is malformed.
pub(super) fn parse(form: Form, key: &[u8], value: &[u8]) -> Result<Option<Record>> {
    match form {
        Form::Bytes => Ok(Some((xattr_name(&key[SCHILY.len()..]), value.to_vec()))),
        Form::Base64 => {
            let decoded = || Some((percent_decoded(&key[LIBARCHIVE.len()..])?, base64(value)?));
            decoded().map(Some).ok_or_else(|| bad("a LIBARCHIVE.xattr record is malformed"))
        }
        Form::Text if value.is_empty() => Ok(None),
        Form::Text if key == SELINUX.0.as_bytes() => {
            // The kernel stores it with the zero at its end, tar without.
            let label = value.strip_suffix(b"\0").unwrap_or(value);
            Ok(Some((SELINUX.1.to_vec(), [label, b"\0"].concat())))
        }
        Form::Text => {
            let acl = acl_text::parse(value)?;
            let is_access = key == ACCESS.0.as_bytes();
            let name = if is_access { ACCESS.1 } else { DEFAULT.1 };
            Ok((!is_access || !acl.is_minimal()).then(|| (name.to_vec(), acl.to_xattr())))
        }
    }
}

/// Attributes by name, in the order in which they came.
#[derive(Default)]
pub(super) struct Found {
    list: Vec<Record>,
    /// Where each name is in the list.
    places: HashMap<Vec<u8>, usize>,
    name_bytes: usize,
}

impl Found {
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.places.contains_key(name)
    }

    /// Adds an attribute. Of one that is there the value becomes the new one only with `replace`.
    ///
    /// # Errors
    /// Bad input: the names are longer than Linux has them.
    pub(super) fn put(&mut self, (name, value): Record, replace: bool) -> Result<()> {
        match self.places.get(&name) {
            Some(at) if replace => self.list[*at].1 = value,
            Some(_) => {}
            None => {
                self.name_bytes += name.len() + 1;
                if self.name_bytes > MAX_NAME_BYTES {
                    return Err(bad(&format!("the names of its attributes have more than {MAX_NAME_BYTES} bytes")));
                }
                self.places.insert(name.clone(), self.list.len());
                self.list.push((name, value));
            }
        }
        Ok(())
    }

    pub(super) fn into_list(self) -> Vec<Record> {
        self.list
    }
}

/// The key of an extended attribute. Because a key ends at its first `=`, GNU tar writes one in a name as `%3D`, and
/// `%` as `%25`.
pub(super) fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = SCHILY.to_vec();
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

    fn parsed(key: &[u8], value: &[u8]) -> Record {
        parse(Form::of(key).unwrap(), key, value).unwrap().unwrap()
    }

    #[test]
    fn names_of_attributes_go_through_a_key_whatever_bytes_they_have() {
        for name in [&b"user.a=b"[..], b"user.100%", b"user.%3D", b"user.%25=%", b"user.\xff\xfe"] {
            let key = xattr_key(name);
            assert!(!key.contains(&b'='), "{key:?}");
            assert_eq!(parsed(&key, b"v"), (name.to_vec(), b"v".to_vec()));
        }
        let (name, _) = parsed(b"SCHILY.xattr.user.%41%3d%", b"v");
        assert_eq!(name, b"user.%41%3d%", "GNU tar encodes no others");
    }

    #[test]
    fn attributes_of_libarchive_are_decoded() {
        let key = b"LIBARCHIVE.xattr.user.a%3Db";
        assert_eq!(parsed(key, b"aGVsbG8"), (b"user.a=b".to_vec(), b"hello".to_vec()));
        assert!(parse(Form::Base64, key, b"a!").is_err() && parse(Form::Base64, b"LIBARCHIVE.xattr.%4", b"").is_err());
    }

    #[test]
    fn names_of_as_many_bytes_as_linux_has_are_taken_and_one_more_is_refused() {
        let mut found = Found::default();
        let each = MAX_NAME_BYTES / 16;
        for n in 0..16 {
            let name = format!("{n:02}{}", "x".repeat(each - 3));
            found.put((name.clone().into_bytes(), Vec::new()), false).unwrap();
            found.put((name.into_bytes(), b"again".to_vec()), true).unwrap();
        }
        let error = found.put((Vec::new(), Vec::new()), false).unwrap_err();
        assert_eq!(error.to_string(), "the names of its attributes have more than 65536 bytes");
        assert!(found.into_list().iter().all(|(_, value)| value == b"again"));
    }
}
