//! An error on its way to the kernel: a number.

use rustix::io::Errno;

/// A refused request: the error number that the kernel gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fail(i32);

impl Fail {
    pub(crate) const fn of(e: Errno) -> Self {
        Fail(e.raw_os_error())
    }

    /// Positive.
    pub(crate) fn errno(self) -> i32 {
        self.0
    }
}

impl From<quire_fs::Error> for Fail {
    /// What POSIX programs expect to happen is passed on; what nobody expects is logged.
    fn from(e: quire_fs::Error) -> Self {
        use quire_fs::Error as E;
        match &e {
            E::Corrupt(_) | E::Device(_) | E::Journal(_) | E::Unsupported(_) | E::Miss(_) => tracing::error!("{e}"),
            // A file handle outlives its file: nothing is wrong.
            E::Stale(_) => tracing::debug!("{e}"),
            _ => tracing::trace!("{e}"),
        }
        Fail(e.errno())
    }
}

impl From<Errno> for Fail {
    fn from(e: Errno) -> Self {
        Fail::of(e)
    }
}

/// What the system says about an error, in words alone.
pub(crate) fn words(e: Errno) -> String {
    let text = std::io::Error::from(e).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
