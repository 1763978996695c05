//! The machine that a study ran on.

use std::fs;

use serde::{Deserialize, Serialize};

/// What of a machine bears on a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub processor: String,
    pub processors: usize,
    pub memory_gib: u64,
    pub kernel: String,
    pub system: String,
}

impl Host {
    /// What a table's heading says of it.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}, {} processors, Linux {}", self.processor, self.processors, self.kernel)
    }

    /// This one.
    #[must_use]
    pub fn here() -> Self {
        let of = |path: &str, key: &str, cut: char| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default().to_owned();
            line.split_once(cut).map_or(String::new(), |(_, value)| value.trim().trim_matches('"').to_owned())
        };
        let memory = of("/proc/meminfo", "MemTotal", ':');
        let kib: u64 = memory.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
        Host {
            processor: of("/proc/cpuinfo", "model name", ':'),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kib.div_ceil(1 << 20),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            system: of("/etc/os-release", "PRETTY_NAME", '='),
        }
    }
}
