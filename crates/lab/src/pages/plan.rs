//! What is asked of a run, and what it found.

use std::fmt;

use super::database::Database;
use crate::mounter::Mounter;

/// What is done.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// postgres (full_page_writes=off) or mariadb (--skip-innodb-doublewrite)
    #[arg(long, default_value = "postgres")]
    pub database: Database,
    /// quire or kernel, with :OPTIONS
    #[arg(long, default_value = "quire:profile=database")]
    pub mounter: Mounter,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long the database works
    #[arg(long, default_value_t = 10)]
    pub seconds: u32,
    /// Crash images that are looked at
    #[arg(long, default_value_t = 300)]
    pub cuts: usize,
    /// On one in so many of them the server is started, too, and looks at everything
    #[arg(long, default_value_t = 1)]
    pub start_every: usize,
    /// Stop at the first bad page
    #[arg(long)]
    pub until_bad: bool,
}

impl Plan {
    /// The command that does the same.
    #[must_use]
    pub fn again(&self) -> String {
        let Plan { database, mounter, seed, seconds, cuts, start_every, until_bad } = self;
        let until_bad = if *until_bad { " --until-bad" } else { "" };
        format!(
            "again: quire-lab pages --database {database} --mounter '{mounter}' --seed {seed} --seconds {seconds} --cuts {cuts} \
             --start-every {start_every}{until_bad}"
        )
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Writes and flushes recorded while the database worked.
    pub steps: u64,
    pub cuts: usize,
    /// Crash images with writes lost, torn, or there though an earlier one is not.
    pub lost: usize,
    pub torn: usize,
    pub reordered: usize,
    /// Pages whose checksum was wrong after the file system's recovery, and crash images that had any.
    pub bad_pages: u64,
    pub bad_cuts: usize,
    /// Servers that were started, and those of them that did not start or found something wrong.
    pub started: usize,
    pub failed: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { steps, cuts, lost, torn, reordered, bad_pages, bad_cuts, started, failed } = self;
        write!(
            f,
            "{steps} steps recorded; {cuts} cuts, {lost} with lost writes, {reordered} reordered, {torn} torn; "
        )?;
        write!(f, "{bad_pages} bad pages in {bad_cuts} cuts; {started} servers started, {failed} failed")
    }
}
