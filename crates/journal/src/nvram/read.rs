//! Reading the transactions of a log in NVRAM, in order.
//!
//! | seen where transaction n is expected | then |
//! |---|---|
//! | its head, its commit word, and bytes that match | it counts |
//! | its head and commit word, other bytes | the memory is damaged there (V2) |
//! | no head or no word, but the next region begins with n | the region was left before n |
//! | the same, and a later transaction in this region or at the start of the next | n was durable once: damage |
//! | the same, and none | the log ends: n was torn off |

use quire_device::Nvram;
use quire_layout::Tid;
use quire_layout::checksum::crc32c;
use quire_layout::nvlog::{Head, Label, TxnSeed, commit_word, head};

/// Walks over the transactions of a log.
pub(crate) struct Walk<'a> {
    memory: &'a dyn Nvram,
    pub label: Label,
    /// Position of the next transaction.
    pub at: u64,
    /// Its number.
    pub tid: Tid,
    /// A transaction that was durable once is not whole any more.
    pub damaged: bool,
    /// The highest number that was seen.
    pub latest: Tid,
}

/// A transaction that is whole.
pub(crate) struct Whole {
    pub head: Head,
    /// Its records and their bodies.
    pub packed: Vec<u8>,
}

/// What stands at a position.
enum Found {
    Nothing,
    /// Not committed.
    Torn,
    Committed(Head),
}

/// Bytes that are summed at once.
const CHUNK: usize = 1 << 16;

impl<'a> Walk<'a> {
    pub(crate) fn new(memory: &'a dyn Nvram, label: Label) -> Self {
        let tid = label.tid;
        Walk { memory, label, at: label.tail, tid, damaged: false, latest: tid }
    }

    /// True if the log holds a transaction.
    pub(crate) fn holds_any(&self) -> bool {
        let there = |at| matches!(self.look(at), Found::Committed(h) if h.tid == self.tid);
        there(self.at) || self.next_region().is_some_and(there)
    }

    /// The next transaction. `None`: the log ends, or is damaged.
    pub(crate) fn next(&mut self) -> Option<Whole> {
        let head = match self.look(self.at) {
            Found::Committed(head) if head.tid == self.tid => head,
            Found::Torn => return self.end(),
            _ => match self.next_region().map(|at| (at, self.look(at))) {
                Some((at, Found::Committed(head))) if head.tid == self.tid => {
                    self.at = at;
                    head
                }
                _ => return self.end(),
            },
        };
        let (sum, packed) = self.body(&head);
        if sum != head.body {
            self.damaged = true;
            return self.end();
        }
        self.at += u64::from(head.bytes);
        self.tid = head.tid.next();
        self.latest = self.tid;
        Some(Whole { head, packed })
    }

    /// Nothing more counts. Does something stand behind that was written later?
    fn end(&mut self) -> Option<Whole> {
        let region = self.label.region_len();
        let end = (self.at / region + 1) * region;
        let step = usize::try_from(self.label.granule).expect("32 bits");
        let behind = (self.at + step as u64..end).step_by(step).chain(self.next_region());
        for at in behind {
            if let Found::Committed(head) = self.look(at)
                && head.tid.after(self.tid)
            {
                self.damaged = true;
                self.latest = if head.tid.after(self.latest) { head.tid } else { self.latest };
            }
        }
        None
    }

    /// Where the next region begins, if it is not the tail's again.
    fn next_region(&self) -> Option<u64> {
        let region = self.label.region_len();
        let next = (self.at / region + 1) * region;
        (next < self.label.tail + self.label.capacity()).then_some(next)
    }

    fn look(&self, at: u64) -> Found {
        let region = self.label.region_len();
        if at % region + head::LEN as u64 > region {
            return Found::Nothing;
        }
        let place = self.label.place(at);
        let mut b = [0; head::LEN];
        self.memory.read(place, &mut b);
        let Some(head) = Head::decode(&self.label, at, &b) else { return Found::Nothing };
        let mut word = [0; 8];
        self.memory.read(place + head.commit_at(self.label.granule), &mut word);
        if word == commit_word(head.tid, &b) { Found::Committed(head) } else { Found::Torn }
    }

    /// The checksum of what follows the head, and the packed bytes.
    fn body(&self, head: &Head) -> (u32, Vec<u8>) {
        let place = self.label.place(head.position);
        let end = place + head.commit_at(self.label.granule);
        let mut at = place + head::LEN as u64;
        let mut packed = vec![0; usize::try_from(head.packed).expect("32 bits")];
        self.memory.read(at, &mut packed);
        let mut sum = TxnSeed::at(&self.label, head.position).start();
        let mut buf = vec![0; CHUNK];
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            self.memory.read(at, &mut buf[..len]);
            sum = crc32c(sum, &buf[..len]);
            at += len as u64;
        }
        (sum, packed)
    }
}
