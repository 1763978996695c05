//! A mounted session: the handshake, the workers that answer requests, and its end.
//!
//! ```text
//! INIT ──> workers: receive ─> requests::answer ─> send ─┐
//!             ^──────────────────────────────────────────┘  until the kernel says ENODEV: unmounted
//! ```
//! Which worker reads the next request is decided in [`crate::workers`]; replies are in [`crate::replies`].

use crate::again::Again;
use crate::dirty_memory::DirtyMemory;
use crate::fail::Fail;
use crate::handshake::{Requested, handshake};
use crate::kernel_pages::KernelPages;
use crate::policy::{LOOK_AGAIN, usual_readers};
use crate::replies::Shared;
use crate::server::Server;
use crate::session_queue::SessionQueue;
use crate::space::SpaceQueue;
use crate::transport::{Channel, Rings, Transport};
use crate::transport_choice::{TransportCounters, TransportError};
use crate::wire::abi::{init, opcode};
use crate::wire::{Body, Out};
use crate::worker::Worker;
use crate::workers::{FIRST_RING, Workers, cpus};
use quire_device::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use quire_device::sync::{Arc, Mutex, lock, thread};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// A session whose handshake is done.
#[derive(Clone)]
pub(crate) struct Session {
    shared: Arc<Shared>,
}

impl Session {
    /// Answers the kernel's INIT. With `rings` requests come by them from then on, if the kernel agrees.
    ///
    /// # Errors
    /// The connection broke, or the kernel is too old.
    pub(crate) fn start(
        channel: Channel,
        server: Arc<Server>,
        requested: Requested,
        rings: Option<Rings>,
        counters: &TransportCounters,
    ) -> Result<Session, Errno> {
        let (mut buf, mut reply) = (vec![0; 64 << 10], [0; 256]);
        let mut out = Out::new(&mut reply);
        loop {
            let n = channel.receive(&mut buf)?.ok_or(Errno::NODEV)?;
            let mut body = Body::new(&buf[..n]);
            let (Ok(header), mut body) = (body.header(), body) else { return Err(Errno::PROTO) };
            out.clear();
            let outcome = match header.opcode {
                opcode::INIT => handshake(&mut body, &mut out, requested),
                _ => Err(Fail::of(Errno::IO)),
            };
            let agreed = matches!(outcome, Ok(Some(_)));
            channel.send(out.finish(header.unique, outcome.as_ref().err()))?;
            if let Ok(Some(flags)) = outcome {
                server.agreed(flags);
            }
            match outcome {
                Ok(_) if agreed => break,
                Ok(_) => {}
                Err(_) => return Err(Errno::PROTO),
            }
        }
        let rings = rings.filter(|_| server.has(init::OVER_IO_URING)).map(Arc::new);
        let rings = rings.filter(|rings| match rings.start(&channel) {
            Ok(()) => true,
            Err(e) => {
                tracing::warn!("requests come over /dev/fuse: {}", TransportError::NoRings(e));
                rings.end();
                false
            }
        });
        counters.queues.store(rings.as_ref().map_or(0, |r| r.queues()), Ordering::Relaxed);
        let without = server.options.without;
        if without.polling {
            channel.never_spins();
            rings.iter().for_each(|r| r.never_spins());
        }
        let transport = Transport { channel, rings };
        Ok(Session {
            shared: Arc::new(Shared {
                workers: Workers::new(
                    FIRST_RING + transport.rings(),
                    server.options.readers.unwrap_or_else(|| usual_readers(cpus())),
                    server.blocked.clone(),
                ),
                transport,
                server,
                kernel_pages: KernelPages::default(),
                syncs: SessionQueue::default(),
                has_sync_thread: AtomicBool::new(false),
                dirty_memory: DirtyMemory::open(),
                page_threads: AtomicUsize::new(0),
                space: SpaceQueue::default(),
                again: Again::default(),
                error: Mutex::default(),
            }),
        })
    }

    /// Starts answering requests; returns at once.
    ///
    /// # Errors
    /// No thread could be started, or there is no memory for its requests.
    pub(crate) fn spawn(&self) -> std::io::Result<()> {
        Worker::wait_for_pages(&self.shared)?;
        let worker = Worker { shared: self.shared.clone() };
        thread::Builder::new().name("quire-space".to_owned()).spawn(move || worker.answer_when_space_is_free())?;
        for _ in 0..self.shared.workers.queues() {
            self.shared.workers.begin();
            Worker::spawn(self.shared.clone())?;
        }
        Ok(())
    }

    /// True if requests come by rings.
    pub(crate) fn has_rings(&self) -> bool {
        self.shared.transport.rings() > 0
    }

    /// Makes the kernel hand over its dirty pages of all files that are open for writing. Not for workers: they answer
    /// what comes.
    pub(crate) fn write_back(&self) {
        self.shared.hand_over();
    }

    /// False once the file system is unmounted.
    pub(crate) fn is_connected(&self) -> bool {
        self.shared.transport.channel.is_connected()
    }

    /// Has the requests answered that waited for a thaw.
    pub(crate) fn answer_thawed(&self) {
        self.shared.answer_thawed();
    }

    /// Waits until workers have taken what was due after a thaw, or `timeout` has passed.
    pub(crate) fn wait_for_thawed(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        while !self.shared.again.is_empty() && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until the file system is unmounted, or `timeout` has passed. True when it is over.
    ///
    /// # Errors
    /// What ended the connection besides an unmount.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let over = self.shared.workers.wait(timeout);
        // After an error a reader of /dev/fuse may wait for requests that come by rings, and that nobody serves.
        lock(&self.shared.error).map_or(Ok(over), Err)
    }
}

#[cfg(test)]
mod tests;
