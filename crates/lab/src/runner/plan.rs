//! What a run is asked for.

use std::path::PathBuf;

use crate::laboratory::Study;
use crate::results::Effort;

/// What is to be run.
pub struct Plan {
    /// By name or paper; nothing is all.
    pub wanted: Vec<String>,
    pub effort: Effort,
    /// Where results go.
    pub results: PathBuf,
    /// Also what is there already.
    pub again: bool,
    /// Studies on models that run at once; `None`: as many as there are CPUs, at most `MOST_AT_ONCE`.
    pub jobs: Option<usize>,
    /// Those in virtual time alone, each of them twice: it fails unless both come to the same.
    pub twice: bool,
}

impl Plan {
    /// The seconds that a study is foreseen to take.
    pub(super) fn expected(&self, study: &Study) -> u64 {
        self.effort.pick(study.seconds[0], study.seconds[1], study.seconds[2])
    }
}
