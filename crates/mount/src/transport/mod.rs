//! The way of requests and replies between the kernel and the workers: `/dev/fuse`, and rings where the kernel has
//! them. The session does not know by which a request has come: its number names it.

mod buffer;
mod device;
mod entry;
mod in_hand;
mod queue;
mod ring;
mod rings;
mod spin;

pub(crate) use buffer::RequestBuffer;
pub(crate) use device::{Channel, Found};
pub(crate) use entry::Entry;
pub(crate) use rings::{Next, Rings};

use quire_device::sync::Arc;
use rustix::io::Errno;

/// The connection of a session.
pub(crate) struct Transport {
    pub(crate) channel: Channel,
    pub(crate) rings: Option<Arc<Rings>>,
}

impl Transport {
    /// Sends a reply, by the way that its request came, or a notice. `NOENT`: nobody waits for it any more.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        if let Some(rings) = &self.rings
            && let Some(unique) = bytes.get(8..16).and_then(|b| b.first_chunk())
            && rings.reply(u64::from_ne_bytes(*unique), bytes)
        {
            return Ok(());
        }
        self.channel.send(bytes)
    }

    /// How many rings there are.
    pub(crate) fn rings(&self) -> usize {
        self.rings.as_ref().map_or(0, |rings| rings.queues())
    }

    /// The calling worker is about to wait for something else than requests.
    pub(crate) fn before_blocking(&self) {
        if let Some(rings) = &self.rings {
            rings.blocks();
        }
    }

    /// The calling worker goes back to reading requests.
    pub(crate) fn after_blocking(&self) {
        if let Some(rings) = &self.rings {
            rings.goes_on();
        }
    }

    /// The session is over.
    pub(crate) fn end(&self) {
        if let Some(rings) = &self.rings {
            rings.end();
        }
    }
}

impl Drop for Transport {
    /// The keeper does not outlive the session.
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use quire_device::sync::{Mutex, lock_unannounced, when_blocking};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::mpsc;
    use std::time::Duration;

    /// True if the calling thread announces that it may block, when it makes a call while another has this lock.
    pub(super) fn announces<T: Send>(lock: &Mutex<T>, call: impl FnOnce()) -> bool {
        let announced = Rc::new(Cell::new(false));
        let seen = announced.clone();
        when_blocking(move || seen.set(true));
        std::thread::scope(|scope| {
            let (begin, begun) = mpsc::channel();
            scope.spawn(move || {
                let held = lock_unannounced(lock);
                begin.send(()).expect("the test waits");
                // The call comes to the lock meanwhile; if it does not, the test finds nothing.
                std::thread::sleep(Duration::from_millis(20));
                drop(held);
            });
            begun.recv().expect("the other thread has the lock");
            call();
        });
        when_blocking(|| ());
        announced.get()
    }
}
