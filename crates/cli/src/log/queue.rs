//! The way of a message to its place: a bounded queue and one thread that writes.
//!
//! *Guarantees* (H1): a thread that logs never waits for a reader of the log. A place that takes no more (a full pipe,
//! a log daemon that does not read, a hung network file) fills the queue; further messages are dropped and counted, and
//! the count is told when the place takes messages again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Messages that wait for their place, at most: some seconds of what the rate limit lets through.
const MAX_WAITING_MESSAGES: usize = 512;
/// How long [`Queue::flush`] waits for a place that does not take messages.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The log itself: a file, the system's log, or standard error.
    Log,
    /// Standard error beside the log, as long as the caller reads it.
    Caller,
}

/// A message, with the priority that syslog(3) has for it.
pub(super) struct Message {
    pub(super) place: Place,
    pub(super) priority: u8,
    pub(super) text: Vec<u8>,
}

impl Message {
    fn note(text: &str) -> Message {
        /// LOG_WARNING of syslog(3).
        const WARNING: u8 = 4;
        Message { place: Place::Log, priority: WARNING, text: format!("{text}\n").into_bytes() }
    }
}

enum Job {
    Write(Message),
    /// All before it is written when this is dropped.
    Flush(SyncSender<()>),
}

/// The sending end.
#[derive(Clone)]
pub(super) struct Queue {
    jobs: SyncSender<Job>,
    dropped: Arc<AtomicU64>,
}

static QUEUE: OnceLock<Queue> = OnceLock::new();

impl Queue {
    /// Starts the thread that writes. `write` may wait as long as it likes.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn start(write: impl FnMut(&Message) + Send + 'static) -> std::io::Result<Queue> {
        let (jobs, received) = sync_channel(MAX_WAITING_MESSAGES);
        let dropped = Arc::<AtomicU64>::default();
        let counted = dropped.clone();
        std::thread::Builder::new().name("quire-log".to_owned()).spawn(move || run(&received, &counted, write))?;
        let queue = Queue { jobs, dropped };
        QUEUE.get_or_init(|| queue.clone());
        Ok(queue)
    }

    pub(super) fn put(&self, message: Message) {
        if let Err(TrySendError::Full(_)) = self.jobs.try_send(Job::Write(message)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A message of the log about itself.
    pub(super) fn note(&self, text: &str) {
        self.put(Message::note(text));
    }

    /// Waits until what was put is written, but not for ever.
    fn flush(&self) {
        let (done, wait) = sync_channel(0);
        if self.jobs.try_send(Job::Flush(done)).is_ok() {
            wait.recv_timeout(FLUSH_PATIENCE).ok();
        }
    }
}

fn run(jobs: &Receiver<Job>, dropped: &AtomicU64, mut write: impl FnMut(&Message)) {
    for job in jobs {
        match job {
            Job::Write(message) => write(&message),
            Job::Flush(done) => drop(done),
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            write(&Message::note(&format!("{lost} messages were lost: the log did not take them")));
        }
    }
}

/// Waits until the messages so far are written; at most a second.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn message(n: usize) -> Message {
        Message { place: Place::Log, priority: 6, text: n.to_string().into_bytes() }
    }

    #[test]
    fn a_place_that_takes_nothing_delays_nobody_and_the_loss_is_told() {
        let (taken, seen) = channel();
        let (go, gate) = channel::<()>();
        let queue = Queue::start(move |m| {
            gate.recv().ok();
            taken.send(String::from_utf8_lossy(&m.text).into_owned()).ok();
        })
        .unwrap();
        (0..MAX_WAITING_MESSAGES + 100).for_each(|n| queue.put(message(n)));
        queue.flush();
        drop(go);
        let mut texts = std::iter::from_fn(|| seen.recv_timeout(Duration::from_secs(10)).ok());
        assert_eq!(texts.next().unwrap(), "0");
        let lost = texts.find(|t| t.contains("were lost")).unwrap();
        let lost: usize = lost.split(' ').next().unwrap().parse().unwrap();
        assert!((90..=100).contains(&lost), "{lost}");
    }

    #[test]
    fn flush_returns_when_all_is_written() {
        let (taken, seen) = channel();
        let queue = Queue::start(move |m| {
            std::thread::sleep(Duration::from_millis(1));
            taken.send(m.text.clone()).unwrap();
        })
        .unwrap();
        (0..100).for_each(|n| queue.put(message(n)));
        queue.flush();
        assert_eq!(seen.try_iter().count(), 100);
    }
}
