//! `quire stats`: the figures of a mount.

use crate::exit;
use quire_mount::stats::{DeviceFigures, Figures, JournalFigures, NvramFigures};
use quire_mount::{Control, Stats};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the figures of a mount: its journal, and every write, byte and flush by device and region.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire stats /mnt
  quire stats --json /mnt | jq .journal.transactions")]
pub(crate) struct Args {
    /// A directory of the mount
    dir: PathBuf,
    /// As JSON, with every figure
    #[arg(long)]
    json: bool,
}

const NAME: &str = "stats";

pub(crate) fn run(args: &Args) -> ExitCode {
    let text = match Control::open(&args.dir).and_then(|(control, _)| control.stats()) {
        Ok(text) => text,
        Err(e) => return exit::fail(NAME, exit::FAILURE, e),
    };
    if args.json {
        println!("{text}");
        return ExitCode::SUCCESS;
    }
    match serde_json::from_str::<Stats>(&text) {
        Ok(stats) => print!("{}", table(&stats)),
        Err(e) => return exit::fail(NAME, exit::FAILURE, format_args!("{}: {e}", args.dir.display())),
    }
    ExitCode::SUCCESS
}

fn table(s: &Stats) -> String {
    let mut out = format!("profile {} ({})\n", s.profile, s.choices);
    out.push_str(&journal(&s.journal));
    let j = &s.journal;
    if j.whole_records + j.range_records + j.delta_records > 0 {
        out.push_str(&format!(
            "records: {} whole, {} of ranges, {} deltas, {} bytes packed; {} flushes for data before a commit\n",
            j.whole_records, j.range_records, j.delta_records, j.packed_bytes, j.data_flushes
        ));
    }
    if let Some(n) = &j.nvram {
        out.push_str(&nvram(n, j.delta_records));
    }
    let mut kinds: Vec<_> = s.requests_by_kind.iter().collect();
    kinds.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let kinds: Vec<_> = kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    out.push_str(&format!("\n{} FUSE requests: {}\n", s.requests, kinds.join(", ")));
    if s.atomic_write_bytes > 0 {
        out.push_str(&format!("write requests of up to {} bytes are all or nothing\n", s.atomic_write_bytes));
    }
    if let Some(a) = &s.auto {
        out.push_str(&format!(
            "new data of up to {} bytes is logged with its commit (a flush takes {} us, a small write {} us; {} MB/s; {} % goes home later)\n",
            a.threshold_bytes,
            a.flush_micros,
            a.write_micros,
            a.bytes_per_second / 1_000_000,
            a.home_percent
        ));
    }
    if let Some(why) = &s.read_only {
        out.push_str(&format!("read-only: {why}\n"));
    }
    for (name, device) in &s.devices {
        out.push_str(&device_table(name, device));
    }
    out
}

/// Worded as `/proc/fs/jbd2/DEV/info`.
fn journal(j: &JournalFigures) -> String {
    let per = |n: u64| n.checked_div(j.transactions).unwrap_or(0);
    format!(
        "{} transactions, each up to {} blocks\naverage:\n  {}us to commit a transaction\n  {} handles per transaction\n  \
         {} blocks per transaction\n  {} logged blocks per transaction\n{} revokes, {} checkpoints, {} blocks written home, {} never had to be\n\
         log: {} of {} blocks in use\n",
        j.transactions,
        j.max_blocks,
        per(j.commit_micros),
        per(j.handles),
        per(j.blocks),
        per(j.log_blocks),
        j.revokes,
        j.checkpoints,
        j.home_blocks,
        j.never_written_home,
        j.log_used,
        j.log_capacity,
    )
}

/// A log in NVRAM: all sizes in bytes.
fn nvram(n: &NvramFigures, deltas: u64) -> String {
    let per = |sum: u64, count: u64| sum.checked_div(count).unwrap_or(0);
    format!(
        "NVRAM: {} of {} bytes in use, {} region(s), {} left for the next\n  stored: {} bytes of metadata, {} of data; {} bytes to a delta; \
         {} cache lines, {} fences\n  stalls: {} commits waited for a checkpoint, {}us each\n",
        n.used,
        n.capacity,
        n.regions,
        n.region_switches,
        n.metadata_bytes,
        n.data_bytes,
        per(n.delta_bytes, deltas),
        n.lines,
        n.fences,
        n.stalls,
        per(n.stalled_micros, n.stalls),
    )
}

fn device_table(name: &str, d: &DeviceFigures) -> String {
    let mut out =
        format!("\ndevice {name:<10} {:>9} {:>13} {:>9} {:>13} {:>9}\n", "reads", "bytes", "writes", "bytes", "FUA");
    for (region, r) in &d.regions {
        let (reads, writes): (Figures, Figures) = (r.reads, r.writes);
        out.push_str(&format!(
            "  {region:<15} {:>9} {:>13} {:>9} {:>13} {:>9}\n",
            reads.count, reads.bytes, writes.count, writes.bytes, r.fua.count
        ));
    }
    let mean = |f: Figures| f.micros.checked_div(f.count).unwrap_or(0);
    out.push_str(&format!(
        "  {} flushes ({}us each), {} discards ({} bytes), {} errors\n",
        d.flushes.count,
        mean(d.flushes),
        d.discards.count,
        d.discards.bytes,
        d.errors
    ));
    out
}
