//! All shapes of ext4 that mke2fs makes by default, and those of older systems: each gets a small tree from Quire and a
//! storm, and a tree from the kernel; each side must see what the other wrote.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::context::{Context, Outcome};
use super::trees;
use crate::image::Image;
use crate::mounter::{Mounted, Mounter};
use crate::tree::{self, Flavour};
use crate::walk::{self, ensure_same};
use crate::work::{end, storm};

/// mke2fs options.
const SHAPES: &[&[&str]] = &[
    &["-b", "4096"],
    &["-b", "2048"],
    &["-b", "1024"],
    &["-b", "4096", "-O", "orphan_file,metadata_csum_seed"],
    &["-b", "1024", "-O", "orphan_file,metadata_csum_seed", "-I", "512"],
    &["-b", "4096", "-O", "^metadata_csum,uninit_bg"],
    &["-b", "1024", "-O", "^metadata_csum,^uninit_bg,^64bit,^flex_bg"],
    &["-b", "4096", "-O", "^64bit"],
    &["-b", "4096", "-O", "^resize_inode,^dir_nlink"],
    &["-b", "4096", "-O", "sparse_super2,^resize_inode"],
    &["-b", "4096", "-O", "meta_bg,^resize_inode"],
    &["-b", "4096", "-O", "^huge_file,^large_file"],
    &["-b", "4096", "-O", "^dir_index"],
    &["-b", "4096", "-O", "large_dir"],
    &["-b", "4096", "-I", "128", "-O", "^extra_isize"],
    &["-b", "4096", "-t", "ext3"],
    &["-b", "1024", "-t", "ext3", "-I", "128"],
    &["-b", "4096", "-O", "^extent,^64bit"],
];
const FILES: u64 = 400;
/// Features that may be refused by name instead.
const MAY_BE_REFUSED: [&str; 3] = ["large_dir", "meta_bg", "sparse_super2"];

/// Whether times with nanoseconds and beyond 2038 fit: 128-byte inodes have neither, and tests of times make no sense.
fn flavour(shape: &[&str]) -> Flavour {
    if shape.contains(&"128") { Flavour::Plain } else { Flavour::Everything }
}

/// Every shape, both ways.
pub fn run(context: &Context) -> Result<Outcome> {
    let kernel = Mounter::kernel("");
    let judged = kernel.unavailable().is_none();
    for shape in SHAPES {
        let named = || format!("mke2fs {}", shape.join(" "));
        let image = Image::make(&context.dir.join("shape.img"), 96 << 20, shape)?;
        if let Some(feature) = MAY_BE_REFUSED.iter().find(|feature| named().contains(**feature)) {
            let tried = context.mounter.mount(image.path(), &context.dir.join("mnt")).and_then(Mounted::unmount);
            if tried.is_err_and(|error| error.to_string().contains(*feature)) {
                println!("        refused by name: {}", named());
                continue;
            }
        }
        written_by(context, &image, &context.mounter, shape).with_context(named)?;
        if judged {
            let image = Image::make(&context.dir.join("shape.img"), 96 << 20, shape)?;
            written_by(context, &image, &kernel, shape).with_context(|| format!("{}, by the kernel", named()))?;
        }
    }
    if !judged {
        println!("        not compared with the kernel: it needs root");
    }
    Ok(Outcome::Passed)
}

fn written_by(context: &Context, image: &Image, writer: &Mounter, shape: &[&str]) -> Result<()> {
    let mounted = writer.mount(image.path(), &context.dir.join("mnt"))?;
    let made = tree::make(&mounted.dir().join("tree"), FILES, context.seed, flavour(shape))?;
    tree::churn(&mounted.dir().join("tree"), made, context.seed)?;
    let log = tempfile::tempdir_in(&context.dir)?;
    end(storm::work(mounted.dir(), log.path(), 0, context.seed, Duration::from_millis(200)))?;
    storm::check(mounted.dir(), log.path(), 0, context.seed)?;
    let mut seen = walk::look_unsettled(mounted.dir())?;
    mounted.unmount()?;
    image.check_clean()?;
    let kernel = Mounter::kernel("");
    for reader in [&context.mounter, &kernel] {
        if reader.unavailable().is_none() {
            let again = trees::see(context, image, reader)?;
            ensure_same(&format!("as {writer} wrote it, and as {reader} reads it"), &seen, &again)?;
            // From now on with numbers of blocks.
            seen = again;
        }
    }
    image.check_clean()
}
