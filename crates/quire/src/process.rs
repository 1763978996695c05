//! The process that has opened an image.
//!
//! *Guarantees* M3: a child that was forked has a copy of all that is open, and no say in the image. It is told apart
//! without a lock, which another thread of the parent may have held during the fork.

use crate::error::{Error, ErrorKind, Result};

/// A process, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// The one that runs this.
    pub(crate) fn current() -> Self {
        #[cfg(test)]
        if tests::is_forked_child() {
            return Process(!std::process::id());
        }
        Process(std::process::id())
    }

    /// # Errors
    /// Stale: this process was forked from the one that has opened the image.
    pub(crate) fn check(self) -> Result<()> {
        let is_ours = self == Process::current();
        is_ours.then_some(()).ok_or_else(|| Error::new(ErrorKind::Stale, "another process has opened the image"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    thread_local! {
        static IS_FORKED_CHILD: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn is_forked_child() -> bool {
        IS_FORKED_CHILD.get()
    }

    /// Runs `f` as a forked child does: on this thread the process is another one.
    pub(crate) fn as_forked_child<T>(f: impl FnOnce() -> T) -> T {
        IS_FORKED_CHILD.set(true);
        let done = f();
        IS_FORKED_CHILD.set(false);
        done
    }
}
