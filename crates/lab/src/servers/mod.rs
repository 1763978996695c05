//! Database servers of the distribution, started on a directory and stopped: what benchmarks and power cuts share.
//! Each listens on a socket in a directory of its own, so that several may run.

pub mod mariadb;
pub mod postgres;

use std::path::Path;

use anyhow::Result;

use crate::cmd::{have, run_tool, text};

/// The first of these programs that is missing.
#[must_use]
pub fn missing(programs: &[&'static str]) -> Option<&'static str> {
    programs.iter().copied().find(|program| !have(program))
}

/// Makes a directory that belongs to `user`, as servers want it: closed to others.
///
/// # Errors
/// It exists, or there is no such user.
pub fn make_own_dir(dir: &Path, user: &str) -> Result<()> {
    std::fs::create_dir(dir)?;
    own(dir, user)
}

/// Gives a directory and all in it to `user`.
///
/// # Errors
/// There is no such user.
pub fn own(dir: &Path, user: &str) -> Result<()> {
    run_tool("chmod", ["0700", text(dir)])?;
    run_tool("chown", ["-R", &format!("{user}:{user}"), text(dir)])?;
    Ok(())
}
