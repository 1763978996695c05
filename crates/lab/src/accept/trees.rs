//! Trees, both ways: what one file system wrote, another must read the same: contents, modes, owners, links, xattrs,
//! times, blocks.

use anyhow::{Context as _, Result};

use super::context::{Context, Outcome};
use crate::image::Image;
use crate::mounter::Mounter;
use crate::tree::{self, Flavour};
use crate::walk::{self, Tree, ensure_same};

const FILES: u64 = 50_000;
const FILES_SHORT: u64 = 4000;

/// Makes, churns and rebuilds a tree on `mounter`; what it shows before the unmount is what is returned.
fn build(context: &Context, image: &Image, mounter: &Mounter) -> Result<Tree> {
    let files = if context.full { FILES } else { FILES_SHORT };
    let mounted = mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let top = mounted.dir().join("tree");
    let made = tree::make(&top, files, context.seed, Flavour::Everything).context("making the tree")?;
    tree::churn(&top, made, context.seed).context("churning the tree")?;
    tree::make(&mounted.dir().join("again"), files / 2, context.seed + 1, Flavour::Everything).context("rebuilding")?;
    let seen = walk::look_unsettled(mounted.dir()).context("walking the tree that was just made")?;
    mounted.unmount()?;
    image.check_clean()?;
    Ok(seen)
}

/// What a read-only mount shows.
pub(super) fn see(context: &Context, image: &Image, mounter: &Mounter) -> Result<Tree> {
    let mounted = mounter.with("ro").mount(image.path(), &context.dir.join("mnt"))?;
    let seen = walk::look(mounted.dir())?;
    mounted.unmount()?;
    Ok(seen)
}

fn image(context: &Context) -> Result<Image> {
    let size = if context.full { 2 << 30 } else { 512 << 20 };
    Image::make(&context.dir.join("tree.img"), size, &["-i", "8192"])
}

/// Written by the mounter, read again by it, then by the kernel.
pub fn to_kernel(context: &Context) -> Result<Outcome> {
    let image = image(context)?;
    let before = build(context, &image, &context.mounter)?;
    let after = see(context, &image, &context.mounter)?;
    ensure_same("before and after a remount", &before, &after)?;
    let kernel = Mounter::kernel("");
    if let Some(why) = kernel.unavailable() {
        println!("        not compared with the kernel: {why}");
        return Ok(Outcome::Passed);
    }
    ensure_same("as it is read by both", &after, &see(context, &image, &kernel)?)?;
    image.check_clean()?;
    Ok(Outcome::Passed)
}

/// Written by the kernel, read by the mounter.
pub fn from_kernel(context: &Context) -> Result<Outcome> {
    let kernel = Mounter::kernel("");
    if let Some(why) = kernel.unavailable() {
        return Ok(Outcome::Skipped(why));
    }
    let image = image(context)?;
    let before = build(context, &image, &kernel)?;
    ensure_same("before and after a remount by the kernel", &before, &see(context, &image, &kernel)?)?;
    ensure_same("as it is read by both", &see(context, &image, &kernel)?, &see(context, &image, &context.mounter)?)?;
    image.check_clean()?;
    Ok(Outcome::Passed)
}
