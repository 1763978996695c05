//! ACLs as text, the form of the PAX records `SCHILY.acl.access` and `SCHILY.acl.default`:
//! `user::rwx,user:1000:r-x,group::r-x,mask::rwx,other::---`.
//!
//! *Guarantees*: a name becomes a number only where the text has the number. The host's users are not asked, so that
//! the same archive gives the same image on any machine.
//!
//! Source: acl(5), "ACL TEXT FORMS"; star(4) for the number behind a name (`user:NAME:rwx:UID`).

use crate::error::{Error, ErrorKind, Result};
use quire_layout::acl::{Acl, Entry, Tag};

/// The records of PAX, and the attributes that they stand for. The access list is the first.
pub(super) const RECORDS: [(&str, &[u8]); 2] =
    [("SCHILY.acl.access", b"system.posix_acl_access"), ("SCHILY.acl.default", b"system.posix_acl_default")];

/// How an archive keeps the numbers of named users and groups.
const HINT: &str = "tar --xattrs --xattrs-include='system.posix_acl_*' keeps numbers";

fn bad(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadInput, why)
}

/// A list from its text: entries between commas or line ends, in any order; `#` begins a comment.
///
/// # Errors
/// Bad input: an entry is malformed, or has a name without a number; the list breaks the rules.
pub(super) fn parse(text: &[u8]) -> Result<Acl> {
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.trim_ascii_start().starts_with(b"#"));
    let parts = lines.flat_map(|line| line.split(|b| *b == b','));
    let parts = parts.map(|part| part.split(|b| *b == b'#').next().unwrap_or(part).trim_ascii());
    let mut entries = parts.filter(|part| !part.is_empty()).map(entry).collect::<Result<Vec<Entry>>>()?;
    entries.sort_by_key(|e| order(e.tag));
    let is_twice = entries.windows(2).any(|two| two[0].tag == two[1].tag);
    let acl = Acl { entries };
    if is_twice || !acl.is_valid() {
        let text = String::from_utf8_lossy(text.trim_ascii()).replace('\n', ",");
        return Err(bad(format!("{text} is no ACL: entries are missing, or there twice")));
    }
    Ok(acl)
}

