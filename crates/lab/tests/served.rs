//! A modelled device under the kernel's file system: it outlives the program that measures on it if that is killed, and
//! is gone with the program if a signal lets it end.

#[macro_use(test)]
extern crate quire_testkit;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quire_lab::cmd::{run_tool, text, wait_until};
use quire_testkit::{needs_mounts, needs_root, needs_tools};

const LIMIT: Duration = Duration::from_secs(20);

/// What stands where a killed program worked in `dir`: the model's mount, the loop device on it, the file system on
/// that.
struct Left {
    program: Child,
    dir: PathBuf,
}

impl Left {
    fn mounts(&self) -> Vec<(String, PathBuf)> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let of_line = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            Some((words.next()?, PathBuf::from(words.next()?)))
        };
        mounts.lines().filter_map(of_line).filter(|(_, at)| at.starts_with(&self.dir)).collect()
    }

    fn ext4(&self) -> Option<PathBuf> {
        self.mounts().into_iter().find(|(_, at)| at.ends_with("mnt")).map(|(_, at)| at)
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        let mut mounts = self.mounts();
        mounts.sort_by_key(|(_, at)| !at.ends_with("mnt"));
        for (what, at) in mounts {
            let gone = wait_until(LIMIT, || run_tool("umount", [text(&at)]).is_ok());
            if what.starts_with("/dev/loop") {
                let _ = run_tool("losetup", ["--detach", &what]);
            }
            assert!(gone || std::thread::panicking(), "{} stays mounted", at.display());
        }
    }
}

/// Whether the file system there is made durable, in time and without an error.
fn syncs(at: &Path) -> bool {
    let mut sync = Command::new("sync").arg("--file-system").arg(at).spawn().unwrap();
    let mut ended = None;
    wait_until(LIMIT, || {
        ended = sync.try_wait().unwrap();
        ended.is_some()
    });
    let _ = sync.kill();
    ended.is_some_and(|status| status.success())
}

/// A program that works on a mount below `dir`, in transactions of so many rows.
fn at_work(dir: &Path, rows: &str) -> Left {
    needs_mounts();
    needs_root();
    needs_tools(&["losetup"]);
    let mut lab = Command::new(env!("CARGO_BIN_EXE_quire-lab"));
    lab.args(["sqlite", "--device", "ssd", "--rounds", "1", "--small", rows, "--mounter", "kernel:data=ordered"]);
    lab.arg("--work").arg(dir).stdout(Stdio::null()).stderr(Stdio::null());
    let left = Left { program: lab.spawn().unwrap(), dir: dir.to_owned() };
    let begun = wait_until(LIMIT, || left.ext4().is_some_and(|at| at.read_dir().unwrap().count() > 1));
    assert!(begun, "no work on a mount: {:?}", left.mounts());
    left
}

/// As timeout(1) does it: the signal comes twice.
#[test]
fn a_program_that_a_signal_ends_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut left = at_work(dir.path(), "500");
    for _ in 0..2 {
        let program = rustix::process::Pid::from_child(&left.program);
        rustix::process::kill_process(program, rustix::process::Signal::TERM).unwrap();
    }
    let mut ended = None;
    wait_until(3 * LIMIT, || {
        ended = left.program.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(130));
    assert_eq!(left.mounts(), []);
    let loops = run_tool("losetup", ["--list", "--noheadings", "--output", "BACK-FILE"]).unwrap();
    assert!(!loops.contains(text(dir.path())), "{loops}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "folders stay");
}

#[test]
fn a_program_that_is_killed_takes_no_device_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut left = at_work(dir.path(), "100000");
    left.program.kill().unwrap();
    left.program.wait().unwrap();
    let at = left.ext4().expect("still mounted");
    std::fs::write(at.join("another"), "that waits for the device").unwrap();
    assert!(syncs(&at), "a sync hangs or fails: what it waits for is served no more");
}

fn main() -> std::process::ExitCode {
    quire_testkit::harness::main()
}
