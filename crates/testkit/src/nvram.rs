//! Memory whose power can go.
//!
//! Guarantees: what a fence covered survives. Of later stores any set of aligned 8-byte words may survive; of one word
//! the last survivor stays. [`NvramCrashPoint::crash`] favours whole lines, prefixes and single losses.
//!
//! ```text
//! store ──> pending ──fence──> durable          power cut: some words of what is pending, on top of durable
//! ```

use crate::rng::Rng;
use quire_device::nvram::{LINE, Nvram, NvramStats, WORD, lines};
use quire_device::sync::{Arc, Mutex, lock};
use std::collections::HashMap;

/// A store that no fence has followed.
#[derive(Clone, Debug)]
struct Pending {
    at: usize,
    bytes: Arc<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Event {
    Store(Pending),
    Fence,
}

/// Memory whose power can go.
pub struct NvramModel {
    state: Mutex<State>,
    /// What else goes on: noted with every event, so that moments of two devices can be told apart.
    beside: Option<Box<dyn Fn() -> u64 + Send + Sync>>,
    when_cut: Mutex<Option<WhenCut>>,
}

type WhenCut = Box<dyn Fn() + Send + Sync>;

struct State {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    stats: NvramStats,
    start: Option<Vec<u8>>,
    events: Vec<(u64, Event)>,
    cut_at: Option<u64>,
    steps: u64,
    made: u8,
}

impl NvramModel {
    /// A memory with these contents, all durable.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        let state = State {
            durable: bytes.clone(),
            live: bytes,
            pending: Vec::new(),
            stats: NvramStats::default(),
            start: None,
            events: Vec::new(),
            cut_at: None,
            steps: 0,
            made: 0,
        };
        NvramModel { state: Mutex::new(state), beside: None, when_cut: Mutex::new(None) }
    }

    /// Remembers every store and fence from now on, each with what `beside` says then.
    #[must_use]
    pub fn recording(mut self, beside: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.beside = Some(Box::new(beside));
        {
            let mut s = lock(&self.state);
            s.start = Some(s.durable.clone());
        }
        self
    }

    /// Stores and fences so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        lock(&self.state).steps
    }

    /// From step `n` on nothing arrives any more: the power is gone.
    pub fn cut_at(&self, n: u64) {
        lock(&self.state).cut_at = Some(n);
    }

    /// What else happens when the power goes.
    pub fn when_cut(&self, hook: impl Fn() + Send + Sync + 'static) {
        *lock(&self.when_cut) = Some(Box::new(hook));
    }

    /// What reads see.
    #[must_use]
    pub fn live(&self) -> Vec<u8> {
        lock(&self.state).live.clone()
    }

    /// What the memory holds now, and what of it is in doubt.
    #[must_use]
    pub fn crash_point(&self) -> NvramCrashPoint {
        let s = lock(&self.state);
        NvramCrashPoint { durable: s.durable.clone(), pending: s.pending.clone() }
    }

    /// What was remembered.
    #[must_use]
    pub fn recorded(&self) -> Option<NvramRecording> {
        let s = lock(&self.state);
        s.start.clone().map(|start| NvramRecording { start, events: s.events.clone() })
    }

    fn event(&self, s: &mut State, event: Event) -> bool {
        s.steps += 1;
        if s.cut_at.is_some_and(|n| s.steps >= n) {
            if let Some(hook) = &*lock(&self.when_cut) {
                hook();
            }
            return false;
        }
        if let Some(beside) = &self.beside {
            s.events.push((beside(), event));
        }
        true
    }
}

impl Nvram for NvramModel {
    fn size(&self) -> u64 {
        lock(&self.state).live.len() as u64
    }

    fn fresh_uuid(&self) -> [u8; 16] {
        let mut s = lock(&self.state);
        s.made += 1;
        [b'Q', b'u', b'i', b'r', b'e', s.made, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    }

    fn read(&self, at: u64, buf: &mut [u8]) {
        let at = usize::try_from(at).expect("in memory");
        buf.copy_from_slice(&lock(&self.state).live[at..at + buf.len()]);
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        assert!(at.is_multiple_of(WORD) && (bytes.len() as u64).is_multiple_of(WORD), "stores are of whole words");
        let mut s = lock(&self.state);
        let place = usize::try_from(at).expect("in memory");
        s.live[place..place + bytes.len()].copy_from_slice(bytes);
        s.stats.stores += 1;
        s.stats.bytes += bytes.len() as u64;
        s.stats.lines += lines(at, bytes.len());
        let pending = Pending { at: place, bytes: Arc::new(bytes.to_vec()) };
        if self.event(&mut s, Event::Store(pending.clone())) {
            s.pending.push(pending);
        }
    }

    fn fence(&self) {
        let mut s = lock(&self.state);
        s.stats.fences += 1;
        if self.event(&mut s, Event::Fence) {
            let s = &mut *s;
            s.pending.drain(..).for_each(|p| p.apply(&mut s.durable));
        }
    }

    fn stats(&self) -> NvramStats {
        lock(&self.state).stats
    }
}

impl Pending {
    fn apply(&self, to: &mut [u8]) {
        to[self.at..self.at + self.bytes.len()].copy_from_slice(&self.bytes);
    }

