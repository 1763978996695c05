//! What is said about a file's data: journaled, or in place before its metadata (`data=adaptive`, after JoJ).
//!
//! Precedence: the explicit setting, then a rule, then what its directory handed down, then the default.
//!
//! - The explicit setting is the flag `j` (`chattr +j`: journal), or the attribute `user.quire.journal`, which can say *ordered*, too. Both
//!   are in the image. Setting one brings the other in line; without flag and attribute nothing is said.
//! - A rule goes by a name: the last one by which the file was made, moved, linked or looked up.
//! - A directory hands its setting down to what is made in it, unless a rule speaks for the name. What was handed down is the file's own.
//!
//! A mode may change at any time: pages are written back before a write is journaled, and a block with a live record is never written in
//! place (F9), whatever the mode is now.

use crate::error::{Error, Result};
use crate::namei::live;
use crate::op::Op;
use crate::options::Route;
use crate::volume::Volume;
use crate::xattr::{self, XattrFlags};
use quire_layout::Ino;
use quire_layout::inode::{Inode, flags};
use quire_layout::xattr::{Namespace, Xattr};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// The attribute's name after `user.`.
pub(crate) const ATTRIBUTE: &[u8] = b"quire.journal";
/// Names with a rule that are remembered before those that nobody refers to are dropped.
const PRUNE_AT: usize = 4096;

/// What becomes of a file's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileMode {
    /// Through the journal, with the metadata.
    Journal,
    /// In place, before the metadata that names it.
    Ordered,
}

impl FileMode {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileMode::Journal => "journal",
            FileMode::Ordered => "ordered",
        }
    }

    fn from_bytes(value: &[u8]) -> Option<Self> {
        [FileMode::Journal, FileMode::Ordered].into_iter().find(|m| m.name().as_bytes() == value)
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FileMode {
    type Err = &'static str;
    fn from_str(s: &str) -> Result<Self, &'static str> {
        FileMode::from_bytes(s.as_bytes()).ok_or("journal or ordered is expected")
    }
}

/// The mode of files with names of a pattern: `*` stands for any bytes, `?` for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeRule {
    pattern: Vec<u8>,
    mode: FileMode,
}

impl ModeRule {
    #[must_use]
    pub fn new(pattern: &str, mode: FileMode) -> Self {
        ModeRule { pattern: pattern.into(), mode }
    }

    /// SQLite's names: a rollback journal lives shortly and is small; a log is appended to, and its frames are checked.
    #[must_use]
    pub fn builtin() -> Vec<Self> {
        vec![ModeRule::new("*-journal", FileMode::Journal), ModeRule::new("*-wal", FileMode::Ordered)]
    }

    /// Reads rules as a mount option has them: `*-journal=journal,*-wal=ordered`; `none` is no rule at all.
    ///
    /// # Errors
    /// Why they cannot be understood.
    pub fn parse(list: &str) -> Result<Vec<Self>, &'static str> {
        if list == "none" {
            return Ok(Vec::new());
        }
        let rules = list.split(',').map(|rule| {
            let (pattern, mode) = rule.rsplit_once('=').ok_or("PATTERN=journal or PATTERN=ordered is expected")?;
            Ok(ModeRule::new(pattern, mode.parse()?))
        });
        rules.collect()
    }
}

impl fmt::Display for ModeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", String::from_utf8_lossy(&self.pattern), self.mode)
    }
}

/// What the first rule for a name says.
pub(crate) fn by_rule(rules: &[ModeRule], name: &[u8]) -> Option<FileMode> {
    rules.iter().find(|r| matches(&r.pattern, name)).map(|r| r.mode)
}

/// In time that is at most the product of the lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // The last star, and what of the name it stands for.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, n) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// What rules say of the names by which inodes were last reached. An inode that is not here has no rule, or is known by no name yet.
#[derive(Default)]
pub(crate) struct RuledNames {
    modes: HashMap<Ino, FileMode>,
    prune_at: usize,
}

impl RuledNames {
    pub(crate) fn get(&self, ino: Ino) -> Option<FileMode> {
        self.modes.get(&ino).copied()
    }

    /// Notes what a rule says of an inode's name; forgets unused inodes if there are too many.
    pub(crate) fn note(&mut self, ino: Ino, mode: Option<FileMode>, in_use: impl Fn(Ino) -> bool) {
        match mode {
            Some(mode) => {
                self.modes.insert(ino, mode);
                if self.modes.len() > self.prune_at.max(PRUNE_AT) {
                    self.modes.retain(|other, _| *other == ino || in_use(*other));
                    self.prune_at = 2 * self.modes.len();
                }
            }
            None => {
                self.modes.remove(&ino);
            }
        }
    }
}

/// The setting that an inode has itself.
///
/// # Errors
/// Corrupt; miss.
fn explicit(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<Option<FileMode>> {
    if inode.has(flags::JOURNAL_DATA) {
        return Ok(Some(FileMode::Journal));
    }
    let value = xattr::get(op, ino, inode, Namespace::USER, ATTRIBUTE)?;
    Ok(value.and_then(|v| FileMode::from_bytes(&v)))
}

/// A file's mode with `data=adaptive`.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn of(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<FileMode> {
    if let Some(mode) = explicit(op, ino, inode)? {
        return Ok(mode);
    }
    Ok(op.state().ruled_names.get(ino).unwrap_or(op.vol.options.adaptive_default))
}

