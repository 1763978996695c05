//! Halt polling: idle CPUs of a virtual machine do not halt while requests flow.
//!
//! A request and its reply are two wake-ups. Where the CPU that is to run next has halted, each is an exit to the
//! hypervisor: measured on a KVM guest, 46 us for a GETATTR instead of 8. The kernel's own remedy is the `haltpoll`
//! governor's `guest_halt_poll_ns`, which many guests leave at 0. The same can be asked for a while through PM QoS: a
//! latency of 0 us on `/dev/cpu_dma_latency` makes idle CPUs poll (Documentation/power/pm_qos_interface.rst). The
//! request is held only while FUSE requests come, and only under that governor: elsewhere an idle state is left in a
//! microsecond or two. The kernel drops it with the descriptor. Needs root.

use quire_device::sync::atomic::{AtomicBool, Ordering};
use std::fs::{self, File};
use std::io::Write;

const GOVERNOR: &str = "/sys/devices/system/cpu/cpuidle/current_governor";
const POLLS: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
const LATENCY: &str = "/dev/cpu_dma_latency";
/// Microseconds; the kernel's value for "no request".
const NO_REQUEST: i32 = 2_000_000_000;

/// Asks the kernel to keep idle CPUs awake.
#[derive(Default)]
pub(crate) struct HaltPoll {
    /// The request lasts as long as this is open; `None` where there is nothing to ask for.
    device: Option<File>,
    held: AtomicBool,
}

impl HaltPoll {
    /// Looks whether it would help, and is permitted.
    pub(crate) fn open() -> Self {
        let reads = |path, what| fs::read_to_string(path).is_ok_and(|s| s.trim() == what);
        if !(reads(GOVERNOR, "haltpoll") && reads(POLLS, "0")) {
            return Self::default();
        }
        let device = File::options().write(true).open(LATENCY);
        match &device {
            Ok(_) => tracing::debug!("idle CPUs will poll while requests come"),
            Err(e) => tracing::debug!("{LATENCY}: {e}; idle CPUs halt between requests"),
        }
        let this = HaltPoll { device: device.ok(), held: AtomicBool::new(true) };
        this.set(false);
        this
    }

    /// Holds the request, or drops it.
    pub(crate) fn set(&self, hold: bool) {
        let Some(mut device) = self.device.as_ref() else { return };
        if self.held.swap(hold, Ordering::Relaxed) != hold {
            let latency = if hold { 0 } else { NO_REQUEST };
            if let Err(e) = device.write_all(&latency.to_ne_bytes()) {
                tracing::debug!("{LATENCY}: {e}");
            }
        }
    }
}
