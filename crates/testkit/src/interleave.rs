//! Explores interleavings of threads (feature `shuttle`): a scenario runs again and again, each time with other choices
//! of who goes on at each lock, wait and atomic. A deadlock, a panic, and a failed assertion end it and print the
//! schedule.
//!
//! `QUIRE_SEED` chooses the schedules, `QUIRE_INTERLEAVINGS` how many there are, `QUIRE_SCHEDULE` is one schedule as a
//! failure printed it, to be run again.

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use shuttle::{Config, MaxSteps, Runner};

/// A whole file system runs on a stack.
const STACK: usize = 1 << 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a scenario under `times` schedules: half of them uniform, half with few, ill-timed changes of thread.
pub fn explore(times: usize, scenario: impl Fn() + Send + Sync + Clone + 'static) {
    under(asked().unwrap_or(times), scenario);
}

/// True if a broken engine fails one of `times` schedules, or of as many as are asked for if those are more: a mutant
/// that is rare must be found however few are explored otherwise.
pub fn finds(times: usize, scenario: impl Fn() + Send + Sync + Clone + 'static) -> bool {
    let times = times.max(asked().unwrap_or(0));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| under(times, scenario))).is_err()
}

/// How many schedules the environment asks for.
fn asked() -> Option<usize> {
    number("QUIRE_INTERLEAVINGS").and_then(|n| usize::try_from(n).ok())
}

fn under(times: usize, scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK;
    let scenario = move || {
        contend();
        scenario();
    };
    if let Ok(schedule) = std::env::var("QUIRE_SCHEDULE") {
        Runner::new(ReplayScheduler::new_from_encoded(&schedule), config).run(scenario);
        return;
    }
    let seed = number("QUIRE_SEED").unwrap_or(1);
    let half = times.div_ceil(2);
    Runner::new(RandomScheduler::new_from_seed(seed, half), config.clone()).run(scenario.clone());
    Runner::new(PctScheduler::new_from_seed(seed, 4, half), config).run(scenario);
    println!("{times} interleavings from seed {seed}");
}

/// Two threads that could both go on: shuttle's second scheduler refuses a scenario whose first run has none, as one
/// may that draws how many threads it has. [`finds`] would take that for a mutant that was found.
fn contend() {
    let other = shuttle::thread::spawn(shuttle::thread::yield_now);
    shuttle::thread::yield_now();
    other.join().expect("it only yields");
}

/// Runs a scenario once, under the schedule that a seed chooses. It may take any number of steps.
pub fn once(seed: u64, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.max_steps = MaxSteps::None;
    Runner::new(RandomScheduler::new_from_seed(seed, 1), config).run(scenario);
}

/// A number below `n`, which is part of the schedule.
#[must_use]
pub fn below(n: u64) -> u64 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..n)
}
