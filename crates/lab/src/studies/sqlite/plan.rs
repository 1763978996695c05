//! What the SQLite study measures.

use anyhow::Result;
use std::path::PathBuf;

use crate::mounter::{Mounter, Who};
use crate::served::Kind;
use crate::work::sqlite::{Load, Protection};

/// Where the cases ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// On models of the paper's devices, of which much is assumed: a claim's cause is in what is assumed, or not known.
    Models,
    /// On mounts, of which nothing is assumed.
    Mounts,
}

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
    /// Bytes of a page of the database.
    pub page: u32,
    /// On mounts: models of the paper's devices, on which worst cases are measured again (calibration).
    pub of_paper: Vec<Kind>,
    /// Also figure 4: what protection costs.
    pub figure4: bool,
    /// On the library, in virtual time, instead of on mounts.
    pub on_library: bool,
    pub work: PathBuf,
}

impl Plan {
    /// Where the cases run.
    pub(super) fn on(&self) -> On {
        if self.on_library { On::Models } else { On::Mounts }
    }
}

/// The competitors if none are named.
const DEFAULT: [&str; 9] = [
    "quire:profile=ext4-none",
    "quire:profile=ext4-ordered,commit_mode=checksum",
    "quire:profile=ext4-journal,commit_mode=checksum,checkpoint=fsync",
    "quire:profile=single-io",
    "quire:profile=joj",
    "quire:profile=auto",
    "quire:profile=djfs",
    "kernel:data=ordered",
    "kernel:data=journal",
];

/// What the command line asks for.
#[derive(Debug, clap::Args)]
pub struct Wanted {
    /// own, free, ssd, samsung840, intel311, emmc, hdd7200 or hdd15k; may be repeated
    #[arg(long, default_value = "own")]
    device: Vec<Kind>,
    /// kernel, fuse2fs or quire, with :OPTIONS; quire:vfs has the file system in SQLite's process; may be repeated
    #[arg(long)]
    mounter: Vec<Mounter>,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = 10_000)]
    rows: u64,
    /// Rows of the cases with one operation a transaction, instead
    #[arg(long)]
    small: Option<u64>,
    /// Rows of the cases with 1000, instead
    #[arg(long)]
    large: Option<u64>,
    /// Bytes of a page of the database; JoJ's SQLite had 1024
    #[arg(long, default_value_t = 4096)]
    page: u32,
    /// Also what protection costs (figure 4)
    #[arg(long)]
    figure4: bool,
    /// Profiles on the library instead of mounts, on a modelled device in virtual time
    #[arg(long = "virtual")]
    on_library: bool,
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    work: PathBuf,
}

impl Wanted {
    /// # Errors
    /// A default competitor's name is none.
    pub fn plan(self) -> Result<Plan> {
        let Wanted { device: kinds, mut mounter, rounds, rows, small, large, page, figure4, on_library, work } = self;
        if mounter.is_empty() {
            let names = DEFAULT.iter().filter(|name| !on_library || name.starts_with("quire:"));
            mounter = names.map(|text| text.parse()).collect::<Result<_>>()?;
        }
        let (small, large) = (small.unwrap_or(rows), large.unwrap_or(rows));
        let of_paper = Vec::new();
        Ok(Plan { kinds, mounters: mounter, rounds, small, large, page, of_paper, figure4, on_library, work })
    }
}

/// Size of the NVRAM that a mounter with its journal there gets.
pub(super) const NVRAM_MIB: u64 = 128;
/// Operations to a small and to a large transaction.
pub(super) const OPERATIONS: [u64; 2] = [1, 1000];
pub(super) const IMAGE_MIB: u64 = 1024;

/// The paper's baselines are mounted with `journal_async_commit` (section 3), so that all series have the same commit.
pub const STOCK_ORDERED: &str = "profile=ext4-ordered,commit_mode=checksum";
/// As [`STOCK_ORDERED`]; and an fsync of Linux 3.1 writes home what earlier transactions hold of the file, which is
/// what single-I/O journaling leaves out (section 2.1).
pub const STOCK_JOURNAL: &str = "profile=ext4-journal,commit_mode=checksum,checkpoint=fsync";

/// The kernel's data journaling with the paper's commit. `data=ordered` does not take that option.
pub const KERNEL_JOURNAL: &str = "kernel:data=journal,journal_async_commit";

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

impl Plan {
    /// The same sizes for a calibration on the library, of nobody yet.
    pub(super) fn without_mounters(&self) -> Plan {
        Plan {
            kinds: Vec::new(),
            mounters: Vec::new(),
            of_paper: Vec::new(),
            figure4: false,
            on_library: true,
            work: self.work.clone(),
            ..*self
        }
    }

    /// What a protection's cases with small, then with large transactions do.
    pub(super) fn loads(&self, protection: Protection) -> [Load; 2] {
        let [small, large] = OPERATIONS;
        [(small, self.small), (large, self.large)].map(|(operations, rows)| Load {
            protection,
            operations,
            rows,
            page: self.page,
        })
    }
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
