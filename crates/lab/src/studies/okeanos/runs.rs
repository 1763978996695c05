//! Streams with each of the series, and their traffic in megabytes.

use std::time::Duration;

use anyhow::Result;

use super::super::streams::{Outcome, Streams, run};
use super::series::SERIES;
use crate::stats::float;

/// Runs them with each of the series.
///
/// # Errors
/// A file system failed.
pub(super) fn each(streams: Streams) -> Result<Vec<Outcome>> {
    SERIES.iter().map(|(_, choices)| run(*choices, streams)).collect()
}

pub(super) fn megabytes(bytes: u64) -> f64 {
    float(bytes) / 1e6
}

/// Megabytes a second.
pub(super) fn per_second(bytes: u64, time: Duration) -> f64 {
    megabytes(bytes) / time.as_secs_f64()
}
