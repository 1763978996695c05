//! The time that a test may take. One that hangs (a request that is never answered, a program that never ends) is ended
//! by a kill of all processes that it started: what it waits for then fails, and so does the test, by its name.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Between kills, for what a killed process's parent starts in its place.
const AGAIN: Duration = Duration::from_secs(5);

/// A limit that is counting.
#[derive(Debug)]
pub struct Limit {
    over: Sender<()>,
    watch: JoinHandle<bool>,
}

impl Limit {
    /// After so long, all that `process` has started is killed.
    ///
    /// # Panics
    /// No thread could be started.
    #[must_use]
    pub fn start(limit: Duration, process: u32) -> Limit {
        let (over, told) = mpsc::channel();
        let watch = std::thread::spawn(move || {
            let mut exceeded = false;
            let mut wait = limit;
            while matches!(told.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
                (exceeded, wait) = (true, AGAIN);
                for below in descendants(process) {
                    let killed = i32::try_from(below).ok().and_then(Pid::from_raw);
                    // It may have ended meanwhile.
                    killed.map(|pid| kill_process(pid, Signal::KILL).ok());
                }
            }
            exceeded
        });
        Limit { over, watch }
    }

    /// Ends the counting. True if the limit was exceeded.
    ///
    /// # Panics
    /// The watching thread has panicked.
    #[must_use]
    pub fn end(self) -> bool {
        drop(self.over);
        self.watch.join().expect("the watch does not panic")
    }
}

/// The processes that this one has started, and theirs.
fn descendants(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> =
        lists.flat_map(|list| list.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect();
    let below: Vec<u32> = children.iter().flat_map(|child| descendants(*child)).collect();
    [children, below].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_hangs_is_killed_with_its_children_and_what_ends_in_time_is_not() {
        let shell = |script| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let mut short = shell("true; true");
        let limit = Limit::start(Duration::from_secs(600), short.id());
        assert!(short.wait().unwrap().success());
        assert!(!limit.end());
        let mut long = shell("sleep 1000; exit 3");
        let limit = Limit::start(Duration::from_millis(300), long.id());
        assert_eq!(long.wait().unwrap().code(), Some(3));
        assert!(limit.end());
    }
}
