//! What callers wait for, and how far commits have come.

use super::gathering::Gathering;
use crate::error::Error;
use quire_device::sync::thread::ThreadId;
use quire_device::{DeviceError, Epoch};
use quire_layout::Tid;

/// What a caller needs to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// This transaction and all before it.
    pub tid: Option<Tid>,
    /// Data written in place, complete by this time.
    pub data: Option<Epoch>,
}

impl Need {
    /// What both need.
    #[must_use]
    pub fn and(self, other: Need) -> Need {
        let later = |a: Tid, b: Tid| if a.after(b) { a } else { b };
        let tid = match (self.tid, other.tid) {
            (Some(a), Some(b)) => Some(later(a, b)),
            (a, b) => a.or(b),
        };
        Need { tid, data: self.data.max(other.data) }
    }
}

/// How long a caller commits for those that come meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lead {
    /// Until nobody waits: its thread has nothing else to do.
    UntilNobodyWaits,
    /// Until its own need is met; then the thread that [`Journal::on_suspended`](crate::Journal::on_suspended) wakes
    /// commits. Without such a thread: until nobody waits.
    Once,
}

/// Why it is not durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SyncError {
    /// The transaction could not be committed.
    #[error("{0}")]
    Commit(#[from] Error),
    /// The data could not be flushed.
    #[error("{0}")]
    Flush(DeviceError),
}

/// What is called when a caller's [`Need`] is met, or cannot be met.
pub type Completion = Box<dyn FnOnce(Result<(), SyncError>) + Send>;

/// A caller without a thread.
pub(crate) struct Suspended {
    pub need: Need,
    pub then: Completion,
}

/// Which caller commits, and what is durable.
pub(crate) struct CommitState {
    /// Some caller commits now.
    pub leader: bool,
    /// It has closed its transaction, and waits for the device only.
    pub writing: bool,
    /// The newest durable transaction.
    pub durable: Tid,
    /// While a checkpoint writes home: the newest transaction that was durable when it began. What was freed
    /// later may be among its writes.
    pub checkpoint_floor: Option<Tid>,
    pub failed: Option<Error>,
    /// Commits that have begun, the last that has ended, and the last that a thread waits for, by number.
    pub begun: u64,
    pub ended: u64,
    pub awaited: u64,
    pub suspended: Vec<Suspended>,
    /// The leader, while it calls those that were suspended: it cannot wait for a commit.
    pub telling: Option<ThreadId>,
    pub gathering: Gathering,
}

impl CommitState {
    pub(crate) fn new(durable: Tid, gathering: Gathering) -> Self {
        CommitState {
            leader: false,
            writing: false,
            durable,
            checkpoint_floor: None,
            failed: None,
            begun: 0,
            ended: 0,
            awaited: 0,
            suspended: Vec::new(),
            telling: None,
            gathering,
        }
    }

    /// The journal's failure, as a later caller learns of it.
    pub(crate) fn failure(&self) -> Result<(), Error> {
        self.failed.as_ref().map_or(Ok(()), |e| Err(Error::Aborted(Box::new(e.clone()))))
    }
}