/// An inode was made in a directory: a setting of the directory's becomes its own, unless a rule speaks for the name. (The
/// flag it has already.) True if the inode has changed.
///
/// # Errors
/// Corrupt; no space; miss.
pub(crate) fn hand_down(op: &mut Op<'_>, dir: (Ino, &Inode), child: (Ino, &mut Inode), name: &[u8]) -> Result<bool> {
    let (ino, inode) = child;
    let vol = op.vol;
    if vol.options.route != Route::Adaptive || !(inode.is_file() || inode.is_dir()) {
        return Ok(false);
    }
    if inode.is_file() && by_rule(&vol.options.journal_rules, name).is_some() {
        let had = inode.has(flags::JOURNAL_DATA);
        inode.set_flags(inode.flags() & !flags::JOURNAL_DATA);
        return Ok(had);
    }
    match explicit(op, dir.0, dir.1)? {
        Some(FileMode::Ordered) => {
            let attribute = Xattr::new(Namespace::USER, ATTRIBUTE, FileMode::Ordered.name().as_bytes());
            xattr::set(op, ino, inode, &attribute, false, XattrFlags::Any)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// The attribute is about to get this value (`None`: to go): the flag follows.
///
/// # Errors
/// Invalid: not a mode.
pub(crate) fn attribute_changes(inode: &mut Inode, value: Option<&[u8]>) -> Result<()> {
    let mode = match value {
        None => None,
        Some(v) => Some(FileMode::from_bytes(v).ok_or(Error::Invalid("user.quire.journal is journal or ordered"))?),
    };
    if mode == Some(FileMode::Journal) && inode.has(flags::DAX) {
        return Err(Error::NotSupported("direct access to data that is journaled"));
    }
    let others = inode.flags() & !flags::JOURNAL_DATA;
    inode.set_flags(if mode == Some(FileMode::Journal) { others | flags::JOURNAL_DATA } else { others });
    Ok(())
}

/// The flag has changed: the attribute no longer holds.
///
/// # Errors
/// Corrupt; no space (its block was shared); miss.
pub(crate) fn flag_changed(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    let attribute = Xattr::new(Namespace::USER, ATTRIBUTE, b"");
    match xattr::set(op, ino, inode, &attribute, true, XattrFlags::Any) {
        Err(Error::NoData) => Ok(()),
        done => done,
    }
}

impl Volume {
    /// The setting of a file or directory, and the mode that its data has now: by that setting, a rule, or the mount's route and default.
    ///
    /// # Errors
    /// Stale; corrupt, I/O.
    pub fn journal_mode(&self, ino: Ino) -> Result<(Option<FileMode>, FileMode)> {
        self.run(|op| {
            let inode = live(op, ino)?;
            let set = explicit(op, ino, &inode)?;
            let journaled = crate::file::is_journaled_file(op, ino, &inode)?;
            Ok((set, if journaled { FileMode::Journal } else { FileMode::Ordered }))
        })
    }

    /// Sets what is to become of a file's data, or of the data of files made in a directory; `None`: nothing is said.
    ///
    /// # Errors
    /// As [`Volume::setxattr`].
    pub fn set_journal_mode(&self, ino: Ino, mode: Option<FileMode>) -> Result<()> {
        let name = [b"user.", ATTRIBUTE].concat();
        match mode {
            Some(mode) => self.setxattr(ino, &name, mode.name().as_bytes(), XattrFlags::Any),
            None => match self.removexattr(ino, &name) {
                // The flag alone said it.
                Err(Error::NoData) => self.set_flags(ino, self.get_flags(ino)? & !flags::JOURNAL_DATA),
                done => done,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_a_shell_would() {
        for (pattern, name, yes) in [
            ("*-wal", "db-wal", true),
            ("*-wal", "-wal", true),
            ("*-wal", "db-wal2", false),
            ("a*b*c", "axxbxxbxc", true),
            ("a*b*c", "axxbxx", false),
            ("?.db", "x.db", true),
            ("?.db", "xx.db", false),
            ("", "", true),
            ("*", "", true),
            ("", "a", false),
            ("**", "abc", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), yes, "{pattern} {name}");
        }
        // No exponential search.
        assert!(!matches(&b"*a".repeat(40), &[b'a'; 30]));
    }

    #[test]
    fn rules_are_read_and_the_first_that_fits_counts() {
        let rules = ModeRule::parse("*-journal=journal,*-wal=ordered,a=b=journal").unwrap();
        assert_eq!(rules[..2], ModeRule::builtin());
        assert_eq!(by_rule(&rules, b"a=b"), Some(FileMode::Journal));
        assert_eq!((by_rule(&rules, b"x-wal"), by_rule(&rules, b"x")), (Some(FileMode::Ordered), None));
        assert_eq!(ModeRule::parse("none"), Ok(Vec::new()));
        assert!(ModeRule::parse("*-wal").is_err() && ModeRule::parse("*=fast").is_err());
        assert_eq!(rules[1].to_string(), "*-wal=ordered");
    }

    #[test]
    fn remembered_names_are_bounded() {
        let mut names = RuledNames::default();
        for n in 0..50_000 {
            names.note(Ino(n), Some(FileMode::Journal), |ino| ino.0 < 100);
        }
        assert!(names.modes.len() < 2 * PRUNE_AT && names.get(Ino(5)).is_some());
        names.note(Ino(5), None, |_| true);
        assert_eq!(names.get(Ino(5)), None);
    }
}
