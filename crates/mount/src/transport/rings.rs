//! FUSE over io_uring: the queues of a connection, the requests that are in hand, and the way of a reply to its entry.
//!
//! ```text
//! queue's reader: request ─> answer ─┬─ replied, and nothing else waits: the reply goes with the next wait
//!                                    ├─ replied otherwise ──────────────> keeper
//!                                    └─ suspended ... replied by any thread ─> keeper: all that have come, in one go
//! ```
//! The kernel copies a request into its entry on the thread that gave the entry to it, wherever that thread waits,
//! except in a device operation. So a thread that serves requests gives the kernel few entries, and only when it waits
//! for the next request; all others are given by the *keeper*, a thread that does nothing else. The kernel takes the
//! entry that it got last. A reader that gave none while it has one there would leave every request to the keeper,
//! which has to be woken for it; so one stays there while it serves ([`LENT_WHILE_SERVING`]). While no other request
//! of the queue is in hand it gives the entry back itself however many it has there: else a lone client's requests
//! would go by the keeper until others come. A request that comes to the entry of a blocked thread waits for its device
//! operation, and takes the entry away from it: a queue whose only free entries are those of blocked threads gets
//! another.
//!
//! A queue whose requests are all suspended gets one more entry, unless the mount has
//! [`MAX_ENTRIES`](crate::policy::MAX_ENTRIES). The kernel gives a new entry the next request that comes, but none that
//! waits already: it looks for those only when a reply comes. So the keeper has the kernel send a request to that queue
//! (`ask_for_a_request`), and replies to it.
//!
//! Guarantees: a reply goes to the entry that carried its request, once; a second finds none (M10). No thread but a
//! reader or the keeper gives entries to the kernel: a thread that waits for the kernel's own requests may not.

use super::device::Channel;
use super::entry::{Entry, Owner};
use super::in_hand::{self, InHand};
use super::queue::{Queue, Registered, Taken};
use crate::policy::{GIVEN_BACK, LENT_WHILE_SERVING, MAX_QUEUES};
use crate::wire::reply;
use quire_device::sync::atomic::{AtomicU64, Ordering};
use quire_device::sync::{Arc, Condvar, Mutex, lock_unannounced, thread, wait};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::mpsc;

thread_local! {
    static OWN: RefCell<Own> = RefCell::default();
}

/// What a thread that serves requests has of the rings.
#[derive(Default)]
struct Own {
    /// This thread, as the kernel has entries of it, by queue.
    lenders: BTreeMap<usize, Owner>,
    /// A reply that goes with the next wait, and its queue.
    deferred: Option<(usize, Entry)>,
}

impl Own {
    fn lender(&mut self, queue: usize) -> Owner {
        self.lenders.entry(queue).or_default().clone()
    }
}

#[derive(Default)]
struct Outbox {
    replied: Vec<(usize, Entry)>,
    /// Queues that need one more entry.
    exhausted: Vec<usize>,
    over: bool,
}

pub(crate) struct Rings {
    queues: Vec<Queue>,
    /// Each with its queue.
    in_hand: InHand<(usize, Entry)>,
    /// A file that was in use by a request lately.
    file: AtomicU64,
    outbox: Mutex<Outbox>,
    changed: Condvar,
}

/// Bits of the numbers of requests that the keeper asks for: the kernel's own count from 0.
const ASKED: u64 = 1 << 62;

/// Has the kernel send a request to the queue of this CPU, on which the calling thread runs for a moment. Without the
/// right to run there it asks where it is. Where this fails, requests that wait in the kernel wait until another comes
/// to the queue, or a suspended one is answered.
fn ask_for_a_request(cpu: usize, asked: u64, file: u64, notices: &OwnedFd) {
    let usual = sched_getaffinity(None);
    let mut only = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        only.set(cpu);
    }
    let moved = sched_setaffinity(None, &only).is_ok();
    // The lowest bit of a number means an INTERRUPT.
    if let Err(e) = rustix::io::write(notices, &reply::ask_for_a_request(ASKED | asked << 1, file)) {
        tracing::debug!("no request asked for on CPU {cpu}: {e}");
    }
    if let Ok(usual) = usual
        && moved
    {
        sched_setaffinity(None, &usual).ok();
    }
}

/// What a queue's reader finds.
pub(crate) enum Next {
    Request(Entry),
    /// Nothing; the queue is to be asked again.
    Nothing,
    /// The connection is over.
    End,
}

