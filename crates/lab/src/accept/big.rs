//! Large things: a directory of 200,000 names, a file of 200,000 extents, a file of 4 TiB on an image of 12 TiB.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use anyhow::{Context as _, Result, ensure};

use super::context::{Context, Outcome};
use crate::image::Image;
use crate::mounter::Mounter;
use quire_testkit::rng::content;

const NAMES: u64 = 200_000;
const NAMES_SHORT: u64 = 20_000;
const EXTENTS: u64 = 200_000;
const EXTENTS_SHORT: u64 = 20_000;
const BLOCK: u64 = 4096;
const TIB: u64 = 1 << 40;

/// Many names in one directory: made, listed, some looked up, half deleted, listed again, by the kernel too.
pub fn directory(context: &Context) -> Result<Outcome> {
    let names = if context.full { NAMES } else { NAMES_SHORT };
    let image = Image::make(&context.dir.join("names.img"), 1 << 30, &["-N", &(names + 1000).to_string()])?;
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let dir = mounted.dir().join("many");
    fs::create_dir(&dir)?;
    let name = |n: u64| dir.join(format!("name-{n:07}-{}", "y".repeat(usize::try_from(n % 40).expect("small"))));
    for n in 0..names {
        File::create_new(name(n)).with_context(|| format!("entry {n}"))?;
    }
    ensure!(fs::read_dir(&dir)?.count() as u64 == names, "readdir does not show {names} names");
    for n in (0..names).step_by(2) {
        fs::remove_file(name(n)).with_context(|| format!("entry {n}"))?;
    }
    ensure!(fs::read_dir(&dir)?.count() as u64 == names / 2, "readdir does not show {} names", names / 2);
    for n in (0..names).step_by(97) {
        ensure!(name(n).exists() == (n % 2 == 1), "lookup of entry {n} is wrong");
    }
    mounted.unmount()?;
    image.check_clean()?;
    if let Some(kernel) = kernel() {
        let mounted = kernel.mount(image.path(), &context.dir.join("mnt"))?;
        let count = fs::read_dir(&dir)?.count() as u64;
        let found = (0..names).step_by(97).all(|n| name(n).exists() == (n % 2 == 1));
        mounted.unmount()?;
        ensure!(count == names / 2, "the kernel sees {count} names, not {}", names / 2);
        ensure!(found, "the kernel does not find what is there");
    }
    Ok(Outcome::Passed)
}

fn kernel() -> Option<Mounter> {
    let kernel = Mounter::kernel("");
    kernel.unavailable().is_none().then_some(kernel)
}

/// Every other block of a file written: each an extent of its own, a tree of depth two and more.
pub fn extents(context: &Context) -> Result<Outcome> {
    let extents = if context.full { EXTENTS } else { EXTENTS_SHORT };
    let image = Image::make(&context.dir.join("extents.img"), extents * BLOCK + (512 << 20), &["-b", "4096"])?;
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let path = mounted.dir().join("comb");
    let file = File::create_new(&path)?;
    for n in 0..extents {
        file.write_all_at(&content(n, 0, 4096), n * 2 * BLOCK).with_context(|| format!("extent {n}"))?;
    }
    file.sync_all()?;
    drop(file);
    mounted.unmount()?;
    image.check_clean()?;
    let dump = image.debugfs(false, &["extents /comb".into()])?;
    let leaves = dump.lines().filter(|line| is_leaf(line)).count() as u64;
    ensure!(leaves == extents, "debugfs shows {leaves} extents, not {extents}");
    for mounter in [Some(context.mounter.clone()), kernel()].into_iter().flatten() {
        let mounted = mounter.mount(image.path(), &context.dir.join("mnt"))?;
        comb(&path, extents).with_context(|| format!("read by {mounter}"))?;
        mounted.unmount()?;
    }
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    File::options().write(true).open(&path)?.set_len(extents * BLOCK)?;
    mounted.unmount()?;
    image.check_clean().context("after cutting the file in half")?;
    Ok(Outcome::Passed)
}

/// A line of debugfs for a leaf: level equals depth, as in ` 1/ 1   1/340     0 -     0   9216 -  9216      1`.
fn is_leaf(line: &str) -> bool {
    let mut numbers = line.split(['/', ' ']).filter(|part| !part.is_empty()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(level)), Some(Ok(depth))) if level == depth)
}

fn comb(path: &std::path::Path, extents: u64) -> Result<()> {
    let file = File::open(path)?;
    let mut block = vec![0; 4096];
    for n in (0..extents).step_by(53) {
        file.read_exact_at(&mut block, n * 2 * BLOCK)?;
        ensure!(block == content(n, 0, 4096), "extent {n} holds something else");
        if n + 1 < extents {
            file.read_exact_at(&mut block, (n * 2 + 1) * BLOCK)?;
            ensure!(block.iter().all(|byte| *byte == 0), "the hole after extent {n} is not zero");
        }
    }
    Ok(())
}

/// A sparse file of 4 TiB on a sparse image of 12 TiB.
pub fn sparse(context: &Context) -> Result<Outcome> {
    let file = File::create(context.dir.join("probe"))?;
    if file.set_len(12 * TIB).is_err() {
        return Ok(Outcome::Skipped("the host's file system has no files of 12 TiB".into()));
    }
    let image =
        Image::make(&context.dir.join("sparse.img"), 12 * TIB, &["-b", "4096", "-T", "largefile4", "-J", "size=64"])?;
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let path = mounted.dir().join("sparse");
    let places = [0, 5, TIB - 3, 2 * TIB, 3 * TIB + 12345, 4 * TIB - 4096];
    let file = File::create_new(&path)?;
    file.set_len(4 * TIB)?;
    for at in places {
        file.write_all_at(&content(at, 0, 4096), at)?;
    }
    file.sync_all()?;
    drop(file);
    sparse_file(&path, &places)?;
    mounted.unmount()?;
    image.check_clean()?;
    for mounter in [Some(context.mounter.clone()), kernel()].into_iter().flatten() {
        let mounted = mounter.mount(image.path(), &context.dir.join("mnt"))?;
        sparse_file(&path, &places).with_context(|| format!("read by {mounter}"))?;
        mounted.unmount()?;
    }
    Ok(Outcome::Passed)
}

fn sparse_file(path: &std::path::Path, places: &[u64]) -> Result<()> {
    let file = File::open(path)?;
    ensure!(file.metadata()?.len() == 4 * TIB, "the file has {} bytes", file.metadata()?.len());
    let mut bytes = vec![0; 4096];
    for at in places.iter().skip(1) {
        file.read_exact_at(&mut bytes, *at)?;
        ensure!(bytes == content(*at, 0, 4096), "the bytes at {at} are others");
    }
    let next = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(2 * TIB + 4096))?;
    ensure!(next > 2 * TIB + 4096 && next <= 3 * TIB + 12345, "SEEK_DATA beyond 2 TiB gives {next}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_leaf;

    #[test]
    fn leaves_and_indexes_are_told_apart() {
        assert!(is_leaf(" 1/ 1   1/340     0 -     0   9216 -  9216      1"));
        assert!(!is_leaf(" 0/ 1   1/  4     0 -   679  33793             680"));
        assert!(!is_leaf("Level Entries       Logical      Physical Length Flags"));
    }
}
