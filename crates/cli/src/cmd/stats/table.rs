//! The figures of a mount as text.

use quire_mount::stats::{DeviceStats, JournalStats, NvramStats, Operations};
use quire_mount::{Latency, Stats};

pub(super) fn table(s: &Stats) -> String {
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
    let t = &s.transport;
    match t.queues {
        0 => out.push_str("requests come over /dev/fuse\n"),
        queues => out.push_str(&format!("requests come by io_uring: {queues} queues, {} entries\n", t.entries)),
    }
    out.push_str(&format!("sandbox: {}\n", s.sandbox));
    if s.atomic_write_bytes > 0 {
        out.push_str(&format!("atomic unit: {}\n", atomic_unit(s)));
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
    out.push_str(&latencies(s));
    out
}

/// Percentiles, in microseconds.
fn latencies(s: &Stats) -> String {
    let mut out = format!(
        "\n{:<24} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "latency (us)", "count", "p50", "p90", "p99", "p99.9", "max"
    );
    let engine = s.latency.iter().map(|(name, l)| (name.clone(), l));
    let devices =
        s.devices.iter().flat_map(|(device, d)| d.latency.iter().map(move |(n, l)| (format!("{device} {n}"), l)));
    let requests = s.request_latency.iter().map(|(kind, l)| (format!("request {kind}"), l));
    for (name, l) in engine.chain(devices).chain(requests).filter(|(_, l)| l.count > 0) {
        let Latency { p50_nanos, p90_nanos, p99_nanos, p999_nanos, max_nanos, .. } = l;
        let micros: String = [p50_nanos, p90_nanos, p99_nanos, p999_nanos, max_nanos]
            .iter()
            .map(|n| format!(" {:>9}", n.div_ceil(1000)))
            .collect();
        out.push_str(&format!("{name:<24} {:>9}{micros}\n", l.count));
    }
    let q = &s.queue;
    let thaw = if q.awaiting_thaw > 0 { format!(", {} await a thaw", q.awaiting_thaw) } else { String::new() };
    out.push_str(&format!("{} requests under way, {} of them wait for a commit{thaw}\n", q.under_way, q.suspended));
    let c = &s.cache;
    out.push_str(&format!(
        "blocks in memory: {}, {} pinned; {} found, {} read; {} bytes wait for writeback\n",
        c.blocks, c.pinned_blocks, c.hits, c.misses, c.unwritten_bytes
    ));
    let waited: Vec<_> = s.waited_nanos.iter().filter(|(_, n)| **n > 0).collect();
    let waited: Vec<_> = waited.iter().map(|(reason, n)| format!("{reason} {} ms", **n / 1_000_000)).collect();
    if !waited.is_empty() {
        out.push_str(&format!("requests have waited for: {}\n", waited.join(", ")));
    }
    out
}

/// What is whole or absent after a crash, and what makes it one request.
fn atomic_unit(s: &Stats) -> String {
    let request = match s.write_path.as_str() {
        "direct" => "each write(2) is one request",
        "writethrough" => {
            "each write(2) of whole pages is one request, unless the kernel meets memory that is not there"
        }
        _ => "the kernel's page cache decides what a request is (profile=database: a write(2))",
    };
    format!("write requests of up to {} bytes are all or nothing; {request}", s.atomic_write_bytes)
}

/// Worded as `/proc/fs/jbd2/DEV/info`.
fn journal(j: &JournalStats) -> String {
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
fn nvram(n: &NvramStats, deltas: u64) -> String {
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

fn device_table(name: &str, d: &DeviceStats) -> String {
    let mut out =
        format!("\ndevice {name:<10} {:>9} {:>13} {:>9} {:>13} {:>9}\n", "reads", "bytes", "writes", "bytes", "FUA");
    for (region, r) in &d.regions {
        let (reads, writes): (Operations, Operations) = (r.reads, r.writes);
        out.push_str(&format!(
            "  {region:<15} {:>9} {:>13} {:>9} {:>13} {:>9}\n",
            reads.count, reads.bytes, writes.count, writes.bytes, r.fua.count
        ));
    }
    let mean = |f: Operations| f.micros.checked_div(f.count).unwrap_or(0);
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
