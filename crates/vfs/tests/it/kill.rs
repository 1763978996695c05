//! A process that is killed at any moment: the image recovers, the database is whole, nothing acknowledged is lost.

use crate::common::{Mode, check_bank, image_file, in_image, make_bank, open, transfer};
use quire_testkit::Rng;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

const VARIABLE: &str = "QUIRE_VFS_KILLED";
const TEST: &str = "kill::a_killed_process_loses_no_acknowledged_transaction";

/// What the process that will be killed does: transfers, each of which it reports when it is acknowledged.
fn be_killed(task: &str) {
    let mut parts = task.split(' ');
    let mut next = || parts.next().unwrap();
    let (uri, mode, first, seed) = (next(), next(), next().parse::<i64>().unwrap(), next().parse::<u64>().unwrap());
    let mode = crate::common::MODES.into_iter().find(|m| format!("{m:?}") == mode).unwrap();
    let db = open(uri);
    mode.set(&db).unwrap();
    let mut rng = Rng::new(seed);
    let mut out = std::io::stdout().lock();
    for n in first.. {
        transfer(&db, n, &mut rng).unwrap();
        writeln!(out, "acknowledged {n}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_no_acknowledged_transaction() {
    if let Ok(task) = std::env::var(VARIABLE) {
        return be_killed(&task);
    }
    let seed = std::env::var("QUIRE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let kills: u64 = std::env::var("QUIRE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    for mode in [Mode::Wal, Mode::Delete, Mode::DeleteJournal, Mode::Persist] {
        let (_dir, image) = image_file(64);
        let uri = mode.uri(&in_image(&image, "/bank.db"));
        make_bank(&open(&uri)).unwrap();
        let mut have = 0;
        let mut rng = Rng::from_parts(&[seed, mode as u64]);
        for kill in 0..kills {
            let task = format!("{uri} {mode:?} {} {}", have + 1, rng.bits());
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args([TEST, "--exact", "--nocapture"]).env(VARIABLE, &task).stdout(Stdio::piped());
            let mut child = child.stderr(Stdio::null()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut acknowledged = have;
            let mut hear = |line: &str| {
                if let Some(n) = line.strip_prefix("acknowledged ") {
                    acknowledged = n.parse().unwrap();
                }
            };
            // After some transfers, and at any moment of the next one.
            let mut wait = 1 + rng.below(12);
            while wait > 0 {
                let line = lines.next().expect("the process works until it is killed").unwrap();
                wait -= u64::from(line.starts_with("acknowledged"));
                hear(&line);
            }
            std::thread::sleep(Duration::from_micros(rng.below(5000)));
            child.kill().unwrap();
            child.wait().unwrap();
            lines.map_while(Result::ok).for_each(|line| hear(&line));
            have = check_bank(&open(&uri), acknowledged).unwrap_or_else(|e| {
                panic!("{mode:?}, kill {kill}: {e}; repeat with QUIRE_SEED={seed} cargo test -p quire-vfs kill")
            });
        }
    }
}
