//! What an acceptance test gets, and how it ends.

use std::path::PathBuf;

use crate::mounter::Mounter;

/// How a test ended, when it did not fail.
#[derive(Debug)]
pub enum Outcome {
    Passed,
    Skipped(String),
}

/// What a test gets.
#[derive(Debug)]
pub struct Context {
    pub dir: PathBuf,
    pub seed: u64,
    /// All that the acceptance asks for, rather than what fits into a CI run.
    pub full: bool,
    /// The mounter under test.
    pub mounter: Mounter,
}