/// The text of a list, with numbers.
pub(super) fn text(acl: &Acl) -> String {
    let entry = |e: &Entry| {
        let who = match e.tag {
            Tag::UserObj => "user:".to_owned(),
            Tag::User(id) => format!("user:{id}"),
            Tag::GroupObj => "group:".to_owned(),
            Tag::Group(id) => format!("group:{id}"),
            Tag::Mask => "mask:".to_owned(),
            Tag::Other => "other:".to_owned(),
        };
        let letter = |bit, letter| if e.perm & bit != 0 { letter } else { '-' };
        format!("{who}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x'))
    };
    acl.entries.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// The place of an entry in a list.
fn order(tag: Tag) -> (u8, u32) {
    match tag {
        Tag::UserObj => (0, 0),
        Tag::User(id) => (1, id),
        Tag::GroupObj => (2, 0),
        Tag::Group(id) => (3, id),
        Tag::Mask => (4, 0),
        Tag::Other => (5, 0),
    }
}

fn entry(text: &[u8]) -> Result<Entry> {
    let shown = String::from_utf8_lossy(text);
    let malformed = || bad(format!("the ACL entry {shown} is malformed"));
    let fields: Vec<&[u8]> = text.split(|b| *b == b':').map(<[u8]>::trim_ascii).collect();
    let (class, name, perm, number) = match *fields.as_slice() {
        [class @ (b"mask" | b"m" | b"other" | b"o"), perm] => (class, &b""[..], perm, None),
        [class, name, perm] => (class, name, perm, None),
        [class, name, perm, number] if !name.is_empty() => (class, name, perm, Some(number)),
        _ => return Err(malformed()),
    };
    let id = || {
        let of_no_one = || bad(format!("the ACL entry {shown} has a name and no number; {HINT}"));
        let id = match number {
            Some(number) => decimal(number).ok_or_else(malformed)?,
            None => decimal(name).ok_or_else(of_no_one)?,
        };
        if id == u32::MAX { Err(malformed()) } else { Ok(id) }
    };
    let tag = match (class, name.is_empty()) {
        (b"user" | b"u", true) => Tag::UserObj,
        (b"user" | b"u", false) => Tag::User(id()?),
        (b"group" | b"g", true) => Tag::GroupObj,
        (b"group" | b"g", false) => Tag::Group(id()?),
        (b"mask" | b"m", true) => Tag::Mask,
        (b"other" | b"o", true) => Tag::Other,
        _ => return Err(malformed()),
    };
    Ok(Entry { tag, perm: permissions(perm).ok_or_else(malformed)? })
}

fn decimal(digits: &[u8]) -> Option<u32> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// `rwx` with `-` for what is not granted.
fn permissions(letters: &[u8]) -> Option<u16> {
    let bit = |letter: &u8| match letter {
        b'r' => Some(4),
        b'w' => Some(2),
        b'x' => Some(1),
        b'-' => Some(0),
        _ => None,
    };
    let fits = (1..=3).contains(&letters.len());
    letters.iter().filter(|_| fits).try_fold(0, |bits, letter| Some(bits | bit(letter)?)).filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "user::rwx,user:7:rw-,user:1000:r-x,group::r-x,group:9:---,mask::rwx,other::--x";

    #[test]
    fn forms_of_all_programs_are_one_list() {
        let forms = [
            // GNU tar, libacl.
            "user::rwx\nuser:7:rw-\nuser:1000:r-x\ngroup::r-x\ngroup:9:---\nmask::rwx\nother::--x\n",
            // star, libarchive: the number stands behind the name.
            "user::rwx,user:joe:rw-:7,user:ann:r-x:1000,group::r-x,group:adm:---:9,mask::rwx,other::--x",
            // Short forms, in any order, with comments.
            "# file: f\no::x, m:rwx ,u:1000:rx,u:7:rw\t#effective:rw-\ng:9:-\n  # a, b\ng::rx,u::rwx",
        ];
        for form in [&[PLAIN][..], &forms].concat() {
            assert_eq!(text(&parse(form.as_bytes()).unwrap()), PLAIN, "{form:?}");
        }
        assert_eq!(text(&parse(b"user::rw-,group::r--,other:---").unwrap()), "user::rw-,group::r--,other::---");
    }

    #[test]
    fn names_without_numbers_are_refused_by_name() {
        for name in ["user:joe:rwx", "group:adm:r--", "u:joe:rwx", "user:-1:rwx", "user:+7:rwx", "user:7a:rwx"] {
            let e = parse(format!("user::rwx,{name},group::r--,mask::rwx,other::---").as_bytes()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::BadInput);
            assert!(e.to_string().contains(&format!("{name} has a name and no number")), "{e}");
        }
    }

    #[test]
    fn malformed_entries_are_refused() {
        for entry in [
            "user:7",
            "user:7:",
            "user:7:rwz",
            "user:7:rwxr",
            "user:joe:rwx:x",
            "user:joe:rwx:",
            "user::rwx:7",
            "user:7:rwx:7:7",
            "mask:7:rwx",
            "what::rwx",
            "rwx",
            "user:4294967295:rwx",
            "user:joe:rwx:4294967296",
        ] {
            let e = parse(format!("user::rwx,{entry},group::r--,mask::rwx,other::---").as_bytes()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::BadInput);
            assert!(e.to_string().contains(entry), "{e}");
        }
    }

    #[test]
    fn lists_that_break_the_rules_are_refused() {
        for list in [
            "",
            "user::rwx,group::r--",
            "user::rwx,user:7:rwx,group::r--,other::---",
            "user::rwx,user::rwx,group::r--,other::---",
            "user::rwx,user:7:rwx,user:7:r--,group::r--,mask::rwx,other::---",
        ] {
            assert_eq!(parse(list.as_bytes()).unwrap_err().kind(), ErrorKind::BadInput, "{list}");
        }
    }
}
