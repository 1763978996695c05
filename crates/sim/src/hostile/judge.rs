//! Runs one case under limits: panics are caught, time and memory are measured.

use super::base::Base;
use super::case::Case;
use super::drive::{Said, drive};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::time::Duration;

/// Processor time that one case may take.
pub const MAX_TIME: Duration = Duration::from_secs(2);
/// KiB by which one case may raise the peak of the resident set.
pub const MAX_MEMORY: u64 = 96 << 10;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Inside of [`judge`]: panics are kept.
    static KEEP: Cell<bool> = const { Cell::new(false) };
}

/// Runs one case.
///
/// # Errors
/// What it did that it must not.
pub fn judge(base: &Base, case: &Case) -> Result<Said, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(remember_panics);
    let image = case.image(base);
    let (memory, time) = (peak(), thread_time());
    PANIC.set(None);
    KEEP.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| drive(base, case, &image)));
    KEEP.set(false);
    let (more, took) = (peak().saturating_sub(memory), thread_time().saturating_sub(time));
    let said = result.unwrap_or_else(|_| Err(PANIC.take().unwrap_or_else(|| "panic".to_owned())))?;
    if took > MAX_TIME {
        return Err(format!("{took:?} of processor time"));
    }
    if more > MAX_MEMORY {
        return Err(format!("{more} KiB of memory"));
    }
    Ok(said)
}

/// Within [`judge`], keeps what a panic says and our own functions on the stack, instead of printing them.
fn remember_panics() {
    let before = take_hook();
    set_hook(Box::new(move |info| {
        if !KEEP.get() {
            return before(info);
        }
        let stack = Backtrace::force_capture().to_string();
        let ours = |l: &&str| l.contains("quire_") && !l.contains("hostile");
        let ours: Vec<&str> = stack.lines().filter(ours).map(str::trim).take(8).collect();
        PANIC.with_borrow_mut(|p| {
            p.get_or_insert_with(|| format!("{info}\n    {}", ours.join("\n    ")));
        });
    }));
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.try_into().unwrap_or(0), t.tv_nsec.try_into().unwrap_or(0))
}

/// Peak resident set of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}
