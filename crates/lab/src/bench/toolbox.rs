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
use serde_json::json;

use super::work;
use crate::cmd::{command, quire, run, run_tool, text};
use crate::mounter::Mounter;
use crate::results::Host;
use crate::stats::{float, median};
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

/// A row of the table: a name, its unit, and the values of each way in all rounds.
struct Row {
    name: &'static str,
    unit: &'static str,
    values: Vec<Vec<f64>>,
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
        mib(fs::metadata(&tar)?.len()),
        size >> 20
    );
    let (mut seconds, mut memory) = (vec![Vec::new(); WAYS.len()], vec![Vec::new(); WAYS.len()]);
    for round in 0..plan.rounds {
        for turn in 0..WAYS.len() {
            let way = (turn + round) % WAYS.len();
            eprintln!("round {}: {}", round + 1, WAYS[way]);
            let image = dir.path().join("image");
            let made = make(way, &image, &tree, &tar, size).with_context(|| WAYS[way])?;
            run_tool("e2fsck", ["-fn", text(&image)]).with_context(|| WAYS[way])?;
            fs::remove_file(&image)?;
            seconds[way].push(made.seconds);
            memory[way].push(float(made.bytes) / float(1 << 20));
        }
    }
    let mut puts = vec![Vec::new(); WAYS.len()];
    puts[1] = put(&dir.path().join("large"), &plan.large)?;
    let rows = [
        Row { name: "the tree into a new image", unit: "s", values: seconds },
        Row { name: "memory, at most", unit: "MiB", values: memory },
        Row { name: "`quire put` of one file into a large image", unit: "ms", values: puts },
    ];
    print(&rows);
    plan.save.as_ref().map_or(Ok(()), |file| save(file, plan, &rows))
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
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut most = 0;
    let code = loop {
        let peak = fs::read_to_string(&status).ok().and_then(|s| peak_of(&s));
        most = most.max(peak.unwrap_or(0));
        if let Some(code) = child.try_wait()? {
            break code;
        }
        std::thread::sleep(LOOK);
    };
    ensure!(code.success(), "{command:?}: {code}");
    Ok(most)
}

/// VmHWM of a status file in /proc, in bytes.
fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
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

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn middle(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| median(values))
}

fn print(rows: &[Row]) {
    println!("| | unit | {} |\n|---|---|{}", WAYS.join(" | "), "---|".repeat(WAYS.len()));
    for row in rows {
        let cell = |values: &Vec<f64>| middle(values).map_or("-".to_owned(), |v| format!("{v:.2}"));
        let cells: Vec<String> = row.values.iter().map(cell).collect();
        println!("| {} | {} | {} |", row.name, row.unit, cells.join(" | "));
    }
}

fn save(file: &Path, plan: &Plan, rows: &[Row]) -> Result<()> {
    let host = Host::here();
    let round = |v: f64| (v * 1000.0).round() / 1000.0;
    let range = |values: &Vec<f64>| {
        let least = values.iter().copied().min_by(f64::total_cmp)?;
        Some([round(least), round(values.iter().copied().max_by(f64::total_cmp)?)])
    };
    let spread: serde_json::Map<_, _> =
        rows.iter().map(|r| (r.name.to_owned(), json!(r.values.iter().map(range).collect::<Vec<_>>()))).collect();
    let table: Vec<_> = rows
        .iter()
        .map(|r| json!([r.name, r.unit, r.values.iter().map(|v| middle(v).map(round)).collect::<Vec<_>>()]))
        .collect();
    let data = json!({
        "title": "A tree into a new image, and one file into a large one",
        "date": run(Command::new("date").arg("+%F"))?.trim(),
        "host": format!("{}, {} processors, Linux {}", host.processor, host.processors, host.kernel),
        "note": format!("Medians of {} rounds, {} files, in brackets the ratio to `mke2fs -d`, then the least and the \
            most; put: {PUTS} files into an image of {}, a process each. `tar into a mount` includes formatting, \
            mounting and unmounting; its memory is the daemon's.", plan.rounds, plan.files, plan.large),
        "command": "sudo scripts/bench.sh toolbox --save bench/results/toolbox.json",
        "columns": WAYS, "base": 0, "rows": table, "spread": spread,
    });
    Ok(fs::write(file, serde_json::to_string_pretty(&data)? + "\n")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_a_status_file() {
        assert_eq!(peak_of("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 12 kB\n"), Some(2 << 20));
        assert_eq!(peak_of("Name:\tx\n"), None);
    }

    #[test]
    fn a_watched_command_that_fails_is_an_error() {
        assert!(watched(&mut Command::new("true")).is_ok());
        assert!(watched(&mut Command::new("false")).is_err());
    }
}
