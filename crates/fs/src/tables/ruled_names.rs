//! Which rule of `data=adaptive` applies to an inode, by the name through which it was last reached.

use crate::config::JournalingMode;
use quire_layout::Ino;
use std::collections::HashMap;

/// Inodes that are remembered before those without references are dropped.
const PRUNE_AT: usize = 4096;

/// What rules say of the names by which inodes were last reached. An inode that is not here has no rule, or is known by
/// no name yet.
#[derive(Default)]
pub(crate) struct RuledNames {
    modes: HashMap<Ino, JournalingMode>,
    prune_at: usize,
}

impl RuledNames {
    pub(crate) fn get(&self, ino: Ino) -> Option<JournalingMode> {
        self.modes.get(&ino).copied()
    }

    /// Notes what a rule says of an inode's name; forgets unused inodes if there are too many.
    pub(crate) fn note(&mut self, ino: Ino, mode: Option<JournalingMode>, in_use: impl Fn(Ino) -> bool) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_names_are_bounded() {
        let mut names = RuledNames::default();
        for n in 0..50_000 {
            names.note(Ino(n), Some(JournalingMode::Journal), |ino| ino.0 < 100);
        }
        assert!(names.modes.len() < 2 * PRUNE_AT && names.get(Ino(5)).is_some());
        names.note(Ino(5), None, |_| true);
        assert_eq!(names.get(Ino(5)), None);
    }
}
