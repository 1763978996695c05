//! Trees, both ways: what one file system wrote, another must read the same: contents, modes, owners, links, xattrs, times, blocks.

use anyhow::{Context as _, Result};

use super::{Context, Outcome};
use crate::image::Image;
use crate::mounter::{Mounter, Who};
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
    let seen = walk::look(mounted.dir()).context("walking the tree that was just made")?;
    mounted.unmount()?;
    image.check_clean()?;
    Ok(seen)
}

fn see(context: &Context, image: &Image, mounter: &Mounter) -> Result<Tree> {
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
    ensure_same("before and after a remount", &before, &see(context, &image, &context.mounter)?)?;
    let kernel = Mounter::kernel("");
    if let Some(why) = kernel.unavailable() {
        println!("        not compared with the kernel: {why}");
        return Ok(Outcome::Passed);
    }
    ensure_same("as it was written, and as the kernel reads it", &before, &see(context, &image, &kernel)?)?;
    image.check_clean()?;
    Ok(Outcome::Passed)
}

/// Written by the kernel, read by the mounter.
pub fn from_kernel(context: &Context) -> Result<Outcome> {
    let kernel = Mounter::kernel("");
    if let Some(why) = kernel.unavailable() {
        return Ok(Outcome::Skipped(why));
    }
    if context.mounter.who != Who::Kernel && context.mounter.options.contains("writethrough") {
        return Ok(Outcome::Skipped("reading does not depend on writethrough".into()));
    }
    let image = image(context)?;
    let before = build(context, &image, &kernel)?;
    ensure_same("as the kernel wrote it, and as it is read", &before, &see(context, &image, &context.mounter)?)?;
    image.check_clean()?;
    Ok(Outcome::Passed)
}
