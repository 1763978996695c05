//! Crash images of simulated runs, recovered by three: [`crate::judges`].

use anyhow::{Result, ensure};

use super::context::{Context, Outcome};
use crate::judges::simulated;
use crate::mounter::Mounter;

/// Some images of each route, or many.
pub fn run(context: &Context) -> Result<Outcome> {
    let agreed = simulated(&context.dir, context.seed, if context.full { 400 } else { 12 })?;
    println!(
        "        {} crash images; {} blockwise as e2fsck recovers them, {} as the kernel does",
        agreed.images, agreed.with_e2fsck, agreed.with_kernel
    );
    ensure!(agreed.with_e2fsck * 4 > agreed.images, "too few images were compared");
    ensure!(agreed.with_kernel > 0 || Mounter::kernel("").unavailable().is_some(), "none was compared with the kernel");
    Ok(Outcome::Passed)
}
