//! What callers wait for, and how far commits have come.

use crate::error::Error;
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
}

impl CommitState {
    pub(crate) fn new(durable: Tid) -> Self {
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
        }
    }

    /// The journal's failure, as a later caller learns of it.
    pub(crate) fn failure(&self) -> Result<(), Error> {
        self.failed.as_ref().map_or(Ok(()), |e| Err(Error::Aborted(Box::new(e.clone()))))
    }
}
