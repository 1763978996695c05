//! Where messages go: standard error in the foreground, a file with `--log`, else the system's log.
//!
//! *Guarantees*: logging never blocks ([`queue`]), and no place in the program fills the log ([`limit`]).

mod limit;
mod queue;

use limit::RateLimit;
use queue::{Message, Place, Queue};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

pub(crate) use queue::flush;

/// The variable that says what is logged, e.g. `QUIRE_LOG=debug` or `quire_mount=trace`.
const VARIABLE: &str = "QUIRE_LOG";

fn filter(default: &str) -> EnvFilter {
    EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(default))
}

/// Messages go to standard error.
///
/// # Errors
/// The thread that writes them could not be started.
pub(crate) fn to_stderr(default: &str) -> io::Result<()> {
    let queue = Queue::start(|m| drop(io::stderr().write_all(&m.text)))?;
    let to = To { queue: queue.clone(), place: Place::Log };
    let ansi = io::stderr().is_terminal();
    let layer = tracing_subscriber::fmt::layer().with_target(false).with_writer(to).with_ansi(ansi).without_time();
    tracing_subscriber::registry().with(filter(default)).with(RateLimit::new(queue)).with(layer).init();
    Ok(())
}

/// Messages go to the end of a file; until the daemon lets go of it, warnings and errors go to standard error, too.
///
/// # Errors
/// It cannot be opened, or the thread that writes could not be started.
pub(crate) fn to_file(path: &Path) -> io::Result<()> {
    let mut file = File::options().create(true).append(true).open(path)?;
    let queue = Queue::start(move |m| match m.place {
        Place::Log => drop(file.write_all(&m.text)),
        Place::Caller => tell_caller(m),
    })?;
    let file = To { queue: queue.clone(), place: Place::Log };
    let file = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(file);
    tracing_subscriber::registry()
        .with(filter("info"))
        .with(RateLimit::new(queue.clone()))
        .with(file)
        .with(plain(To { queue, place: Place::Caller }))
        .init();
    Ok(())
}

/// Messages go to the system's log, where there is one; until the daemon lets go of it, warnings and errors go to
/// standard error, too.
///
/// # Errors
/// The thread that writes them could not be started.
pub(crate) fn to_syslog() -> io::Result<()> {
    let mut socket = None;
    let queue = Queue::start(move |m| {
        send_to_syslog(&mut socket, m);
        tell_caller(m);
    })?;
    let to = To { queue: queue.clone(), place: Place::Log };
    tracing_subscriber::registry().with(filter("warn")).with(RateLimit::new(queue)).with(plain(to)).init();
    Ok(())
}

/// A bug of ours is told in the log, too: standard error leads nowhere once the daemon has let go of it.
pub(crate) fn log_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("a thread without a name");
        tracing::error!("a bug in quire: {thread} {panic}\n{}", std::backtrace::Backtrace::force_capture());
        flush();
        usual(panic);
    }));
}

/// Messages as words alone: the system's log knows time and level.
fn plain<S>(to: To) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_level(false)
        .with_writer(to)
}

/// One datagram a message. A log daemon that was started again is connected to again; one that takes nothing, or is not
/// there, loses the message.
fn send_to_syslog(socket: &mut Option<UnixDatagram>, m: &Message) {
    /// The facility "daemon".
    const DAEMON: u8 = 3 << 3;
    let head = format!("<{}>quire[{}]: ", DAEMON | m.priority, std::process::id());
    let datagram = [head.as_bytes(), m.text.trim_ascii_end()].concat();
    for _ in 0..2 {
        if socket.is_none() {
            *socket = UnixDatagram::unbound().and_then(|s| s.connect("/dev/log").map(|()| s)).ok();
        }
        match socket.as_ref().map(|s| s.send(&datagram)) {
            Some(Err(e)) if e.kind() != io::ErrorKind::WouldBlock => *socket = None,
            _ => return,
        }
    }
}

/// Warnings and errors, for whoever has started the daemon.
fn tell_caller(m: &Message) {
    if m.priority <= 4 {
        write!(io::stderr(), "quire: {}", String::from_utf8_lossy(&m.text)).ok();
    }
}

/// Puts what is logged into the queue.
struct To {
    queue: Queue,
    place: Place,
}

/// A message on its way into the queue; it arrives when this is dropped.
struct Writing<'a> {
    to: &'a To,
    priority: u8,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for To {
    type Writer = Writing<'a>;

    fn make_writer(&'a self) -> Writing<'a> {
        Writing { to: self, priority: 6, text: Vec::new() }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Writing<'a> {
        let priority = match *meta.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        Writing { to: self, priority, text: Vec::new() }
    }
}

impl Write for Writing<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let (place, priority) = (self.to.place, self.priority);
        self.to.queue.put(Message { place, priority, text: std::mem::take(&mut self.text) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A subscriber's writer that keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_in_the_log_with_its_thread_and_place() {
        log_panics();
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let bug = move || tracing::subscriber::with_default(subscriber, || panic!("a block is nobody's"));
        let ended = std::thread::Builder::new().name("quire-example".into()).spawn(bug).unwrap().join();
        drop(std::panic::take_hook());
        assert!(ended.is_err());
        let said = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        for part in ["ERROR", "quire-example panicked at crates/cli/src/log/mod.rs", "a block is nobody's"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
