//! The figures of a mount: what `/proc/fs/jbd2/DEV/info` tells, and every write, byte and flush by device and region.

use crate::latency::Latency;
use crate::sandbox::SandboxStats;
use crate::transport_choice::TransportStats;
use quire_device::counted::OpStats;
use quire_device::{DeviceLatencies, Region};
use quire_fs::AutoThreshold;
use quire_journal::NvramLogStats;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything, since the mount.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// The profile's name, or the four values where they have none.
    #[serde(default)]
    pub profile: String,
    /// The four choices, as mount options.
    #[serde(default)]
    pub choices: String,
    pub journal: JournalStats,
    /// By device: `fs`, and `journal` where it has its own.
    pub devices: BTreeMap<String, DeviceStats>,
    /// FUSE requests answered.
    pub requests: u64,
    /// The same by kind; operations that were never asked for are left out.
    #[serde(default)]
    pub requests_by_kind: BTreeMap<String, u64>,
    /// Which way requests come.
    #[serde(default)]
    pub transport: TransportStats,
    /// The atomic unit: the largest write request that is whole or absent after a crash, in bytes; 0 where the route
    /// promises none.
    pub atomic_write_bytes: u64,
    /// What a request is: `direct` and `writethrough`, a write(2); `writeback`, pages that the kernel hands over.
    #[serde(default)]
    pub write_path: String,
    pub auto: Option<AutoBoundary>,
    pub read_only: Option<String>,
    /// How long requests took, from their arrival to the reply, by kind.
    #[serde(default)]
    pub request_latency: BTreeMap<String, Latency>,
    /// How long the engine's work took: `fsync`, `commit`, `checkpoint`, `checkpoint_stall`.
    #[serde(default)]
    pub latency: BTreeMap<String, Latency>,
    /// What requests have waited for, in nanoseconds, summed by reason.
    #[serde(default)]
    pub waited_nanos: BTreeMap<String, u64>,
    /// What the daemon has given up.
    #[serde(default)]
    pub sandbox: SandboxStats,
    #[serde(default)]
    pub queue: QueueStats,
    #[serde(default)]
    pub cache: CacheStats,
}

/// Requests that are not answered yet.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct QueueStats {
    /// Sent by the kernel and not answered, as the kernel counts them: those that no worker has read are among them.
    /// `None` where /sys/fs/fuse does not tell.
    pub kernel: Option<u64>,
    /// Being answered, suspended ones included.
    pub under_way: u64,
    /// Of these, those that wait for a commit that another one makes, without a thread.
    pub suspended: u64,
    /// Kept for a thaw.
    pub awaiting_thaw: u64,
    /// Requests that took longer than `slow_ms=`.
    pub slow: u64,
}

/// Blocks and pages in memory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CacheStats {
    /// Blocks that operations found in memory, and blocks that had to be read.
    pub hits: u64,
    pub misses: u64,
    /// Blocks in memory now, and of these those that a transaction or the log pins.
    pub blocks: u64,
    pub pinned_blocks: u64,
    /// Bytes written by callers that wait for writeback.
    pub unwritten_bytes: u64,
}

/// Where `data=auto` draws the line between new data that is logged with a commit and new data that goes in place
/// first.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct AutoBoundary {
    pub threshold_bytes: u64,
    pub flush_micros: u64,
    pub write_micros: u64,
    pub bytes_per_second: u64,
    /// Of the new data that rode, what had to be written home.
    #[serde(default)]
    pub home_percent: u64,
}

impl From<AutoThreshold> for AutoBoundary {
    fn from(f: AutoThreshold) -> Self {
        let micros = |d: std::time::Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        AutoBoundary {
            threshold_bytes: f.bytes,
            flush_micros: micros(f.flush),
            write_micros: micros(f.write),
            bytes_per_second: f.bandwidth,
            home_percent: f.home_percent,
        }
    }
}

/// A journal's figures. Averages are over the transactions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JournalStats {
    pub transactions: u64,
    /// Most blocks to a transaction.
    pub max_blocks: u64,
    pub handles: u64,
    pub blocks: u64,
    pub revokes: u64,
    pub log_blocks: u64,
    pub commit_micros: u64,
    pub checkpoints: u64,
    pub home_blocks: u64,
    /// Records of Quire's log by kind, bytes of those that were packed, and flushes for data in place before a commit.
    #[serde(default)]
    pub whole_records: u64,
    #[serde(default)]
    pub range_records: u64,
    #[serde(default)]
    pub delta_records: u64,
    #[serde(default)]
    pub packed_bytes: u64,
    #[serde(default)]
    pub data_flushes: u64,
    /// Journaled images that died in the log: overwritten or freed before a checkpoint.
    pub never_written_home: u64,
    pub log_used: u64,
    pub log_capacity: u64,
    /// Of a log in NVRAM.
    #[serde(default)]
    pub nvram: Option<NvramStats>,
}

