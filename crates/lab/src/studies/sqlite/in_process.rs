//! JoJ's cases with the file system in the process of SQLite, by quire-vfs, on the device that others mount.

use super::plan::{OPERATIONS, Plan, Series};
use crate::served::Looped;
use crate::work::sqlite::run_on;
use crate::work::vfs::routines;

use anyhow::{Result, anyhow};
use quire_vfs::{Images, Registration};
use rusqlite::Connection;
use std::time::Instant;

/// The VFS under a name of its own, beside the laboratory's.
const NAME: &std::ffi::CStr = c"quire-images";

/// The times of one round. `parameters` are for each database's URI.
pub(super) fn one(plan: &Plan, series: &Series, disk: &Looped, parameters: &str) -> Result<Vec<f64>> {
    // SAFETY: SQLite is linked into this program, and all connections of this function end before it does.
    let registered = unsafe { quire_vfs::register(routines(), NAME, Box::new(Images)) };
    let registration: Registration = registered.map_err(|e| anyhow!("{e}"))?;
    let device = disk.device().display();
    let open = |name: &str| Connection::open(format!("file:{device}/{name}?vfs=quire-images{parameters}"));
    // The image stays open from case to case, as a mount would.
    let anchor = open("anchor.db")?;
    anchor.execute_batch("create table t(x)")?;
    let mut times = Vec::new();
    for protection in &series.protections {
        for (operations, rows) in OPERATIONS.into_iter().zip([plan.small, plan.large]) {
            let db = open(&format!("{}-{operations}.db", protection.name()))?;
            let start = Instant::now();
            times.extend(run_on(&db, *protection, operations, rows, &|| start.elapsed())?);
        }
    }
    drop(anchor);
    drop(registration);
    Ok(times)
}
