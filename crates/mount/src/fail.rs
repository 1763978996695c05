//! An error on its way to the kernel: a number; or blocks that are not in memory, for which nobody waits.

use quire_layout::BlockNo;
use rustix::io::Errno;

/// Why a request was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fail {
    /// It is refused: the error number that the kernel gets.
    Errno(i32),
    /// These blocks are not in memory. The request is answered again when they are.
    Missing(Vec<BlockNo>),
}

impl Fail {
    pub(crate) const fn of(e: Errno) -> Self {
        Fail::Errno(e.raw_os_error())
    }

    /// Positive.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Fail::Errno(number) => *number,
            Fail::Missing(_) => Errno::IO.raw_os_error(),
        }
    }
}

impl From<quire_fs::Error> for Fail {
    /// What POSIX programs expect to happen is passed on; what nobody expects is logged.
    fn from(e: quire_fs::Error) -> Self {
        use quire_fs::Error as E;
        match &e {
            E::Miss(blocks) => return Fail::Missing(blocks.clone()),
            E::Corrupt(_) | E::Device(_) | E::Journal(_) | E::Unsupported(_) => tracing::error!("{e}"),
            // A file handle outlives its file: nothing is wrong.
            E::Stale(_) => tracing::debug!("{e}"),
            _ => tracing::trace!("{e}"),
        }
        Fail::Errno(e.errno())
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

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::sync::Arc;
    use quire_device::sync::atomic::{AtomicU32, Ordering};
    use quire_layout::Ino;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    /// Counts the messages that a log has which nobody has asked for more.
    struct Count(Arc<AtomicU32>);

    impl Subscriber for Count {
        fn enabled(&self, message: &Metadata<'_>) -> bool {
            *message.level() <= Level::INFO
        }

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn messages(error: quire_fs::Error) -> (i32, u32) {
        let count = Arc::<AtomicU32>::default();
        let fail = tracing::subscriber::with_default(Count(count.clone()), || Fail::from(error));
        (fail.errno(), count.load(Ordering::Relaxed))
    }

    /// Whoever has a handle of a removed file may come back with it as often as he likes.
    #[test]
    fn a_stale_handle_is_an_answer_and_no_message_of_the_log() {
        assert_eq!(messages(quire_fs::Error::Stale(Ino(12))), (Errno::STALE.raw_os_error(), 0));
        assert_eq!(messages(quire_fs::Error::NoSpace), (Errno::NOSPC.raw_os_error(), 0));
        assert_eq!(messages(quire_fs::Error::TooLarge), (Errno::FBIG.raw_os_error(), 0));
        let corrupt = quire_layout::Corrupt::new(quire_layout::Structure::Inode, "wrong");
        assert_eq!(messages(corrupt.into()), (Errno::UCLEAN.raw_os_error(), 1));
    }
}
