//! Whether pages of a database tear. PostgreSQL with `full_page_writes=off`, or MariaDB without its doublewrite buffer,
//! works on a file system whose device records every write and flush. Crash images are cut out of the recording, with
//! any part of what was not flushed lost, torn or reordered, by sectors. Each is recovered, and every page of the
//! database is judged by its checksum: the servers' own tools do that.
//!
//! ```text
//! prepare: mke2fs ── kernel ── database made and loaded, server stopped ──> image
//! record:  server ── Quire, or the kernel's ext4 on a loop device ── PowerLossDevice
//! cut:     crash image ── recovery ── files ── pg_checksums, innochecksum ── server's recovery ── again
//! ```
//! The same on the kernel's `data=ordered` must show torn pages; otherwise the harness would prove nothing.

mod cut;
mod database;
mod mariadb;
mod place;
mod plan;
mod postgres;
mod record;

use std::path::Path;

use anyhow::{Context, Result, ensure};

pub use database::Database;
pub use plan::{Plan, Report};

use crate::cmd::{run_tool, text};
use crate::interrupt::Folder;
use crate::mounter::{Mounter, Who};

/// Of so many cuts one at least tears a write; of fewer it need not.
const MANY_CUTS: usize = 100;

/// Why it cannot be done here, if so.
#[must_use]
pub fn unavailable(database: Database) -> Option<String> {
    // The database is made on a mount of the kernel's.
    database.unavailable().or_else(|| Mounter::kernel("").unavailable())
}

/// The command: prints what was found.
///
/// # Errors
/// As [`run`] and [`judge`].
pub fn main(plan: &Plan) -> Result<()> {
    if let Some(why) = unavailable(plan.database) {
        println!("skipped pages of {}: {why}", plan.database);
        return Ok(());
    }
    let report = in_memory(plan).with_context(|| plan.again())?;
    println!("pages {} on {}: {report}", plan.database, plan.mounter);
    judge(plan, &report).with_context(|| plan.again())
}

/// As [`run`], in a directory in memory that goes afterwards.
///
/// # Errors
/// As [`run`].
pub fn in_memory(plan: &Plan) -> Result<Report> {
    run(Folder::in_memory("pages-")?.path(), plan)
}

/// Works, records, cuts and looks, in `dir`.
///
/// # Errors
/// Something that is needed is missing, the work fails, a crash image cannot be recovered.
pub fn run(dir: &Path, plan: &Plan) -> Result<Report> {
    ensure!(plan.mounter.who != Who::Fuse2fs, "fuse2fs writes no journal");
    // The servers' users must reach what is below.
    run_tool("chmod", ["0755", text(dir)])?;
    let start = record::prepare(dir, plan).context("making the database")?;
    let recorded = record::record(dir, plan, start).context("recording")?;
    cut::cut(dir, plan, &recorded)
}

/// What must be found: nothing on Quire, torn pages on the kernel's ext4.
///
/// # Errors
/// It is not so.
pub fn judge(plan: &Plan, report: &Report) -> Result<()> {
    ensure!(report.torn > 0 || report.cuts < MANY_CUTS, "no crash image had a torn write");
    match plan.mounter.who {
        Who::Quire => ensure!(report.bad_cuts + report.failed == 0, "pages were torn"),
        _ => ensure!(report.bad_cuts > 0, "no page was torn: the harness shows nothing"),
    }
    Ok(())
}
