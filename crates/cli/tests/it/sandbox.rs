//! The daemon's sandbox: what of it holds, that a mount does all it does in it, and what becomes of a mount whose
//! broker ends. All other tests run their daemons in it as well: a system call that it does not know ends them.

use crate::common::{
    Mounted, Place, needs_mounts, needs_root, ok, over_uring, quire, said, skip, text, tool, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use seccompiler::{SeccompAction, SeccompFilter, apply_filter};
use std::fs::{self, File};
use std::io::Write;

fn stats(dir: &str) -> serde_json::Value {
    serde_json::from_str(&ok(&mut quire(&["stats", "--json", dir]))).unwrap()
}

/// A line of `/proc/PID/status` of each thread.
fn of_threads(m: &Mounted, name: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", m.pid)).unwrap();
    let status = threads.filter_map(|t| fs::read_to_string(t.unwrap().path().join("status")).ok());
    let line = |s: String| s.lines().find_map(|l| l.strip_prefix(name)).map(|v| v.trim().to_owned());
    status.filter_map(line).collect()
}

/// The broker's number: the only child that a daemon has.
fn broker(m: &Mounted) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", m.pid)).unwrap_or_default();
    children.split_whitespace().next()?.parse().ok()
}

/// Skips the test where the kernel lacks a part of the sandbox; tells what holds.
fn needs_the_sandbox(m: &Mounted) -> String {
    let holds = stats(m.dir())["sandbox"].clone();
    if holds["missing"].as_array().is_none_or(|m| !m.is_empty()) {
        skip(format_args!("this kernel lacks a part of the sandbox: {}", holds["missing"]));
    }
    format!("sandbox: landlock ABI {}, seccomp\n", holds["landlock_abi"])
}

#[test]
fn a_daemon_is_confined_in_all_its_threads_and_says_so() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let line = needs_the_sandbox(&m);
    assert!(ok(&mut quire(&["stats", m.dir()])).contains(&line), "{line}");
    let (privileges, filters) = (of_threads(&m, "NoNewPrivs:"), of_threads(&m, "Seccomp:"));
    assert!(filters.len() > 5, "{filters:?}");
    assert!(privileges.iter().all(|v| v == "1") && filters.iter().all(|v| v == "2"), "{privileges:?} {filters:?}");
    m.unmount();
    place.check();
}

#[test]
fn a_mount_does_all_it_does_in_the_sandbox() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let lock_file = place.path("lock");
    let m = place.mount(&format!("sandbox=on,lockfile={}", lock_file.display()));
    fs::create_dir(m.path("d")).unwrap();
    let mut file = File::create(m.path("d/f")).unwrap();
    file.write_all(&[7; 3 << 20]).unwrap();
    file.sync_all().unwrap();
    ok(&mut quire(&["freeze", m.dir()]));
    ok(&mut quire(&["thaw", m.dir()]));
    ok(&mut quire(&["mount", "-o", "remount,tune=host,commit=1", m.dir()]));
    fs::remove_file(m.path("d/f")).unwrap();
    ok(&mut quire(&["mount", "-o", "remount,tune=none", m.dir()]));
    drop(file);
    if crate::common::is_root() {
        // The kernel holds the removed file until its RELEASE is answered, behind close(2), and is busy until then.
        let read_only = || said(&mut quire(&["mount", "-o", "remount,ro", m.dir()]));
        wait_until("the removed file is released", || match read_only() {
            (0, _) => true,
            (code, text) => {
                assert!(text.contains("resource busy"), "{code}: {text}");
                false
            }
        });
        ok(&mut quire(&["mount", "-o", "remount,rw", m.dir()]));
    }
    fs::write(m.path("last"), "written back by SIGTERM").unwrap();
    let at = place.mnt();
    m.end_by(Signal::TERM);
    assert!(!at.join("last").exists(), "still mounted");
    assert!(!lock_file.exists(), "the lock file stayed");
    place.check();
    let m = place.mount("sandbox=on");
    assert_eq!(fs::read(m.path("last")).unwrap(), b"written back by SIGTERM");
    m.unmount();
    place.check();
}