impl Rings {
    /// A queue for each of so many CPUs, whose entries are counted in `registered`. The connection's descriptor
    /// outlives them.
    ///
    /// # Errors
    /// The host does not let us have the rings, or there are too many CPUs.
    pub(crate) fn new(channel: &Channel, cpus: usize, registered: Registered) -> Result<Rings, std::io::Error> {
        if cpus > MAX_QUEUES {
            return Err(std::io::Error::other(format!(
                "{cpus} CPUs are possible here, and {MAX_QUEUES} queues at most"
            )));
        }
        let queues = (0..cpus).map(|queue| {
            let queue = u16::try_from(queue).expect("at most MAX_QUEUES");
            Queue::new(channel.as_fd(), queue, cpus, registered.clone())
        });
        Ok(Rings {
            queues: queues.collect::<Result<_, _>>()?,
            in_hand: InHand::new(),
            file: AtomicU64::new(0),
            outbox: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Readers sleep at once.
    pub(crate) fn never_spins(&self) {
        self.queues.iter().for_each(Queue::never_spins);
    }

    /// Starts the keeper, which registers the first entries: the kernel sends requests here from then on.
    ///
    /// # Errors
    /// No thread could be started, or the kernel refuses; it goes on over /dev/fuse then.
    pub(crate) fn start(self: &Arc<Self>, channel: &Channel) -> std::io::Result<()> {
        let (tell, told) = mpsc::channel();
        let notices = channel.as_fd().try_clone_to_owned()?;
        let rings = self.clone();
        let keep = move || {
            let owner = Owner::default();
            let outcome = rings.queues.iter().try_for_each(|queue| queue.register_first(&owner));
            tell.send(outcome).ok();
            rings.keep(&owner, &notices);
        };
        thread::Builder::new().name("quire-keeper".to_owned()).spawn(keep)?;
        told.recv().expect("the keeper tells").map_err(std::io::Error::from)
    }

    /// Hands over the replies that others have made, and sees to it that no queue is exhausted, until the session ends.
    fn keep(&self, owner: &Owner, notices: &OwnedFd) {
        let mut asked = 0;
        let mut by_queue: Vec<Vec<Entry>> = self.queues.iter().map(|_| Vec::new()).collect();
        loop {
            let mut outbox = lock_unannounced(&self.outbox);
            while outbox.replied.is_empty() && outbox.exhausted.is_empty() && !outbox.over {
                outbox = wait(&self.changed, outbox);
            }
            if outbox.over {
                return;
            }
            let (replied, exhausted) = (std::mem::take(&mut outbox.replied), std::mem::take(&mut outbox.exhausted));
            drop(outbox);
            for (queue, entry) in replied {
                by_queue[queue].push(entry);
            }
            for (queue, replied) in self.queues.iter().zip(&mut by_queue) {
                if !replied.is_empty() {
                    queue.commit(std::mem::take(replied), owner);
                }
            }
            for queue in exhausted {
                if self.queues[queue].is_exhausted() && self.queues[queue].grow(owner) {
                    asked += 1;
                    ask_for_a_request(queue, asked, self.file.load(Ordering::Relaxed), notices);
                }
            }
        }
    }

    /// The next request of a queue, for its reader; waits for it if nothing has come. Asked again after
    /// [`Next::Nothing`].
    pub(crate) fn next(&self, queue: usize, channel: &Channel) -> Next {
        let l = &self.queues[queue];
        let taken = match l.take() {
            Some(taken) => taken,
            None => {
                let (deferred, lent) = OWN.with_borrow_mut(|own| (own.deferred.take(), own.lender(queue)));
                let here = match deferred {
                    Some((of, entry)) if of == queue => Some(entry),
                    Some((of, entry)) => {
                        self.keep_reply(of, entry);
                        None
                    }
                    None => None,
                };
                if here.is_none() {
                    self.ask_if_exhausted(queue);
                }
                l.wait(here, &lent);
                return Next::Nothing;
            }
        };
        match taken {
            Taken::Request(mut entry) => {
                if l.gives_back(&entry) {
                    entry.drop_last_reply();
                }
                if let Some(file) = entry.file() {
                    self.file.store(file, Ordering::Relaxed);
                }
                // Something came although nothing was waited for: the reply before does not wait any longer.
                self.flush_deferred();
                Next::Request(entry)
            }
            Taken::Gone(result) => {
                tracing::debug!("a ring entry ended: {}", Errno::from_raw_os_error(-result));
                if channel.is_connected() { Next::Nothing } else { Next::End }
            }
            Taken::Called => Next::Nothing,
        }
    }

    /// The request is about to be served by the calling worker.
    pub(crate) fn serves(&self, unique: u64, reply_at: usize) {
        self.in_hand.serves(unique, reply_at);
    }

    /// The calling worker has done with a request. Sends the reply if one was made meanwhile; else the request is
    /// suspended. `still_reads`: the worker still reads the queue.
    pub(crate) fn served(&self, queue: usize, mut entry: Entry, still_reads: bool) {
        let large = entry.payload_size() >= GIVEN_BACK;
        let suspend = |(queue, mut entry): (usize, Entry)| {
            if large {
                entry.drop_payload();
            }
            (queue, entry)
        };
        let unique = entry.unique();
        let Some(((queue, mut entry), reply)) = self.in_hand.served(unique, (queue, entry), suspend) else {
            return;
        };
        if large && self.queues[queue].gives_back(&entry) {
            entry.drop_payload();
        }
        entry.put_reply(&reply);
        self.send_own(queue, entry, still_reads);
    }

    /// Sends a reply from a worker: with its next wait if nothing else is to be done before, else by the keeper.
    fn send_own(&self, queue: usize, entry: Entry, still_reads: bool) {
        let l = &self.queues[queue];
        let lent = OWN.with_borrow_mut(|own| own.lender(queue).lent.load(Ordering::Relaxed));
        let may_lend = lent <= LENT_WHILE_SERVING || l.has_one_in_hand();
        if still_reads && may_lend && !l.has_more() {
            let before = OWN.with_borrow_mut(|own| own.deferred.replace((queue, entry)));
            assert!(before.is_none(), "a reply is deferred until the next wait");
        } else {
            self.keep_reply(queue, entry);
        }
    }

    /// Asks the keeper for an entry if a queue needs one.
    fn ask_if_exhausted(&self, queue: usize) {
        if self.queues[queue].is_exhausted() {
            lock_unannounced(&self.outbox).exhausted.push(queue);
            self.changed.notify_one();
        }
    }

    /// The calling worker is about to wait for something else than requests, maybe inside of a device operation. A
    /// queue whose only free entries are its own needs another.
    pub(crate) fn blocks(&self) {
        self.flush_deferred();
        let lent: Vec<usize> = OWN.with_borrow(|own| {
            let lends = own.lenders.iter().filter(|(_, o)| o.lent.load(Ordering::Relaxed) > 0);
            lends.inspect(|(_, o)| o.is_blocked.store(true, Ordering::Relaxed)).map(|(queue, _)| *queue).collect()
        });
        lent.into_iter().for_each(|queue| self.ask_if_exhausted(queue));
    }

    /// The calling worker no longer waits for anything but requests.
    pub(crate) fn goes_on(&self) {
        OWN.with_borrow(|own| own.lenders.values().for_each(|o| o.is_blocked.store(false, Ordering::Relaxed)));
    }

    /// The calling worker does something else before it waits for requests: its last reply does not wait for that.
    pub(crate) fn flush_deferred(&self) {
        if let Some((queue, entry)) = OWN.with_borrow_mut(|own| own.deferred.take()) {
            self.keep_reply(queue, entry);
        }
    }

    fn keep_reply(&self, queue: usize, entry: Entry) {
        lock_unannounced(&self.outbox).replied.push((queue, entry));
        self.changed.notify_one();
    }

    /// Takes a reply to a request that came by a ring. False if it did not, or was replied to.
    pub(crate) fn reply(&self, unique: u64, reply: &[u8]) -> bool {
        match self.in_hand.reply(unique, reply) {
            in_hand::Taken::No => false,
            in_hand::Taken::ByWorker => true,
            in_hand::Taken::Carrier((queue, mut entry)) => {
                entry.put_bytes(reply);
                self.keep_reply(queue, entry);
                true
            }
        }
    }

    /// The session is over: readers look up, and the keeper ends.
    pub(crate) fn end(&self) {
        lock_unannounced(&self.outbox).over = true;
        self.changed.notify_all();
        self.queues.iter().for_each(Queue::call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::announces;

    #[test]
    fn a_request_is_replied_to_once_and_only_if_it_came_by_a_ring() {
        let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        let rings = Rings::new(&Channel::new(null), 0, Registered::default()).unwrap();
        assert!(!rings.reply(2, &[0; 16]), "it came by another way");
        rings.serves(2, 0);
        assert!(rings.reply(2, &[0; 16]));
        assert!(!rings.reply(2, &[1; 16]), "a second reply");
        rings.serves(4, 0);
        assert!(rings.in_hand.served(4, (0, Entry::new(0).unwrap()), |e| e).is_none());
        assert!(rings.reply(4, &[0; 16]) && !rings.reply(4, &[0; 16]));
        let outbox = lock_unannounced(&rings.outbox);
        assert_eq!(outbox.replied.len(), 1, "one goes to the keeper");
        drop(outbox);
        // L5: a reader that waits for the outbox stays a reader.
        assert!(!announces(&rings.outbox, || rings.keep_reply(0, Entry::new(0).unwrap())));
    }

    #[test]
    fn more_cpus_than_queues_are_refused() {
        let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        assert!(Rings::new(&Channel::new(null), MAX_QUEUES + 1, Registered::default()).is_err());
    }
}
