//! What the SQLite study measures.

use anyhow::Result;
use std::path::PathBuf;

use crate::mounter::{Mounter, Who};
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

/// The paper's baselines are mounted with `journal_async_commit` (section 3), so that all series have the same commit.
pub const STOCK_ORDERED: &str = "profile=ext4-ordered,commit_mode=checksum";
/// As [`STOCK_ORDERED`]; and an fsync of Linux 3.1 writes home what earlier transactions hold of the file, which is
/// what single-I/O journaling leaves out (section 2.1).
pub const STOCK_JOURNAL: &str = "profile=ext4-journal,commit_mode=checksum,checkpoint=fsync";

/// `quire:vfs`: nobody mounts, SQLite has the file system in its process. What follows a comma are parameters of the
/// database's URI.
const IN_PROCESS: &str = "vfs";

/// The parameters of `quire:vfs`; `None`: it is another.
pub(super) fn in_process(mounter: &Mounter) -> Option<String> {
    let rest = mounter.options.strip_prefix(IN_PROCESS).filter(|_| mounter.who == Who::Quire)?;
    (rest.is_empty() || rest.starts_with(',')).then(|| rest.replace(',', "&"))
}

/// Those that work here; `quire:vfs` does everywhere.
///
/// # Errors
/// None does.
pub(super) fn available(asked: &[Mounter]) -> Result<Vec<Mounter>> {
    let (apart, mounts): (Vec<Mounter>, Vec<Mounter>) = asked.iter().cloned().partition(|m| in_process(m).is_some());
    if mounts.is_empty() {
        return Ok(apart);
    }
    let found = Mounter::available(&mounts)?;
    Ok(asked.iter().filter(|m| apart.contains(m) || found.contains(m)).cloned().collect())
}

/// One column: who mounts, and how SQLite works on it.
pub(super) struct Series {
    pub(super) mounter: Mounter,
    pub(super) protections: Vec<Protection>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vfs_is_no_mount_and_its_options_are_parameters() {
        let of = |text: &str| in_process(&text.parse().unwrap());
        assert_eq!(of("quire:vfs"), Some(String::new()));
        assert_eq!(of("quire:vfs,atomic_writes=off"), Some("&atomic_writes=off".to_owned()));
        assert_eq!((of("quire"), of("kernel:vfs"), of("quire:vfsx")), (None, None, None));
    }
}
