//! What a write may rely on: sizes that the route and the log set.

use super::handle::Volume;
use crate::policy::AutoThreshold;

/// Sizes that bound writes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that one request writes at most. A longer write is split.
    pub request_bytes: usize,
    /// Bytes of a page-aligned write request that a crash leaves whole or absent. A longer write is split. `None`: the
    /// route promises no whole requests.
    pub atomic_bytes: Option<usize>,
    /// The limit of `data=auto`; `None` where new data goes one way only.
    pub auto_threshold: Option<AutoThreshold>,
}

impl Volume {
    /// The sizes that bound writes now. `data=auto` measures its limit, so it changes.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let (d, engine) = (&self.inner.data, &*self.inner.engine);
        let request_bytes = d.request_bytes();
        Limits {
            request_bytes,
            atomic_bytes: engine.context.route.atomic_requests().then_some(request_bytes),
            auto_threshold: d.auto_threshold(),
        }
    }
}
