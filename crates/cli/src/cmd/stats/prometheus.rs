//! The figures of mounts as metrics.

use super::families::Families;
use quire_mount::Stats;
use quire_mount::stats::DeviceStats;

type Labels<'a> = &'a [(&'a str, &'a str)];

/// All mounts, by their directories; `None`: it did not answer.
pub(super) fn text(mounts: &[(String, Option<Stats>)]) -> String {
    let mut f = Families::default();
    for (dir, stats) in mounts {
        let mount = [("mount", dir.as_str())];
        let up = if stats.is_some() { 1.0 } else { 0.0 };
        f.gauge("quire_up", "1 if the mount answered.", &mount, up);
        if let Some(s) = stats {
            add(&mut f, dir, s);
        }
    }
    f.text()
}

fn add(f: &mut Families, dir: &str, s: &Stats) {
    let mount = [("mount", dir)];
    f.gauge("quire_info", "The profile of the mount.", &[("mount", dir), ("profile", s.profile.as_str())], 1.0);
    let read_only = if s.read_only.is_some() { 1.0 } else { 0.0 };
    f.gauge("quire_read_only", "1 if nothing may be written.", &mount, read_only);
    for (part, holds) in [("landlock", s.sandbox.landlock_abi.is_some()), ("seccomp", s.sandbox.seccomp)] {
        let help = "1 if the daemon is confined by this part of the kernel.";
        f.gauge("quire_sandboxed", help, &[("mount", dir), ("part", part)], f64::from(u8::from(holds)));
    }
    let atomic = float(s.atomic_write_bytes);
    f.gauge("quire_atomic_write_bytes", "Largest write request that is whole or absent after a crash.", &mount, atomic);
    requests(f, dir, s);
    latencies(f, &mount, s);
    journal(f, &mount, s);
    memory(f, &mount, s);
    for (name, d) in &s.devices {
        device(f, dir, name, d);
    }
}

/// A count; it is exact below 2^53.
#[allow(clippy::cast_precision_loss, reason = "Prometheus keeps numbers so")]
fn float(n: u64) -> f64 {
    n as f64
}

fn seconds(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}

fn requests(f: &mut Families, dir: &str, s: &Stats) {
    let mount = [("mount", dir)];
    for (kind, n) in &s.requests_by_kind {
        let labels = [("mount", dir), ("kind", kind.as_str())];
        f.counter("quire_requests_total", "Requests of the kernel.", &labels, float(*n));
    }
    for (kind, l) in &s.request_latency {
        let labels = [("mount", dir), ("kind", kind.as_str())];
        f.histogram("quire_request_duration_seconds", "From a request's arrival to its reply.", &labels, l);
    }
    for (reason, n) in &s.waited_nanos {
        let labels = [("mount", dir), ("reason", reason.as_str())];
        f.counter("quire_request_wait_seconds_total", "What requests have waited for.", &labels, seconds(*n));
    }
    let q = &s.queue;
    if let Some(n) = q.kernel {
        f.gauge("quire_queue_requests", "Requests that the kernel has sent and that have no reply.", &mount, float(n));
    }
    f.gauge("quire_requests_under_way", "Requests that are being answered.", &mount, float(q.under_way));
    f.gauge(
        "quire_requests_suspended",
        "Requests that wait for a commit without a thread.",
        &mount,
        float(q.suspended),
    );
    let thaw = float(q.awaiting_thaw);
    f.gauge("quire_requests_awaiting_thaw", "Requests that are kept for a thaw.", &mount, thaw);
    f.counter("quire_slow_requests_total", "Requests that took longer than slow_ms.", &mount, float(q.slow));
}

fn latencies(f: &mut Families, mount: Labels<'_>, s: &Stats) {
    for (key, name, help) in [
        ("fsync", "quire_fsync_duration_seconds", "Calls of fsync and fdatasync, and what is made durable as such."),
        ("commit", "quire_commit_duration_seconds", "From closing a transaction to its being durable."),
        ("checkpoint", "quire_checkpoint_duration_seconds", "Writing blocks home and freeing log space."),
        ("checkpoint_stall", "quire_checkpoint_stall_duration_seconds", "Commits that waited for a checkpoint."),
    ] {
        f.histogram(name, help, mount, s.latency.get(key).unwrap_or(&quire_mount::Latency::default()));
    }
}

fn journal(f: &mut Families, mount: Labels<'_>, s: &Stats) {
    let j = &s.journal;
    for (name, help, n) in [
        ("quire_transactions_total", "Transactions committed.", j.transactions),
        ("quire_transaction_blocks_total", "Blocks in all transactions.", j.blocks),
        ("quire_transaction_operations_total", "Operations in all transactions.", j.handles),
        ("quire_revokes_total", "Revokes logged.", j.revokes),
        ("quire_log_blocks_written_total", "Blocks written to the log.", j.log_blocks),
        ("quire_home_blocks_written_total", "Blocks that checkpoints wrote home.", j.home_blocks),
        ("quire_home_blocks_spared_total", "Logged blocks that never had to be written home.", j.never_written_home),
        ("quire_data_flushes_total", "Flushes for data in place before a commit.", j.data_flushes),
    ] {
        f.counter(name, help, mount, float(n));
    }
    let (used, capacity) = j.nvram.map_or((j.log_used, j.log_capacity), |n| (n.used, n.capacity));
    f.gauge("quire_log_used_blocks", "Blocks of the log in use.", mount, float(j.log_used));
    f.gauge("quire_log_capacity_blocks", "Blocks of the log.", mount, float(j.log_capacity));
    let fill = if capacity == 0 { 0.0 } else { float(used) / float(capacity) };
    f.gauge("quire_log_fill_ratio", "The share of the log in use; of one in NVRAM, too.", mount, fill);
}

fn memory(f: &mut Families, mount: Labels<'_>, s: &Stats) {
    let c = &s.cache;
    f.counter("quire_cache_hits_total", "Blocks that operations found in memory.", mount, float(c.hits));
    f.counter("quire_cache_misses_total", "Blocks that operations had to read.", mount, float(c.misses));
    f.gauge("quire_cache_blocks", "Blocks in memory.", mount, float(c.blocks));
    f.gauge(
        "quire_cache_pinned_blocks",
        "Of these, pinned by a transaction or the log.",
        mount,
        float(c.pinned_blocks),
    );
    f.gauge("quire_unwritten_bytes", "Bytes written that wait for writeback.", mount, float(c.unwritten_bytes));
}

fn device(f: &mut Families, dir: &str, name: &str, d: &DeviceStats) {
    for (region, r) in &d.regions {
        for (op, n) in [("read", r.reads), ("write", r.writes), ("zero", r.zeroes)] {
            let labels = [("mount", dir), ("device", name), ("region", region.as_str()), ("op", op)];
            f.counter("quire_device_bytes_total", "Bytes by what they were for.", &labels, float(n.bytes));
            f.counter("quire_device_operations_total", "Operations by what they were for.", &labels, float(n.count));
        }
    }
    for (op, l) in &d.latency {
        let labels = [("mount", dir), ("device", name), ("op", op.as_str())];
        f.histogram("quire_device_duration_seconds", "How long callers waited for the device.", &labels, l);
    }
    let labels = [("mount", dir), ("device", name)];
    f.counter("quire_device_flushes_total", "Flushes.", &labels, float(d.flushes.count));
    f.counter("quire_device_discarded_bytes_total", "Bytes discarded.", &labels, float(d.discards.bytes));
    f.counter("quire_device_errors_total", "Batches that failed.", &labels, float(d.errors));
}

#[cfg(test)]
#[path = "prometheus_tests.rs"]
mod tests;
