//! `quire stats`: the figures of mounts, as text, as JSON and for Prometheus.

mod families;
mod prometheus;
mod serve;
mod table;

use crate::exit;
use quire_mount::{Control, ControlError, Stats};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show the figures of a mount: latencies, its journal, and every write, byte and flush by device and region.
///
/// "atomic unit" is the largest write request that is whole or absent after a crash, and what makes a write(2) one
/// request (in JSON: atomic_write_bytes, write_path).
///
/// --serve answers GET /metrics for Prometheus until it is interrupted; the daemon is asked once for each.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire stats /mnt
  quire stats --json /mnt | jq .latency.fsync.p99_nanos
  quire stats --serve 127.0.0.1:9847 /mnt /srv/db")]
pub(crate) struct Args {
    /// A directory of the mount; several with --prometheus and --serve
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// As JSON, with every figure
    #[arg(long)]
    json: bool,
    /// In the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Serve /metrics over HTTP on PORT, ADDRESS:PORT, or a unix socket (a path with /); PORT alone is on 127.0.0.1
    #[arg(long, value_name = "ADDR|SOCKET", conflicts_with_all = ["json", "prometheus"])]
    serve: Option<String>,
}

const NAME: &str = "stats";

/// Why there are no figures.
#[derive(Debug)]
pub(crate) enum NoStats {
    Control(ControlError),
    Garbled(PathBuf, serde_json::Error),
}

impl std::fmt::Display for NoStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoStats::Control(e) => e.fmt(f),
            NoStats::Garbled(dir, e) => write!(f, "{}: {e}", dir.display()),
        }
    }
}

fn json(dir: &Path) -> Result<String, NoStats> {
    Control::open(dir).and_then(|(control, _)| control.stats()).map_err(NoStats::Control)
}

/// The figures of a mount.
pub(crate) fn stats(dir: &Path) -> Result<Stats, NoStats> {
    serde_json::from_str(&json(dir)?).map_err(|e| NoStats::Garbled(dir.to_owned(), e))
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Some(to) = &args.serve {
        return serve::run(to, {
            let dirs = args.dirs.clone();
            move || exposition_of_what_answers(&dirs)
        });
    }
    if args.dirs.len() > 1 && !args.prometheus {
        return exit::fail(NAME, exit::USAGE, "several directories need --prometheus or --serve");
    }
    let text = if args.prometheus {
        exposition(&args.dirs)
    } else if args.json {
        json(&args.dirs[0]).map(|text| text + "\n")
    } else {
        stats(&args.dirs[0]).map(|stats| table::table(&stats))
    };
    match text {
        Ok(text) => exit::print(NAME, &text, 0, exit::FAILURE),
        Err(e) => exit::fail(NAME, exit::FAILURE, e),
    }
}

/// All mounts in the text format of Prometheus; the first that does not answer is the error.
fn exposition(dirs: &[PathBuf]) -> Result<String, NoStats> {
    let mut mounts = Vec::new();
    for dir in dirs {
        mounts.push((dir.display().to_string(), Some(stats(dir)?)));
    }
    Ok(prometheus::text(&mounts))
}

/// The same, where a mount that does not answer is one that is not up.
fn exposition_of_what_answers(dirs: &[PathBuf]) -> String {
    let mounts: Vec<_> = dirs.iter().map(|dir| (dir.display().to_string(), stats(dir).ok())).collect();
    prometheus::text(&mounts)
}
