//! JoJ's cases with the file system in the process of SQLite, by quire-vfs: on the modelled device that others mount,
//! or on an image file on the machine's own disk, as the one under the others' loop device.

use super::plan::{IMAGE_MIB, Plan, Series};
use crate::served::{Looped, written};
use crate::work::sqlite::run_on;
use crate::work::vfs::routines;

use anyhow::{Result, anyhow};
use quire_vfs::{Images, Registration};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The VFS under a name of its own, beside the laboratory's.
const NAME: &std::ffi::CStr = c"quire-images";

/// Where the file system is to be made.
pub(super) fn image(disk: &Looped, dir: &Path) -> Result<PathBuf> {
    if disk.asked()?.is_some() {
        return Ok(disk.device().to_owned());
    }
    let path = dir.join("in-process.img");
    if !path.exists() {
        written(&path, IMAGE_MIB << 20)?;
    }
    Ok(path)
}

/// The times of one round. `parameters` are for each database's URI.
pub(super) fn one(plan: &Plan, series: &Series, image: &Path, parameters: &str) -> Result<Vec<f64>> {
    // SAFETY: SQLite is linked into this program, and all connections of this function end before it does.
    let registered = unsafe { quire_vfs::register(routines(), NAME, Box::new(Images)) };
    let registration: Registration = registered.map_err(|e| anyhow!("{e}"))?;
    let image = image.display();
    let open = |name: &str| Connection::open(format!("file:{image}/{name}?vfs=quire-images{parameters}"));
    // The image stays open from case to case, as a mount would.
    let anchor = open("anchor.db")?;
    anchor.execute_batch("create table t(x)")?;
    let mut times = Vec::new();
    for protection in &series.protections {
        for load in plan.loads(*protection) {
            let db = open(&format!("{}-{}.db", protection.name(), load.operations))?;
            let start = Instant::now();
            times.extend(run_on(&db, load, &|| start.elapsed())?);
        }
    }
    drop(anchor);
    drop(registration);
    Ok(times)
}
