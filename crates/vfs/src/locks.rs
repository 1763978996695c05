//! The locks of one database file among the connections of this process: <https://sqlite.org/lockingv3.html>.
//!
//! ```text
//! NONE ──> SHARED ──> RESERVED ──> PENDING ──> EXCLUSIVE
//!          many       one, beside readers      one, alone
//!                                  one, readers leave, none comes
//! ```
//! *Guarantees* (docs/invariants.md, S1): at most one handle is above SHARED, and while one is EXCLUSIVE there is no
//! other. Other processes are kept out by the lock of the image.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A handle's lock. The values are SQLite's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Level {
    #[default]
    None = 0,
    Shared = 1,
    Reserved = 2,
    Pending = 3,
    Exclusive = 4,
}

impl Level {
    /// By SQLite's number.
    pub(crate) fn from_number(n: i32) -> Option<Level> {
        [Level::None, Level::Shared, Level::Reserved, Level::Pending, Level::Exclusive]
            .into_iter()
            .find(|l| *l as i32 == n)
    }
}

/// Another handle's lock is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Busy;

/// The locks of all handles of a file.
#[derive(Default)]
pub(crate) struct FileLocks(Mutex<Held>);

#[derive(Default)]
struct Held {
    /// Handles at SHARED or above.
    readers: usize,
    /// The level of the one handle above SHARED.
    writer: Option<Level>,
}

impl FileLocks {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises a handle's lock from `level` to `wanted`. When it fails on the way to EXCLUSIVE, the handle is left
    /// PENDING, so that readers leave and none comes.
    ///
    /// # Errors
    /// Busy.
    pub(crate) fn raise(&self, level: &mut Level, wanted: Level) -> Result<(), Busy> {
        if *level >= wanted {
            return Ok(());
        }
        let mut held = self.held();
        let others_write = *level <= Level::Shared && held.writer.is_some();
        match wanted {
            Level::None | Level::Pending => return Ok(()),
            Level::Shared => {
                if held.writer >= Some(Level::Pending) {
                    return Err(Busy);
                }
                held.readers += 1;
            }
            Level::Reserved => {
                assert!(*level == Level::Shared, "SQLite reserves only what it has shared");
                if others_write {
                    return Err(Busy);
                }
                held.writer = Some(Level::Reserved);
            }
            Level::Exclusive => {
                assert!(*level >= Level::Shared, "SQLite goes through SHARED");
                if others_write {
                    return Err(Busy);
                }
                (*level, held.writer) = (Level::Pending, Some(Level::Pending));
                if held.readers > 1 {
                    return Err(Busy);
                }
                held.writer = Some(Level::Exclusive);
            }
        }
        *level = wanted;
        Ok(())
    }

    /// Lowers a handle's lock to SHARED or NONE.
    pub(crate) fn lower(&self, level: &mut Level, wanted: Level) {
        if *level <= wanted {
            return;
        }
        let mut held = self.held();
        if *level > Level::Shared {
            held.writer = None;
        }
        if wanted == Level::None {
            held.readers -= 1;
        }
        *level = wanted;
    }

    /// True if a handle, of whichever connection, is above SHARED.
    pub(crate) fn is_reserved(&self) -> bool {
        self.held().writer.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Level::{Exclusive, None, Pending, Reserved, Shared};

    #[test]
    fn readers_share_and_one_writer_reserves_beside_them() {
        let locks = FileLocks::default();
        let (mut a, mut b, mut c) = (None, None, None);
        assert_eq!(locks.raise(&mut a, Shared), Ok(()));
        assert_eq!(locks.raise(&mut b, Shared), Ok(()));
        assert_eq!(locks.raise(&mut a, Reserved), Ok(()));
        assert_eq!(locks.raise(&mut b, Reserved), Err(Busy));
        assert_eq!(locks.raise(&mut b, Exclusive), Err(Busy), "a hot journal is not rolled back beside a writer");
        assert_eq!(locks.raise(&mut c, Shared), Ok(()), "RESERVED lets readers in");
        assert!(locks.is_reserved());
    }

    #[test]
    fn a_pending_writer_keeps_new_readers_out_until_the_old_ones_leave() {
        let locks = FileLocks::default();
        let (mut writer, mut reader, mut late) = (None, None, None);
        locks.raise(&mut writer, Shared).unwrap();
        locks.raise(&mut reader, Shared).unwrap();
        locks.raise(&mut writer, Reserved).unwrap();
        assert_eq!(locks.raise(&mut writer, Exclusive), Err(Busy));
        assert_eq!(writer, Pending);
        assert_eq!(locks.raise(&mut late, Shared), Err(Busy));
        locks.lower(&mut reader, None);
        assert_eq!(locks.raise(&mut writer, Exclusive), Ok(()));
        assert_eq!(locks.raise(&mut late, Shared), Err(Busy));
        locks.lower(&mut writer, Shared);
        assert_eq!(locks.raise(&mut late, Shared), Ok(()));
        assert!(!locks.is_reserved());
    }
}