/// A log in NVRAM. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NvramStats {
    pub capacity: u64,
    pub used: u64,
    pub regions: u64,
    /// Labels, descriptors, commits; and images and bodies of records.
    pub metadata_bytes: u64,
    pub data_bytes: u64,
    pub delta_bytes: u64,
    pub region_switches: u64,
    /// Commits that waited for a checkpoint, and how long, summed.
    pub stalls: u64,
    pub stalled_micros: u64,
    pub stores: u64,
    pub lines: u64,
    pub fences: u64,
}

impl From<NvramLogStats> for NvramStats {
    fn from(f: NvramLogStats) -> Self {
        NvramStats {
            capacity: f.capacity,
            used: f.used,
            regions: f.regions,
            metadata_bytes: f.metadata_bytes,
            data_bytes: f.data_bytes,
            delta_bytes: f.delta_bytes,
            region_switches: f.switches,
            stalls: f.stalls,
            stalled_micros: u64::try_from(f.stalled.as_micros()).unwrap_or(u64::MAX),
            stores: f.stores,
            lines: f.lines,
            fences: f.fences,
        }
    }
}

/// A device's figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceStats {
    pub regions: BTreeMap<String, RegionStats>,
    pub flushes: Operations,
    pub discards: Operations,
    pub errors: u64,
    /// How long callers waited: `read`, `write`, `flush`. A batch of operations counts once.
    #[serde(default)]
    pub latency: BTreeMap<String, Latency>,
}

/// A region's figures. `fua` is part of `writes`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RegionStats {
    pub reads: Operations,
    pub writes: Operations,
    pub fua: Operations,
    pub zeroes: Operations,
}

/// How often, how much, how long.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Operations {
    pub count: u64,
    pub bytes: u64,
    pub micros: u64,
}

impl From<OpStats> for Operations {
    fn from(s: OpStats) -> Self {
        Operations { count: s.count, bytes: s.bytes, micros: u64::try_from(s.time.as_micros()).unwrap_or(u64::MAX) }
    }
}

impl From<&quire_device::counted::DeviceStats> for DeviceStats {
    fn from(s: &quire_device::counted::DeviceStats) -> Self {
        let region = |r: Region| {
            let f = s.region(r);
            let figures = RegionStats {
                reads: f.reads.into(),
                writes: f.writes.into(),
                fua: f.fua.into(),
                zeroes: f.zeroes.into(),
            };
            (r.name().to_owned(), figures)
        };
        DeviceStats {
            regions: Region::ALL.into_iter().map(region).collect(),
            flushes: s.flushes.into(),
            discards: s.discards.into(),
            errors: s.errors,
            latency: BTreeMap::new(),
        }
    }
}

impl DeviceStats {
    /// With how long callers waited.
    #[must_use]
    pub fn with_latencies(mut self, l: &DeviceLatencies) -> Self {
        let all = [("read", &l.reads), ("write", &l.writes), ("flush", &l.flushes)];
        self.latency = all.into_iter().map(|(name, l)| (name.to_owned(), l.into())).collect();
        self
    }
}

impl From<quire_journal::JournalStats> for JournalStats {
    fn from(s: quire_journal::JournalStats) -> Self {
        JournalStats {
            transactions: s.transactions,
            max_blocks: s.max_blocks,
            handles: s.handles,
            blocks: s.blocks,
            revokes: s.revokes,
            log_blocks: s.log_blocks,
            commit_micros: u64::try_from(s.commit_time.as_micros()).unwrap_or(u64::MAX),
            checkpoints: s.checkpoints,
            home_blocks: s.home_blocks,
            whole_records: s.whole_records,
            range_records: s.range_records,
            delta_records: s.delta_records,
            packed_bytes: s.packed_bytes,
            data_flushes: s.data_flushes,
            never_written_home: s.memory.never_written_home,
            log_used: s.log_used,
            log_capacity: s.log_capacity,
            nvram: s.nvram.map(Into::into),
        }
    }
}