    /// Its words: where, and their bytes.
    fn words(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let word = usize::try_from(WORD).expect("8");
        self.bytes.chunks_exact(word).enumerate().map(move |(n, w)| (self.at + n * word, w))
    }
}

/// Every store and fence since the beginning.
#[derive(Clone, Debug)]
pub struct NvramRecording {
    start: Vec<u8>,
    events: Vec<(u64, Event)>,
}

impl NvramRecording {
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The state before the first event and after each: what the other device had done by then at least, and what the
    /// memory holds.
    pub fn crash_points(&self) -> impl Iterator<Item = (u64, NvramCrashPoint)> + '_ {
        let mut point = NvramCrashPoint { durable: self.start.clone(), pending: Vec::new() };
        let first = (0, point.clone());
        let later = self.events.iter().map(move |(beside, event)| {
            match event {
                Event::Store(p) => point.pending.push(p.clone()),
                Event::Fence => {
                    let p = &mut point;
                    p.pending.drain(..).for_each(|s| s.apply(&mut p.durable));
                }
            }
            (*beside, point.clone())
        });
        std::iter::once(first).chain(later)
    }
}

/// What a memory holds at a moment when its power may go.
#[derive(Clone, Debug)]
pub struct NvramCrashPoint {
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

impl NvramCrashPoint {
    /// True if one outcome is possible only.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.pending.is_empty()
    }

    /// One outcome, chosen by a seed. Seeds take turns with nothing or everything surviving, prefixes, single stores
    /// that are lost or survive, of each line a prefix of its stores, whole lines, and random words.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(seed);
        let stores = self.pending.len() as u64;
        let one = rng.below(stores.max(1));
        let eighths = 1 + rng.below(7);
        let way = rng.below(8);
        let mut lines: HashMap<usize, u64> = HashMap::new();
        let mut image = self.durable.clone();
        for (n, p) in (0u64..).zip(&self.pending) {
            for (at, word) in p.words() {
                let line = at / usize::try_from(LINE).expect("64");
                let survives = match way {
                    0 => false,
                    1 => true,
                    2 => n < one,
                    3 => n != one,
                    4 => n == one,
                    // Up to which store this line was written back.
                    5 => n < *lines.entry(line).or_insert_with(|| rng.below(stores + 1)),
                    6 => *lines.entry(line).or_insert_with(|| rng.below(8)) < eighths,
                    _ => rng.below(8) < eighths,
                };
                if survives {
                    image[at..at + word.len()].copy_from_slice(word);
                }
            }
        }
        image
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn what_was_fenced_survives_and_of_the_rest_any_words() {
        let m = NvramModel::new(vec![0; 4096]);
        m.store(0, &[1; 256]);
        m.fence();
        m.store(128, &[2; 256]);
        let point = m.crash_point();
        assert!(!point.is_certain());
        let (mut none, mut all, mut some) = (false, false, false);
        for seed in 0..200 {
            let image = point.crash(seed);
            assert!(image[..128].iter().all(|b| *b == 1), "V1");
            for word in image[128..384].chunks(8) {
                assert!(word.iter().all(|b| *b == word[0]), "words are whole");
            }
            let new = image[128..384].iter().filter(|b| **b == 2).count();
            none |= new == 0;
            all |= new == 256;
            some |= new > 0 && new < 256;
        }
        assert!(none && all && some);
        assert_eq!(point.crash(5), point.crash(5));
    }

    #[test]
    fn a_recording_gives_every_moment() {
        let m = NvramModel::new(vec![0; 4096]).recording(|| 42);
        m.store(8, &[1; 8]);
        m.fence();
        m.store(16, &[1; 8]);
        let recorded = m.recorded().unwrap();
        let points: Vec<_> = recorded.crash_points().collect();
        assert_eq!(points.len(), 4);
        assert!(points[0].1.is_certain() && !points[1].1.is_certain() && points[2].1.is_certain());
        assert_eq!(points[3].0, 42);
        assert_eq!(points[2].1.crash(1)[8..16], [1; 8]);
    }

    #[test]
    fn nothing_arrives_after_the_cut() {
        let m = NvramModel::new(vec![0; 4096]);
        m.cut_at(3);
        m.store(8, &[1; 8]);
        m.fence();
        m.store(16, &[1; 8]);
        m.fence();
        let image = m.crash_point().crash(1);
        assert_eq!((image[8], image[16]), (1, 0));
    }
}
