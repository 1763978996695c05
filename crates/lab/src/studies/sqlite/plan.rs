//! What the SQLite study measures.

use std::path::PathBuf;

use crate::mounter::Mounter;
use crate::served::Kind;
use crate::work::sqlite::Protection;

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    /// One after the other; what JoJ says of its 24 cases is asked of the cases of all.
    pub kinds: Vec<Kind>,
    pub mounters: Vec<Mounter>,
    pub rounds: usize,
    /// Rows of the cases of one operation a transaction, and of a thousand.
    pub small: u64,
    pub large: u64,
    /// Also figure 4: what protection costs.
    pub figure4: bool,
    /// On the library, in virtual time, instead of on mounts.
    pub on_library: bool,
    pub work: PathBuf,
}

/// Profiles that get an NVRAM in memory.
pub(super) const NVRAM: [&str; 3] = ["profile=nvj", "profile=djfs", "profile=djfs4"];
/// Operations to a small and to a large transaction.
pub(super) const OPERATIONS: [u64; 2] = [1, 1000];
pub(super) const IMAGE_MIB: u64 = 1024;

/// One column: who mounts, and how SQLite works on it.
pub(super) struct Series {
    pub(super) mounter: Mounter,
    pub(super) protections: Vec<Protection>,
}
