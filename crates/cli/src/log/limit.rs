//! How often one place in the program may log, as the kernel's printk_ratelimited has it: a damaged inode that a user
//! looks at again and again must not fill the log (H1).

use super::queue::Queue;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The kernel's DEFAULT_RATELIMIT_INTERVAL and DEFAULT_RATELIMIT_BURST.
const INTERVAL: Duration = Duration::from_secs(5);
const BURST: u32 = 10;

/// Lets [`BURST`] messages of one place through in an [`INTERVAL`]; how many it kept back is told afterwards. Messages
/// of the levels debug and trace, which somebody has asked for, are not limited.
pub(super) struct RateLimit {
    places: Mutex<Places<Identifier>>,
    /// Where it tells how many it kept back.
    queue: Queue,
}

struct Places<K>(HashMap<K, Window>);

struct Window {
    start: Instant,
    passed: u32,
    kept_back: u64,
}

impl RateLimit {
    pub(super) fn new(queue: Queue) -> Self {
        RateLimit { places: Mutex::new(Places(HashMap::new())), queue }
    }
}

impl<K: Eq + Hash> Places<K> {
    /// Whether a message of this place passes, and how many were kept back before it.
    fn passes(&mut self, place: K, now: Instant) -> (bool, u64) {
        let w = self.0.entry(place).or_insert(Window { start: now, passed: 0, kept_back: 0 });
        let mut kept_back = 0;
        if now.duration_since(w.start) >= INTERVAL {
            kept_back = w.kept_back;
            *w = Window { start: now, passed: 0, kept_back: 0 };
        }
        if w.passed < BURST {
            w.passed += 1;
            (true, kept_back)
        } else {
            w.kept_back += 1;
            (false, 0)
        }
    }
}

impl<S: Subscriber> Layer<S> for RateLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if *event.metadata().level() > Level::INFO {
            return true;
        }
        let mut places = self.places.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (passes, kept_back) = places.passes(event.metadata().callsite(), Instant::now());
        if kept_back > 0 {
            self.queue.note(&format!("{kept_back} messages like the next one were kept back"));
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_messages_of_a_place_pass_in_five_seconds_and_the_rest_is_counted() {
        let mut places = Places(HashMap::new());
        let start = Instant::now();
        let passed = (0..25).filter(|_| places.passes("here", start).0).count();
        assert_eq!(passed, 10);
        assert_eq!(places.passes("there", start), (true, 0));
        assert_eq!(places.passes("here", start + INTERVAL), (true, 15));
        assert_eq!(places.passes("here", start + INTERVAL), (true, 0));
    }
}
