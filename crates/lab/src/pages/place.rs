//! Where a server works.

use std::path::Path;

/// The name of the data directory on the file system.
pub(super) const DATA: &str = "data";

/// The directories of a server: its data, and its socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'p> {
    pub data: &'p Path,
    pub sockets: &'p Path,
}

/// Called when the server is up and before it works, and again before it is stopped.
pub(super) type Mark<'m> = dyn FnMut() + 'm;
