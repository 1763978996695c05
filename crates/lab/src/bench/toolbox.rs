//! Images without mounting, side by side: a tree into a new image by `mke2fs -d`, by `quire create` from the directory
//! and from a tar, and by tar into a mount of Quire; and one file into a large image. Seconds, and the most memory.
//!
//! The competitors of a round take turns, and the order rotates. Each makes the image anew, with the same size and
//! default features. Not a test: nothing here fails because something is slow; but every image must be clean.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::table::{About, Table};
use super::work;
use crate::cmd::{command, quire, run, run_tool, text};
use crate::mounter::{Mounter, memory_of};
use crate::stats::mib;
use crate::tree::{self, Flavour};

/// How often a process is asked for its memory, which only grows.
const LOOK: Duration = Duration::from_millis(5);
/// Files that are put into the large image.
const PUTS: u64 = 21;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Plan {
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Files of the tree, of 8 KiB on the average
    #[arg(long, default_value_t = 50_000)]
    pub files: u64,
    /// Size of the image that single files are put into
    #[arg(long, default_value = "20G")]
    pub large: String,
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub work: PathBuf,
    /// A data file (bench/results) that is written
    #[arg(long)]
    pub save: Option<PathBuf>,
}

/// The ways to make an image; the first is what the others are compared with.
const WAYS: [&str; 4] = ["mke2fs -d", "quire create, directory", "quire create, tar", "tar into a mount"];

/// One run: seconds, and the most bytes of memory that one process had.
#[derive(Clone, Copy)]
struct Made {
    seconds: f64,
    bytes: u64,
}

/// Measures and prints the table.
///
/// # Errors
/// A tool is missing or fails; an image is not clean.
pub fn measure(plan: &Plan) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("quire-toolbox-").tempdir_in(&plan.work)?;
    let tree = dir.path().join("tree");
    tree::make(&tree, plan.files, 1, Flavour::Plain)?;
    let tar = dir.path().join("tree.tar");
    run_tool("tar", ["-C", text(&tree), "-cf", text(&tar), "."])?;
    let size = image_size(&tar, plan.files)?;
    println!(
        "{} rounds; {} files, {} MiB in a tar; images of {} MiB",
        plan.rounds,
        plan.files,
        fs::metadata(&tar)?.len() >> 20,
        size >> 20
    );
    let mut table = Table { columns: WAYS.map(str::to_owned).to_vec(), rows: Vec::new() };
    table.add("the tree into a new image", "s");
    table.add("memory, at most", "MiB");
    table.add("`quire put` of one file into a large image", "ms");
    for round in 0..plan.rounds {
        for turn in 0..WAYS.len() {
            let way = (turn + round) % WAYS.len();
            eprintln!("round {}: {}", round + 1, WAYS[way]);
            let image = dir.path().join("image");
            let made = make(way, &image, &tree, &tar, size).with_context(|| WAYS[way])?;
            run_tool("e2fsck", ["-fn", text(&image)]).with_context(|| WAYS[way])?;
            fs::remove_file(&image)?;
            table.rows[0].values[way].push(made.seconds);
            table.rows[1].values[way].push(mib(made.bytes));
        }
    }
    table.rows[2].values[1] = put(&dir.path().join("large"), &plan.large)?;
    table.print();
    let about = About {
        title: "A tree into a new image, and one file into a large one",
        note: format!(
            "Medians of {} rounds, {} files, in brackets the ratio to `mke2fs -d`, then the least and the most; put: \
             {PUTS} files into an image of {}, a process each. `tar into a mount` includes formatting, mounting and \
             unmounting; its memory is the daemon's.",
            plan.rounds, plan.files, plan.large
        ),
        command: "sudo scripts/bench.sh toolbox --save bench/results/toolbox.json",
    };
    plan.save.as_ref().map_or(Ok(()), |file| table.save(file, &about))
}

/// Room for the tree with a fifth to spare, and an inode for each file.
fn image_size(tar: &Path, files: u64) -> Result<u64> {
    const INODE_RATIO: u64 = 16384;
    let bytes = fs::metadata(tar)?.len() * 6 / 5 + (128 << 20);
    Ok(bytes.max(files * INODE_RATIO * 11 / 10).next_multiple_of(1 << 20))
}

fn make(way: usize, image: &Path, tree: &Path, tar: &Path, size: u64) -> Result<Made> {
    work::warm(tar)?;
    let bytes = size.to_string();
    let start = Instant::now();
    let most = match way {
        0 => {
            let kib = format!("{}k", size >> 10);
            watched(command("mke2fs").args(["-q", "-F", "-t", "ext4", "-d", text(tree), text(image), &kib]))?
        }
        1 => watched(Command::new(quire()?).args(["create", text(image), "--from", text(tree), "--size", &bytes]))?,
        2 => watched(Command::new(quire()?).args(["create", text(image), "--from", text(tar), "--size", &bytes]))?,
        _ => through_a_mount(image, tar, &bytes)?,
    };
    Ok(Made { seconds: start.elapsed().as_secs_f64(), bytes: most })
}

/// An empty image, a mount, tar, and an unmount that waits until the image is clean.
fn through_a_mount(image: &Path, tar: &Path, size: &str) -> Result<u64> {
    run(Command::new(quire()?).args(["create", text(image), "--size", size]))?;
    let mounted = Mounter::quire("").mount(image, &image.with_file_name("mnt"))?;
    run_tool("tar", ["-C", text(mounted.dir()), "-xf", text(tar)])?;
    let most = mounted.peak_memory().unwrap_or(0);
    mounted.unmount()?;
    Ok(most)
}

/// Runs a command, and gives the most memory that it had.
fn watched(command: &mut Command) -> Result<u64> {
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let mut most = 0;
    let code = loop {
        most = most.max(memory_of(child.id(), "VmHWM:").unwrap_or(0));
        if let Some(code) = child.try_wait()? {
            break code;
        }
        std::thread::sleep(LOOK);
    };
    ensure!(code.success(), "{command:?}: {code}");
    Ok(most)
}

/// Milliseconds of each `quire put` of a small file, a process each.
fn put(image: &Path, size: &str) -> Result<Vec<f64>> {
    run(Command::new(quire()?).args(["create", text(image), "--size", size]))?;
    let file = image.with_file_name("one");
    fs::write(&file, "one file\n")?;
    let mut all = Vec::new();
    for n in 0..PUTS {
        let target = format!("{}:/file{n}", text(image));
        let start = Instant::now();
        run(Command::new(quire()?).args(["put", text(&file), &target]))?;
        all.push(start.elapsed().as_secs_f64() * 1e3);
    }
    run_tool("e2fsck", ["-fn", text(image)])?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_command_that_fails_is_an_error() {
        assert!(watched(&mut Command::new("true")).is_ok());
        assert!(watched(&mut Command::new("false")).is_err());
    }
}
