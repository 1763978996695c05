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
    of_modes(0..SERIES.len(), streams)
}

/// Runs them with these of the series.
///
/// # Errors
/// A file system failed.
pub(super) fn of_modes(modes: impl IntoIterator<Item = usize>, streams: Streams) -> Result<Vec<Outcome>> {
    modes.into_iter().map(|mode| run(SERIES[mode].1, streams)).collect()
}

/// Bytes as megabytes.
pub(super) fn megabytes(bytes: u64) -> f64 {
    float(bytes) / 1e6
}

/// Megabytes a second.
pub(super) fn per_second(bytes: u64, time: Duration) -> f64 {
    megabytes(bytes) / time.as_secs_f64()
}

/// The most of these; 0 of none.
pub(super) fn most(of: impl IntoIterator<Item = f64>) -> f64 {
    of.into_iter().fold(0.0, f64::max)
}
