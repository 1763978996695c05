//! Where the applications stand among the phases that are measured on a mount, their sizes, and what is read of a
//! phase.

use super::super::super::okeanos::server::BESIDE;
use super::super::bed::Measured;
use crate::stats::float;

/// Bytes of Postmark's requests: of less than a page, and of a page.
pub(super) const REQUESTS: [usize; 2] = [1024, 4096];

/// Bytes of an instance's log at most: all of them fit into Quire's cache of 64 MiB.
pub(super) const LOG: u64 = 512 << 10;

/// Instances of InnoDB; with the last number the paper's ordered mode falls behind.
pub(super) const INSTANCES: [u64; 2] = [16, 64];

/// Phases of the server, by what a write takes beside the disk: first nothing.
pub(super) const SERVERS: [usize; BESIDE.len()] = [0, 1, 2, 3, 4];
/// Of Postmark, with requests of less than a page and of a page.
pub(super) const POSTMARKS: [usize; 2] = [5, 6];
/// Of InnoDB's logs, with fewer and with more instances.
pub(super) const LOGS: [usize; 2] = [7, 8];

/// What the application says: a rate or a time.
pub(super) fn of(m: &Measured<f64>) -> f64 {
    m.of
}

/// Reads of the device.
pub(super) fn reads(m: &Measured<f64>) -> f64 {
    float(m.asked.reads)
}

/// Bytes to the journal, in MB.
pub(super) fn journal(m: &Measured<f64>) -> f64 {
    float(m.asked.journal_bytes) / 1e6
}

/// All bytes, in MB.
pub(super) fn written(m: &Measured<f64>) -> f64 {
    float(m.asked.written_bytes) / 1e6
}
