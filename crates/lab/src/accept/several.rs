//! Several acceptance tests at once.
//!
//! Each is a process of its own: the limit of its time kills what that test has started and no other's, and what it
//! says is printed in one piece when it is over.

use std::process::Command;
use std::sync::Mutex;

use anyhow::Result;

use super::tally::Tally;

/// Runs tests, `jobs` at a time, in their order: each has its name and its process, which ends with a tally of it.
pub(super) fn run(jobs: usize, tests: Vec<(String, Command)>) -> Result<Tally> {
    let workers = jobs.min(tests.len());
    let tests = Mutex::new(tests.into_iter());
    let sum = Mutex::new(Tally::default());
    let work = || -> Result<()> {
        loop {
            let next = tests.lock().expect("no thread panics with the tests").next();
            let Some((name, mut process)) = next else { return Ok(()) };
            let said = crate::cmd::say(&mut process)?;
            let (text, tally) = report(&name, &said.text, said.code);
            let mut sum = sum.lock().expect("no thread panics with the sum");
            println!("{text}");
            *sum += tally;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    Ok(sum.into_inner().expect("no thread panics with the sum"))
}

/// What it said about the test, and the tally in its last line. A process that ended before that has failed.
fn report(name: &str, text: &str, code: i32) -> (String, Tally) {
    let mut lines: Vec<&str> = text.trim_end().lines().filter(|line| !line.starts_with("seed ")).collect();
    match lines.last().and_then(|last| Tally::of(last)) {
        Some(tally) => {
            lines.pop();
            (lines.join("\n"), tally)
        }
        None => {
            let ended = format!("FAILED  {name}: its process ended with code {code}");
            lines.push(&ended);
            (lines.join("\n"), Tally { failed: 1, ..Tally::default() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_counts_as_its_process_says_and_as_failed_where_it_says_nothing() {
        let said = Tally { passed: 1, failed: 0, skipped: 2 };
        let text = format!("seed 7; quire 1\n        5 kills\nok      crash[quire] (8.0 s)\n{said}\n");
        assert_eq!(report("crash[quire]", &text, 0), ("        5 kills\nok      crash[quire] (8.0 s)".into(), said));
        let (text, tally) = report("crash[quire]", "seed 7; quire 1\nthread panicked\n", 101);
        assert_eq!(text, "thread panicked\nFAILED  crash[quire]: its process ended with code 101");
        assert_eq!(tally, Tally { failed: 1, ..Tally::default() });
    }

    #[test]
    fn the_tallies_of_all_processes_are_added() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            (script.to_owned(), command)
        };
        let tests = ["echo 1 passed, 0 failed, 0 skipped", "echo 0 passed, 1 failed, 2 skipped", "exit 3"].map(shell);
        assert_eq!(run(2, tests.into()).unwrap(), Tally { passed: 1, failed: 2, skipped: 2 });
    }
}
