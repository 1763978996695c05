//! Whether operations may change the volume.
//!
//! *Guarantees*: the first reason for read-only stays; the usual case costs one atomic load.

use crate::error::{Error, Result};
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::{Mutex, lock};

/// The gate that every change passes.
pub(crate) struct WriteGate {
    /// Set if there is a reason.
    closed: AtomicBool,
    /// Set if the reason is a shutdown.
    shut_down: AtomicBool,
    /// The reason why nothing may be written, if there is one.
    read_only: Mutex<Option<String>>,
}

impl WriteGate {
    /// `read_only`: why the mount may not write.
    pub(crate) fn new(read_only: Option<String>) -> Self {
        WriteGate {
            closed: AtomicBool::new(read_only.is_some()),
            shut_down: AtomicBool::new(false),
            read_only: Mutex::new(read_only),
        }
    }

    /// # Errors
    /// Read-only, with the reason.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.why_read_only().map_or(Ok(()), |why| Err(Error::ReadOnly(why)))
    }

    /// Refuses all changes from now on. The first reason stays.
    pub(crate) fn turn_read_only(&self, why: &str) {
        let mut reason = lock(&self.read_only);
        if reason.is_none() {
            tracing::error!(why, "the volume is now read-only");
            self.close(&mut reason, why);
        }
    }

    /// Refuses all changes from now on, because the volume is unmounted.
    pub(crate) fn unmount(&self) {
        self.close(&mut lock(&self.read_only), "unmounted");
    }

    /// Refuses all changes from now on, because somebody has asked for that.
    pub(crate) fn shut_down(&self) {
        tracing::warn!("the volume is shut down");
        self.close(&mut lock(&self.read_only), "shut down");
        self.shut_down.store(true, Ordering::Release);
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    fn close(&self, reason: &mut Option<String>, why: &str) {
        *reason = Some(why.to_owned());
        self.closed.store(true, Ordering::Release);
    }

    /// The reason why nothing may be written, if there is one.
    pub(crate) fn why_read_only(&self) -> Option<String> {
        lock(&self.read_only).clone()
    }
}