over_uring!(
    a_mount_does_all_it_does_in_the_sandbox,
    sigterm_without_a_broker_leaves_a_clean_image_and_a_dead_mount_point
);

fn take_away_dead_mount(place: &Place) {
    let (code, words) = said(&mut quire(&["umount", text(&place.mnt())]));
    assert!(code == 32 && words.contains("its daemon had died"), "{code}: {words}");
}

#[test]
fn sigterm_without_a_broker_leaves_a_clean_image_and_a_dead_mount_point() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("sandbox=auto");
    needs_the_sandbox(&m);
    let broker = broker(&m).and_then(Pid::from_raw).expect("a broker");
    kill_process(broker, Signal::KILL).unwrap();
    fs::write(m.path("f"), vec![3; 300_000]).unwrap();
    ok(&mut quire(&["stats", m.dir()]));
    m.end_by(Signal::TERM);
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("the broker of the sandbox has ended"), "{log}");
    place.check();
    assert!(fs::read_dir(place.mnt()).is_err(), "the mount point is not dead");
    take_away_dead_mount(&place);
    let m = place.mount("");
    assert_eq!(fs::read(m.path("f")).unwrap(), vec![3; 300_000]);
    m.unmount();
}

#[test]
fn the_broker_ends_with_its_daemon_however_that_ends() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    needs_the_sandbox(&m);
    let process = format!("/proc/{}", broker(&m).expect("a broker"));
    m.end_by(Signal::KILL);
    wait_until("the broker's end", || {
        fs::read_to_string(format!("{process}/stat")).map_or(true, |s| s.contains(") Z ") || !s.contains("broker"))
    });
    take_away_dead_mount(&place);
    let (code, words) = said(&mut quire(&["recover", text(&place.image())]));
    assert!(code <= 1, "{code}: {words}");
    place.check();
}

#[test]
fn a_mount_without_a_sandbox_has_no_broker_and_gives_up_nothing() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("sandbox=off");
    assert!(ok(&mut quire(&["stats", m.dir()])).contains("sandbox: none\n"));
    assert_eq!(broker(&m), None);
    assert!(of_threads(&m, "NoNewPrivs:").iter().all(|v| v == "0"));
    m.unmount();
}

/// As a kernel without Landlock and filters answers. Only this thread, and what it starts.
fn forget_the_sandbox() {
    let calls = [libc::SYS_landlock_create_ruleset, libc::SYS_seccomp].map(|call| (call, vec![]));
    let none = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().expect("an architecture that has filters");
    let filter = SeccompFilter::new(calls.into(), SeccompAction::Allow, none, arch).unwrap();
    let filter: seccompiler::BpfProgram = filter.try_into().unwrap();
    apply_filter(&filter).unwrap();
}

#[test]
fn a_kernel_without_it_mounts_all_the_same_unless_the_sandbox_is_asked_for() {
    needs_mounts();
    // A filter takes fusermount3 its privileges.
    needs_root();
    let place = Place::new("32M", &[]);
    std::thread::scope(|s| {
        s.spawn(|| {
            forget_the_sandbox();
            let (code, words) =
                said(&mut quire(&["mount", "-o", "sandbox=on", text(&place.image()), text(&place.mnt())]));
            assert!(code == 1 && words.contains("sandbox=on: landlock: "), "{code}: {words}");
            assert!(!said(tool("mount").arg("-l")).1.contains(text(&place.mnt())), "it is mounted");
            place.check();
            let m = place.mount("");
            let told = ok(&mut quire(&["stats", m.dir()]));
            assert!(told.contains("sandbox: none (missing: landlock: ") && told.contains("; seccomp: "), "{told}");
            fs::write(m.path("f"), "x").unwrap();
            m.end_by(Signal::TERM);
            place.check();
        });
    });
}
