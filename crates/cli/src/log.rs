//! Where messages go: standard error in the foreground, a file with `--log`, else the system's log.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The variable that says what is logged, e.g. `QUIRE_LOG=debug` or `quire_mount=trace`.
const VARIABLE: &str = "QUIRE_LOG";

fn filter(default: &str) -> EnvFilter {
    EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(default))
}

/// Messages go to standard error.
pub(crate) fn to_stderr(default: &str) {
    let builder = tracing_subscriber::fmt().with_env_filter(filter(default)).with_target(false);
    builder.with_writer(io::stderr).with_ansi(io::stderr().is_terminal()).without_time().init();
}

/// Messages go to the end of a file; until the daemon lets go of it, warnings and errors go to standard error, too.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn to_file(path: &Path) -> io::Result<()> {
    let file = File::options().create(true).append(true).open(path)?;
    let file = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(file);
    let words = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_level(false)
        .with_writer(Syslog { socket: None });
    tracing_subscriber::registry().with(filter("info")).with(file).with(words).init();
    Ok(())
}

/// Messages go to the system's log, where there is one; until the daemon lets go of it, warnings and errors go to
/// standard error, too.
pub(crate) fn to_syslog() {
    let socket = UnixDatagram::unbound().and_then(|s| s.connect("/dev/log").map(|()| s)).ok();
    let writer = Syslog { socket };
    tracing_subscriber::fmt()
        .with_env_filter(filter("warn"))
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_level(false)
        .with_writer(writer)
        .init();
}

/// Writes to `/dev/log`, one datagram a message, where there is one; warnings and errors to standard error, too.
struct Syslog {
    socket: Option<UnixDatagram>,
}

struct Message<'a> {
    socket: Option<&'a UnixDatagram>,
    priority: u8,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Message<'a>;

    fn make_writer(&'a self) -> Message<'a> {
        Message { socket: self.socket.as_ref(), priority: 6 }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Message<'a> {
        let priority = match *meta.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        Message { socket: self.socket.as_ref(), priority }
    }
}

impl Write for Message<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        /// The facility "daemon".
        const DAEMON: u8 = 3 << 3;
        if let Some(socket) = self.socket {
            let head = format!("<{}>quire[{}]: ", DAEMON | self.priority, std::process::id());
            // A log that is full or gone is no reason to stop.
            socket.send(&[head.as_bytes(), text.trim_ascii_end()].concat()).ok();
        }
        if self.priority <= 4 {
            eprint!("quire: {}", String::from_utf8_lossy(text));
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
