//! Requests in hand: taken from a ring, and not replied to yet.
//!
//! ```text
//!           serves            served, no reply yet              reply
//! no trace ────────> served ───────────────────────> suspended ───────> no trace: sent by who replied
//!                      │ reply
//!                      v         served
//!                   replied ─────────────> no trace: sent by the worker
//! ```
//! A worker serves a request, while any thread may reply to it: the worker itself, the leader of a commit, the thread
//! that ends a freeze. Whoever comes second sends the reply, because only the worker has the entry before it suspends
//! the request, and only the table has it afterwards.
//!
//! Guarantees: each request is replied to once, whoever comes when (M10). Relies on the kernel, which gives no number
//! to two requests at once.

use super::entry::Reply;
use crate::policy::REQUEST_TABLES;
use quire_device::Mutant;
use quire_device::sync::{Mutex, lock_unannounced};
use quire_layout::number_map::NumberMap;

/// A request that was taken and is not replied to yet; `E` is what carries it.
enum State<E> {
    /// A worker is about it. The address at which a reply in place begins, and the reply once it is made.
    Served { reply_at: usize, reply: Option<Reply> },
    /// It waits for an event.
    Suspended(E),
}

/// What becomes of a reply.
pub(super) enum Taken<E> {
    /// No such request is in hand: it came by another way, or was replied to.
    No,
    /// The worker that serves it sends the reply.
    ByWorker,
    /// It was suspended: the caller sends the reply by this.
    Carrier(E),
}

/// The requests in hand of a connection, by number.
pub(super) struct InHand<E>(Vec<Mutex<NumberMap<u64, State<E>>>>);

impl<E> InHand<E> {
    pub(super) fn new() -> Self {
        InHand((0..REQUEST_TABLES).map(|_| Mutex::default()).collect())
    }

    fn table(&self, unique: u64) -> &Mutex<NumberMap<u64, State<E>>> {
        // The kernel counts requests in steps of two.
        let table = usize::try_from((unique >> 1) % REQUEST_TABLES).expect("small");
        &self.0[table]
    }

    /// The calling worker is about to serve this request. A reply that begins at this address was made in place.
    pub(super) fn serves(&self, unique: u64, reply_at: usize) {
        lock_unannounced(self.table(unique)).insert(unique, State::Served { reply_at, reply: None });
    }

    /// The calling worker has done with a request. Gives the carrier back with the reply if one was made meanwhile;
    /// else the request is suspended, with its carrier as `suspend` leaves it.
    pub(super) fn served(&self, unique: u64, carrier: E, suspend: impl FnOnce(E) -> E) -> Option<(E, Reply)> {
        let mut table = lock_unannounced(self.table(unique));
        match table.remove(&unique) {
            Some(State::Served { reply: Some(reply), .. }) => Some((carrier, reply)),
            Some(State::Served { reply: None, reply_at }) => {
                if Mutant::ReplyMissedBySuspension.is_on() {
                    table.insert(unique, State::Served { reply_at, reply: None });
                    drop(table);
                    table = lock_unannounced(self.table(unique));
                }
                table.insert(unique, State::Suspended(suspend(carrier)));
                None
            }
            Some(State::Suspended(_)) | None => unreachable!("the worker that serves a request ends that"),
        }
    }

