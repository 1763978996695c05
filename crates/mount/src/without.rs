//! Heuristics that a mount does without (`-o without=`), to see what each brings.

/// Heuristics that are off; all are on by default. None changes what a mount promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without {
    /// A reader of /dev/fuse polls for the next request before it sleeps.
    pub polling: bool,
    /// While commits are frequent, the kernel may keep few dirty pages of the mount (`tune=host`).
    pub dirty_limit: bool,
    /// Those of the engine.
    pub engine: quire_fs::Without,
}

/// Where a heuristic stands.
type Place = fn(&mut Without) -> &mut bool;

/// The names of all heuristics, as `without=` takes them, and where each stands.
const NAMES: [(&str, Place); 7] = [
    ("polling", |w| &mut w.polling),
    ("dirty-limit", |w| &mut w.dirty_limit),
    ("pieces", |w| &mut w.engine.pieces),
    ("commit-first", |w| &mut w.engine.commit_first),
    ("streams-in-pages", |w| &mut w.engine.streams_in_pages),
    ("small-files", |w| &mut w.engine.small_files),
    ("gathering", |w| &mut w.engine.gathering),
];

impl Without {
    /// Reads names separated by colons.
    ///
    /// # Errors
    /// The names that there are.
    pub(crate) fn parse(names: &str) -> Result<Self, String> {
        let mut without = Without::default();
        for name in names.split(':') {
            match NAMES.iter().find(|(known, _)| *known == name) {
                Some((_, place)) => *place(&mut without) = true,
                None => return Err(format!("{} are expected, separated by colons", NAMES.map(|(n, _)| n).join(", "))),
            }
        }
        Ok(without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_turns_off_one_heuristic_of_its_own() {
        let all = NAMES.map(|(name, _)| Without::parse(name).unwrap());
        for (n, one) in all.iter().enumerate() {
            assert!(*one != Without::default() && all.iter().skip(n + 1).all(|other| other != one), "{}", NAMES[n].0);
        }
        let two = Without::parse("polling:pieces").unwrap();
        assert!(two.polling && two.engine.pieces && !two.dirty_limit);
        assert!(Without::parse("polling:").unwrap_err().starts_with("polling, dirty-limit, "));
    }
}
