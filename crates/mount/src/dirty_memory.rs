//! How much of all files the kernel holds in memory and has not handed over.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// More bytes of `/proc/meminfo` than are looked at.
const MEMINFO_BYTES: usize = 4096;

/// The kernel's figures; opened before the sandbox, which shows no other file of `/proc`.
pub(crate) struct DirtyMemory(Option<File>);

impl DirtyMemory {
    pub(crate) fn open() -> Self {
        DirtyMemory(File::open("/proc/meminfo").ok())
    }

    /// Bytes that wait for writeback or are under it. `None`: the host does not tell.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let mut buf = [0; MEMINFO_BYTES];
        let n = self.0.as_ref()?.read_at(&mut buf, 0).ok()?;
        waiting(std::str::from_utf8(&buf[..n]).ok()?)
    }
}

/// The bytes of these lines of a meminfo: `Dirty: 12 kB`.
fn waiting(meminfo: &str) -> Option<u64> {
    let of = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let sum = of("Dirty")?.checked_add(of("Writeback")?)?.checked_add(of("WritebackTmp").unwrap_or(0))?;
    sum.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_the_sum_of_three_lines() {
        let meminfo = "MemTotal:  24105 kB\nDirty:        12 kB\nWriteback:     3 kB\nWritebackTmp:  1 kB\n";
        assert_eq!(waiting(meminfo), Some(16 << 10));
        assert_eq!(waiting("Dirty: 5 kB\nWriteback: 0 kB\n"), Some(5 << 10));
        assert_eq!(waiting("MemTotal: 5 kB\n"), None);
        assert!(DirtyMemory::open().bytes().is_some(), "Linux tells");
    }
}