    /// Takes a reply to a request.
    pub(super) fn reply(&self, unique: u64, reply: &[u8]) -> Taken<E> {
        let mut table = lock_unannounced(self.table(unique));
        match table.remove(&unique) {
            None => Taken::No,
            Some(State::Served { reply: Some(before), reply_at }) => {
                table.insert(unique, State::Served { reply: Some(before), reply_at });
                if Mutant::SecondReplyTaken.is_on() { Taken::ByWorker } else { Taken::No }
            }
            Some(State::Served { reply: None, reply_at }) => {
                let in_place = reply.as_ptr().addr() == reply_at;
                let reply = if in_place { Reply::InPlace(reply.len()) } else { Reply::Bytes(reply.to_vec()) };
                table.insert(unique, State::Served { reply_at, reply: Some(reply) });
                Taken::ByWorker
            }
            Some(State::Suspended(carrier)) => Taken::Carrier(carrier),
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::transport::tests::announces;

    #[test]
    fn a_reply_goes_to_whoever_has_the_carrier() {
        let hand = InHand::<char>::new();
        assert!(matches!(hand.reply(2, &[0; 16]), Taken::No), "it came by another way");
        hand.serves(2, 0);
        assert!(matches!(hand.reply(2, &[0; 16]), Taken::ByWorker));
        assert!(matches!(hand.reply(2, &[1; 16]), Taken::No), "a second reply");
        let (carrier, reply) = hand.served(2, 'a', |c| c).expect("replied to");
        assert!(carrier == 'a' && matches!(reply, Reply::Bytes(bytes) if bytes == [0; 16]));
        hand.serves(4, 0);
        assert!(hand.served(4, 'b', |_| 'c').is_none(), "suspended");
        assert!(matches!(hand.reply(4, &[0; 16]), Taken::Carrier('c')));
        assert!(matches!(hand.reply(4, &[0; 16]), Taken::No), "a second reply");
        // L5: a reader that waits for the table stays a reader.
        assert!(!announces(hand.table(6), || hand.serves(6, 0)));
    }
}

/// `cargo test -p quire-mount --features shuttle,mutants --lib in_hand`
#[cfg(all(test, feature = "shuttle"))]
mod interleavings {
    use super::*;
    use quire_device::sync::atomic::{AtomicUsize, Ordering};
    use quire_device::sync::{Arc, thread};
    use quire_testkit::interleave::explore;

    /// A worker serves two requests in turn by the same carriers, while two threads reply to each: every request is
    /// sent one reply, one of the two threads is told so, and its carrier comes back for the next request.
    fn two_repliers() {
        let hand = Arc::new(InHand::<u64>::new());
        let sent: Arc<[AtomicUsize; 2]> = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let mut repliers = Vec::new();
        let mut taken = Vec::new();
        for request in 0..2 {
            let unique = 2 * (request as u64 + 1);
            hand.serves(unique, 0);
            let heard = Arc::new(AtomicUsize::new(0));
            for _ in 0..2 {
                let (hand, sent, heard) = (hand.clone(), sent.clone(), heard.clone());
                repliers.push(thread::spawn(move || match hand.reply(unique, &[0; 16]) {
                    Taken::No => {}
                    Taken::ByWorker => drop(heard.fetch_add(1, Ordering::SeqCst)),
                    Taken::Carrier(carrier) => {
                        assert_eq!(carrier, unique, "a reply goes to the entry that carried its request");
                        heard.fetch_add(1, Ordering::SeqCst);
                        sent[request].fetch_add(1, Ordering::SeqCst);
                    }
                }));
            }
            taken.push(heard);
            if let Some((carrier, _)) = hand.served(unique, unique, |c| c) {
                assert_eq!(carrier, unique);
                sent[request].fetch_add(1, Ordering::SeqCst);
            }
        }
        repliers.into_iter().for_each(|r| r.join().unwrap());
        for (sent, taken) in sent.iter().zip(taken) {
            assert_eq!(sent.load(Ordering::SeqCst), 1, "one reply is sent");
            assert_eq!(taken.load(Ordering::SeqCst), 1, "one thread is told that its reply counts");
        }
    }

    #[test]
    fn a_request_is_replied_to_once_whoever_comes_first() {
        explore(20_000, two_repliers);
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn every_mutant_of_replies_is_found() {
        for mutant in Mutant::OF_REPLIES {
            Mutant::set(Some(mutant));
            let found = std::panic::catch_unwind(|| explore(20_000, two_repliers));
            Mutant::set(None);
            assert!(found.is_err(), "{mutant:?} is not found");
        }
    }
}
