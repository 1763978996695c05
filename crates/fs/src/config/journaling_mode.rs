//! How a file's data is journaled, and rules that choose it by name (`data=adaptive`, after JoJ).

use std::fmt;
use std::str::FromStr;

/// How the data of one file reaches the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalingMode {
    /// Through the journal, with the metadata.
    Journal,
    /// In place, before the metadata that names it.
    Ordered,
}

impl JournalingMode {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            JournalingMode::Journal => "journal",
            JournalingMode::Ordered => "ordered",
        }
    }

    pub(crate) fn from_bytes(value: &[u8]) -> Option<Self> {
        [JournalingMode::Journal, JournalingMode::Ordered].into_iter().find(|m| m.name().as_bytes() == value)
    }
}

impl fmt::Display for JournalingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for JournalingMode {
    type Err = &'static str;
    fn from_str(s: &str) -> Result<Self, &'static str> {
        JournalingMode::from_bytes(s.as_bytes()).ok_or("journal or ordered is expected")
    }
}

/// The mode of files with names of a pattern: `*` stands for any bytes, `?` for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeRule {
    pattern: Vec<u8>,
    mode: JournalingMode,
}

impl ModeRule {
    #[must_use]
    pub fn new(pattern: &str, mode: JournalingMode) -> Self {
        ModeRule { pattern: pattern.into(), mode }
    }

    /// SQLite's names: a rollback journal lives shortly and is small; a log is appended to, and its frames are checked.
    #[must_use]
    pub fn builtin() -> Vec<Self> {
        vec![ModeRule::new("*-journal", JournalingMode::Journal), ModeRule::new("*-wal", JournalingMode::Ordered)]
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
pub(crate) fn by_rule(rules: &[ModeRule], name: &[u8]) -> Option<JournalingMode> {
    rules.iter().find(|r| name_matches(&r.pattern, name)).map(|r| r.mode)
}

/// True if a pattern of `*` and `?` is that of a whole name, in time that is at most the product of the lengths.
#[must_use]
pub fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
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
            ("*.so*", "libc.so.6", true),
            ("*.so", "libc.so.6", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "aXbYbZc", true),
        ] {
            assert_eq!(name_matches(pattern.as_bytes(), name.as_bytes()), yes, "{pattern} {name}");
        }
        // No exponential search.
        assert!(!name_matches(&b"*a".repeat(40), &[b'a'; 30]));
    }

    #[test]
    fn rules_are_read_and_the_first_that_fits_counts() {
        let rules = ModeRule::parse("*-journal=journal,*-wal=ordered,a=b=journal").unwrap();
        assert_eq!(rules[..2], ModeRule::builtin());
        assert_eq!(by_rule(&rules, b"a=b"), Some(JournalingMode::Journal));
        assert_eq!((by_rule(&rules, b"x-wal"), by_rule(&rules, b"x")), (Some(JournalingMode::Ordered), None));
        assert_eq!(ModeRule::parse("none"), Ok(Vec::new()));
        assert!(ModeRule::parse("*-wal").is_err() && ModeRule::parse("*=fast").is_err());
        assert_eq!(rules[1].to_string(), "*-wal=ordered");
    }
}
