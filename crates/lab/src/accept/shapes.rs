//! All shapes of ext4 that mke2fs makes by default, and those of older systems: each gets a small tree from Quire and a
//! storm, and a tree from the kernel; each side must see what the other wrote.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use quire_testkit::rng::content;
use rustix::fs::{XattrFlags, removexattr, setxattr};

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
    &["-b", "1024", "-O", "inline_data", "-I", "256"],
    &["-b", "4096", "-O", "inline_data,^metadata_csum,^64bit", "-I", "1024"],
];
/// Features that are in inodes of the kernel's alone: the kernel writes, both read.
const BY_THE_KERNEL: &[&[&str]] = &[
    &["-b", "1024", "-O", "inline_data", "-I", "256"],
    &["-b", "4096", "-O", "inline_data", "-I", "512"],
    &["-b", "4096", "-O", "inline_data,^metadata_csum,^64bit", "-I", "1024"],
    &["-b", "4096", "-O", "ea_inode"],
    &["-b", "1024", "-O", "ea_inode,^metadata_csum"],
    &["-b", "4096", "-O", "inline_data,ea_inode", "-I", "512"],
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
        return Ok(Outcome::Passed);
    }
    for shape in BY_THE_KERNEL {
        only_read(context, shape).with_context(|| format!("mke2fs {}, by the kernel", shape.join(" ")))?;
    }
    Ok(Outcome::Passed)
}

/// A tree of the kernel's that fits in inodes, or has attributes that do not, as the kernel and the mounter read it.
fn only_read(context: &Context, shape: &[&str]) -> Result<()> {
    let image = Image::make(&context.dir.join("shape.img"), 96 << 20, shape)?;
    let kernel = Mounter::kernel("");
    let mounted = kernel.mount(image.path(), &context.dir.join("mnt"))?;
    let made = tree::make(&mounted.dir().join("tree"), FILES, context.seed, flavour(shape))?;
    tree::churn(&mounted.dir().join("tree"), made, context.seed)?;
    small(&mounted.dir().join("small"), context.seed)?;
    let largest = if shape.iter().any(|word| word.contains("ea_inode")) { 60_000 } else { 600 };
    values(&mounted.dir().join("values"), largest)?;
    mounted.unmount()?;
    image.check_clean()?;
    let by_kernel = trees::see(context, &image, &kernel)?;
    ensure_same("as the kernel and the mounter read it", &by_kernel, &trees::see(context, &image, &context.mounter)?)
}

/// Files, links and directories of all lengths about what an inode holds; some are cut, or grow, or have attributes.
fn small(dir: &Path, seed: u64) -> Result<()> {
    fs::create_dir(dir)?;
    for n in 0..130 {
        let len = 7 * n;
        let (file, link, names) = (dir.join(format!("f{n}")), dir.join(format!("l{n}")), dir.join(format!("d{n}")));
        fs::write(&file, content(seed, u64::try_from(n)?, len))?;
        symlink("t".repeat(1 + len), link)?;
        match n % 8 {
            1 => File::options().write(true).open(&file)?.set_len(u64::try_from(len / 2)?)?,
            2 => File::options().write(true).open(&file)?.set_len(u64::try_from(3 * len)?)?,
            3 => setxattr(&file, "user.small", &content(seed, 3, n), XattrFlags::empty())?,
            4 => File::options().append(true).open(&file)?.write_all(b"more")?,
            _ => {}
        }
        if n % 4 == 0 {
            fs::create_dir(&names)?;
            for name in 0..n / 4 {
                fs::create_dir(names.join(format!("{name}")))?;
                fs::write(names.join(format!("a file with number {name}")), b"")?;
                if name % 3 == 0 {
                    fs::remove_dir(names.join(format!("{name}")))?;
                }
            }
        }
    }
    Ok(())
}

/// Attributes in inodes, in blocks that files share, and in inodes of their own, two of the same value.
fn values(dir: &Path, largest: usize) -> Result<()> {
    fs::create_dir(dir)?;
    for n in 0..24 {
        let path = dir.join(format!("{n}"));
        fs::write(&path, content(1, n, 50))?;
        let len = largest * usize::try_from(n / 2 + 1)? / 12;
        setxattr(&path, "user.shared", &content(1, n / 2, len), XattrFlags::empty())?;
        if n % 3 == 0 {
            setxattr(&path, "user.own", &content(2, n, 40), XattrFlags::empty())?;
        }
        if n % 7 == 0 {
            removexattr(&path, "user.shared")?;
        }
    }
    Ok(())
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
