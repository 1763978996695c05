//! A worker and its caller kept on two CPUs.
//!
//! A caller sleeps while we answer, and the scheduler may wake it where we run. There it can stay although another CPU
//! idles: the two take turns on one CPU and never want it at once, so that no load is seen that could be spread. Each
//! request then takes two switches of that CPU, and nothing of ours is done while the caller does its own part:
//! deleting a file took 39 us thus, and 25 on two CPUs.
//!
//! Who looks for requests ([`crate::channel`]) sleeps seldom, so that each time it lost its CPU somebody else ran
//! there. Where that comes with every other request, the worker moves to another CPU, and is free again to be put
//! anywhere it was allowed to be. Where others want the CPUs it would only wait there, and stays.

use libc::c_long;
use quire_device::{Clock, SystemClock};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::cell::RefCell;
use std::fs;
use std::time::Duration;

const LOAD: &str = "/proc/loadavg";
/// Requests between two judgements.
const WINDOW: u32 = 16;
/// Who lost its CPU so often meanwhile shares it with whoever sends the requests.
const OFTEN: c_long = 8;
/// It is not tried again sooner.
const STAY: Duration = Duration::from_millis(5);

thread_local! {
    static SIGHT: RefCell<Sight> = RefCell::default();
}

/// The calling worker, which looks for requests, has got one.
pub(crate) fn received() {
    if SIGHT.with_borrow_mut(|sight| sight.received(times_lost, || SystemClock.monotonic())) {
        step_aside();
    }
}

/// What a worker has seen of its own CPU.
#[derive(Default)]
struct Sight {
    requests: u32,
    /// How often it had lost its CPU at the last judgement.
    lost: c_long,
    tried: Option<Duration>,
}

impl Sight {
    /// True if the worker is to try to move.
    fn received(&mut self, lost: impl FnOnce() -> c_long, now: impl FnOnce() -> Duration) -> bool {
        self.requests += 1;
        if self.requests < WINDOW {
            return false;
        }
        self.requests = 0;
        let lost = lost();
        if lost - std::mem::replace(&mut self.lost, lost) < OFTEN {
            return false;
        }
        let now = now();
        let tries = self.tried.is_none_or(|tried| now.saturating_sub(tried) >= STAY);
        if tries {
            self.tried = Some(now);
        }
        tries
    }
}

/// How often the calling thread has lost its CPU to another that wanted it (getrusage(2), `ru_nivcsw`).
fn times_lost() -> c_long {
    // SAFETY: the structure is plain data, which the call fills; it cannot fail for the calling thread.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    usage.ru_nivcsw
}

/// Moves the calling thread to another CPU, if one of those it may run on has nothing to do.
fn step_aside() {
    let Ok(all) = sched_getaffinity(None) else { return };
    let others = without_ours(&all);
    if fs::read_to_string(LOAD).is_ok_and(|load| one_is_free(&load, others.count())) {
        go_to(&others, &all);
    }
}

fn without_ours(all: &CpuSet) -> CpuSet {
    let mut others = *all;
    others.unset(sched_getcpu());
    others
}

/// Who runs or waits for a CPU, we among them, is counted in the fourth field (proc_loadavg(5)); the caller sleeps now.
fn one_is_free(load: &str, others: u32) -> bool {
    let running = load.split(' ').nth(3).and_then(|field| field.split('/').next()?.parse::<u32>().ok());
    running.is_some_and(|running| running <= others)
}

/// Moves the calling thread to one of `others`, from where it may run on `all` again.
fn go_to(others: &CpuSet, all: &CpuSet) {
    if sched_setaffinity(None, others).is_err() {
        return;
    }
    if let Err(e) = sched_setaffinity(None, all) {
        tracing::debug!("a worker stays on {} of its {} CPUs: {e}", others.count(), all.count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::sync::thread;

    /// A worker that loses its CPU `times` in each window of requests that take a microsecond each: after which windows
    /// it tries to move.
    fn moves(times: c_long, windows: usize) -> Vec<usize> {
        let (mut sight, mut now, mut lost) = (Sight::default(), Duration::ZERO, 0);
        let mut window = || {
            lost += times;
            let judged = (0..WINDOW).map(|_| {
                now += Duration::from_micros(1);
                sight.received(|| lost, || now)
            });
            judged.filter(|&tries| tries).count() == 1
        };
        (0..windows).filter(|_| window()).collect()
    }

    #[test]
    fn who_loses_its_cpu_at_each_request_moves_and_then_stays_for_a_while() {
        // A window takes 16 us here: 5 ms are 313 of them.
        assert_eq!(moves(WINDOW.into(), 320), [0, 313]);
        assert_eq!(moves(OFTEN, 10), [0]);
        assert_eq!(moves(OFTEN - 1, 320), [0; 0]);
    }

    #[test]
    fn only_its_own_losses_count_and_only_new_ones() {
        let mut sight = Sight::default();
        let judge = |sight: &mut Sight, lost| {
            (0..WINDOW).any(|_| sight.received(|| lost, || Duration::from_secs(lost.unsigned_abs())))
        };
        assert!(judge(&mut sight, 100));
        assert!(!judge(&mut sight, 100 + OFTEN - 1));
        assert!(judge(&mut sight, 100 + 2 * OFTEN - 1));
        assert!(!judge(&mut sight, 100 + 2 * OFTEN - 1));
    }

    #[test]
    fn it_moves_to_another_cpu_and_may_go_anywhere_again() {
        let all = sched_getaffinity(None).unwrap();
        if all.count() < 2 {
            return;
        }
        // Others may put us back before we have looked.
        let mut moved = 0;
        for _ in 0..100 {
            let before = sched_getcpu();
            go_to(&without_ours(&all), &all);
            moved += u32::from(sched_getcpu() != before);
            assert_eq!(sched_getaffinity(None).unwrap(), all);
        }
        assert!(moved > 50, "moved {moved} times of 100");
    }

    #[test]
    fn with_one_cpu_it_stays() {
        thread::spawn(|| {
            let mut one = CpuSet::new();
            one.set(sched_getcpu());
            sched_setaffinity(None, &one).unwrap();
            step_aside();
            assert_eq!(sched_getaffinity(None).unwrap(), one);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_is_free_where_fewer_run_than_there_are_cpus() {
        let free = |running: &str, others| one_is_free(&format!("0.39 1.54 1.84 {running}/241 12345\n"), others);
        assert!(free("1", 1) && free("3", 3));
        assert!(!free("2", 1) && !free("1", 0) && !free("x", 9));
        assert!(!one_is_free("", 9));
    }
}
