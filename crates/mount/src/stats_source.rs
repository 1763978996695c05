//! Where `quire stats` comes from: the volume, its devices and the requests, put into [`Stats`].

use crate::meter::Meter;
use crate::options::WritePath;
use crate::sandbox;
use crate::stats::{CacheStats, DeviceStats, QueueStats, Stats};
use crate::transport_choice::TransportCounters;
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, Counted};
use quire_fs::{Choices, Volume};

/// An image file, disk or other device, counted.
pub(crate) type Disk = Counted<Arc<dyn BlockDevice>>;

/// What a mount has to tell figures of.
pub(crate) struct StatsSource {
    pub(crate) volume: Volume,
    pub(crate) fs: Arc<Disk>,
    pub(crate) journal: Option<Arc<Disk>>,
    pub(crate) choices: Choices,
    /// What `profile` is shown as.
    pub(crate) profile: String,
    pub(crate) write_path: Arc<Mutex<WritePath>>,
    pub(crate) transport: Arc<TransportCounters>,
    /// The mount's device number, as `/proc/self/mountinfo` has it.
    pub(crate) connection: Option<String>,
}

impl StatsSource {
    pub(crate) fn json(&self, meter: &Meter, awaiting_thaw: usize) -> String {
        serde_json::to_string(&self.stats(meter, awaiting_thaw)).unwrap_or_default()
    }

    fn stats(&self, meter: &Meter, awaiting_thaw: usize) -> Stats {
        let maintenance = self.volume.maintenance();
        let (journal, limits) = (maintenance.journal_stats(), self.volume.limits());
        let requests = meter.begun();
        let mut stats = Stats {
            requests: requests.values().sum(),
            requests_by_kind: requests,
            profile: self.profile.clone(),
            choices: self.choices.to_string(),
            atomic_write_bytes: limits.atomic_bytes.map_or(0, |n| u64::try_from(n).unwrap_or(0)),
            write_path: lock(&self.write_path).name().to_owned(),
            transport: self.transport.stats(),
            sandbox: sandbox::held(),
            auto: limits.auto_threshold.map(Into::into),
            read_only: self.volume.status().read_only,
            ..Stats::default()
        };
        stats.cache = CacheStats {
            hits: journal.memory.hits,
            misses: journal.memory.misses,
            blocks: journal.memory.cached as u64,
            pinned_blocks: journal.memory.pinned as u64,
            unwritten_bytes: maintenance.unwritten_bytes(),
        };
        stats.queue = QueueStats {
            kernel: self.connection.as_deref().and_then(waiting_in_kernel),
            under_way: meter.under_way(),
            suspended: journal.memory.suspended as u64,
            awaiting_thaw: awaiting_thaw as u64,
            slow: meter.slow(),
        };
        stats.journal = journal.into();
        for (kind, took) in meter.took() {
            let sum = stats.request_latency.entry(kind.to_owned()).or_default();
            *sum = sum.and(&(&took).into());
        }
        let of_volume = maintenance.latencies();
        let of_journal = &of_volume.journal;
        for (name, took) in [
            ("fsync", &of_volume.fsync),
            ("commit", &of_journal.commit),
            ("checkpoint", &of_journal.checkpoint),
            ("checkpoint_stall", &of_journal.checkpoint_stall),
        ] {
            stats.latency.insert(name.to_owned(), took.into());
        }
        let nanos = |d: std::time::Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        stats.waited_nanos = meter.waited().map(|(reason, d)| (reason.to_owned(), nanos(d))).collect();
        for (name, disk) in [("fs", Some(&self.fs)), ("journal", self.journal.as_ref())] {
            if let Some(disk) = disk {
                let figures = DeviceStats::from(&disk.snapshot()).with_latencies(&disk.latencies());
                stats.devices.insert(name.to_owned(), figures);
            }
        }
        stats
    }
}

/// The kernel's count of requests without an answer, of the connection with this device number.
fn waiting_in_kernel(device: &str) -> Option<u64> {
    let (major, minor) = device.split_once(':')?;
    // The directory's name is the number as the kernel keeps it, with 20 bits for the minor.
    let number = major.parse::<u64>().ok()? << 20 | minor.parse::<u64>().ok()?;
    let text = std::fs::read_to_string(format!("/sys/fs/fuse/connections/{number}/waiting")).ok()?;
    text.trim().parse().ok()
}
