//! What a mount changes on the host, only with `-o tune=host` and only while it is served: how idle CPUs wait
//! ([`halt_poll`]), and how much the kernel reads ahead and keeps of its file data ([`bdi`]).

mod bdi;
mod halt_poll;

use crate::policy::{BUSY_REQUESTS, HALT_AFTER, HOST_IDLE_TICK, HOST_TICK, LOOKS_PER_SPACE};
use crate::server::Server;
use bdi::Bdi;
use halt_poll::HaltPoll;
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::{Arc, thread};

/// A thread that tunes the host for a mount. Dropped when the session is over: the mount's own settings go with it.
pub(crate) struct HostTuning {
    over: Arc<AtomicBool>,
    bdi: Arc<Bdi>,
    thread: Option<thread::JoinHandle<()>>,
}

impl HostTuning {
    /// Begins to tune for the mount of this device number, as mountinfo has it.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(device: Option<&str>, server: Arc<Server>) -> std::io::Result<HostTuning> {
        let over = Arc::new(AtomicBool::new(false));
        let (ends, halt_poll) = (over.clone(), HaltPoll::open());
        let bdi = Arc::new(Bdi::of(device));
        let sets = bdi.clone();
        let work = move || tune(&server, &halt_poll, &sets, &ends);
        let thread = thread::Builder::new().name("quire-tune".to_owned()).spawn(work)?;
        Ok(HostTuning { over, bdi, thread: Some(thread) })
    }

    /// The mount is served on: its settings are as before. Waits for the thread, which looks up every
    /// [`HOST_IDLE_TICK`] at least.
    pub(crate) fn undo(mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread that tunes does not panic");
        }
        self.bdi.undo();
    }
}

impl Drop for HostTuning {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn tune(server: &Server, halt_poll: &HaltPoll, bdi: &Bdi, over: &AtomicBool) {
    let (mut last, mut idle) = (server.total_requests(), 0u32);
    let (mut looks, mut free) = (0u32, 0);
    while !over.load(Ordering::Relaxed) {
        if looks.is_multiple_of(LOOKS_PER_SPACE) {
            free = server.volume.maintenance().free_bytes().0;
        }
        looks = looks.wrapping_add(1);
        let few = !server.options.without.dirty_limit && server.volume.status().commits_are_frequent;
        bdi.limit(few, free);
        thread::sleep(if idle > HALT_AFTER { HOST_IDLE_TICK } else { HOST_TICK });
        let now = server.total_requests();
        idle = if now == last { idle.saturating_add(1) } else { 0 };
        if now - last >= BUSY_REQUESTS {
            halt_poll.set(true);
        } else if idle >= HALT_AFTER {
            halt_poll.set(false);
        }
        last = now;
    }
    halt_poll.set(false);
}
