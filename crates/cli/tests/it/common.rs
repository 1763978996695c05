//! Images, and mounts of them by the built command.
#![allow(dead_code, unreachable_pub)]

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub use quire_testkit::{has, is_root, needs_mounts, needs_root, needs_tools, skip};

/// A directory with an image and a mount point.
pub struct Place {
    dir: tempfile::TempDir,
}

/// A program of the system; its tools may be where users do not look.
#[must_use]
pub fn tool(name: &str) -> Command {
    let mut c = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    c.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").env("SHELL", "/bin/sh").stdin(Stdio::null());
    // A daemon ends by a system call that its sandbox does not know, instead of going on without it.
    c.env("QUIRE_SANDBOX_VIOLATION", "kill");
    c
}

#[must_use]
pub fn quire(args: &[&str]) -> Command {
    let mut c = tool(env!("CARGO_BIN_EXE_quire"));
    c.args(args);
    c
}

/// Runs to the end: exit code, and what it said.
pub fn said(c: &mut Command) -> (i32, String) {
    let Output { status, stdout, stderr } = c.output().expect("it starts");
    (status.code().unwrap_or(-1), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// Copies the program to where others may run it. By a process of its own: a process that another test starts meanwhile
/// would keep our descriptor of the copy, and the kernel runs none that is open for writing.
pub fn copy_program(to: &Path) {
    ok(Command::new("cp").arg(env!("CARGO_BIN_EXE_quire")).arg(to));
}

/// Runs to the end; it must succeed.
pub fn ok(c: &mut Command) -> String {
    let (code, text) = said(c);
    assert_eq!(code, 0, "{c:?}: {text}");
    text
}

pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    assert!(is_within(Duration::from_secs(60), done), "waited too long: {what}");
}

/// True once it is true; false if it is not within so long.
pub fn is_within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// The kernel's parameter that allows FUSE over io_uring.
pub const URING_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

thread_local! {
    static OVER_URING: Cell<bool> = const { Cell::new(false) };
}

/// FUSE over io_uring is allowed as long as this lives; then the parameter is as it was. A mount needs it only while it
/// is made.
pub struct UringAllowed {
    file: File,
    before: String,
}

impl UringAllowed {
    /// `None` where the parameter cannot be set.
    #[must_use]
    pub fn new() -> Option<Self> {
        let mut file = File::options().read(true).write(true).open(URING_PARAMETER).ok()?;
        // Another test, also of another process, waits for its turn.
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).ok()?;
        let mut before = String::new();
        std::io::Read::read_to_string(&mut file, &mut before).ok()?;
        let allowed = UringAllowed { file, before };
        allowed.set("Y").then_some(allowed)
    }

    fn set(&self, value: &str) -> bool {
        std::os::unix::fs::FileExt::write_all_at(&self.file, value.as_bytes(), 0).is_ok()
    }
}

impl Drop for UringAllowed {
    fn drop(&mut self) {
        self.set(self.before.trim());
    }
}

/// Runs a test with its mounts over io_uring, or skips it.
pub fn run_over_uring(test: fn()) {
    if UringAllowed::new().is_none() {
        skip(format_args!("{URING_PARAMETER} cannot be set"));
    }
    OVER_URING.set(true);
    test();
    OVER_URING.set(false);
}

/// The same tests with their mounts over io_uring, as `uring::NAME`.
macro_rules! over_uring {
    ($($name:ident),* $(,)?) => {
        mod uring {
            $(
                #[test]
                fn $name() {
                    $crate::common::run_over_uring(super::$name);
                }
            )*
        }
    };
}
pub(crate) use over_uring;

impl Place {
    /// A fresh image of `size`.
    #[must_use]
    pub fn new(size: &str, options: &[&str]) -> Self {
        let place = Place { dir: tempfile::tempdir().expect("temporary directory") };
        // The root of the image belongs to whoever runs the test.
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let owner = format!("root_owner={uid}:{gid}");
        ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-E", &owner]).args(options).arg(place.image()).arg(size));
        std::fs::create_dir(place.mnt()).expect("mount point");
        place
    }

    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.path("image")
    }

    #[must_use]
    pub fn mnt(&self) -> PathBuf {
        self.path("mnt")
    }

    /// Mounts in the background.
    #[must_use]
    pub fn mount(&self, options: &str) -> Mounted {
        self.mount_image(&self.image(), options)
    }

    #[must_use]
    pub fn mount_image(&self, image: &Path, options: &str) -> Mounted {
        let log = self.path("log");
        let mut c = quire(&["mount", "--log", text(&log), text(image), text(&self.mnt())]);
        let uring = OVER_URING.get().then(|| UringAllowed::new().expect("it could be set before"));
        let transport = if uring.is_some() { "transport=uring" } else { "transport=dev" };
        let options = if options.is_empty() { transport.to_owned() } else { format!("{transport},{options}") };
        c.args(["-o", &options]);
        // The daemon must not keep our pipes: it lets go of them.
        let (code, words) = said(&mut c);
        assert_eq!(code, 0, "{c:?}: {words}");
        let line = ok(Command::new("sh").arg("-c").arg(format!("pgrep -f -- '--log {}'", log.display())));
        // The broker has the daemon's command line, and a name of its own.
        let is_daemon = |p: &i32| fs::read_to_string(format!("/proc/{p}/comm")).is_ok_and(|c| c.trim() == "quire");
        let pid = line.split_whitespace().filter_map(|p| p.parse().ok()).find(is_daemon).expect("a daemon");
        Mounted { dir: self.mnt(), pid, over: false }
    }

    /// e2fsck finds nothing.
    pub fn check(&self) {
        check(&self.image());
    }
}

pub fn check(image: &Path) {
    let (code, words) = said(tool("e2fsck").arg("-fn").arg(image));
    // What could be narrower is not wrong.
    let asked = words.lines().any(|line| line.ends_with("? no") && !line.ends_with("Optimize? no"));
    let clean = code == 0 && !words.contains("skipping journal recovery") && !asked;
    assert!(clean, "e2fsck {}: {words}", image.display());
}

#[must_use]
pub fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// A mount; taken away when dropped.
pub struct Mounted {
    dir: PathBuf,
    pub pid: i32,
    over: bool,
}

impl Mounted {
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    #[must_use]
    pub fn dir(&self) -> &str {
        text(&self.dir)
    }

    pub fn unmount(mut self) {
        // A process that another test has just split off may have our files, until it becomes what it is to be.
        wait_until("the unmount", || {
            let (code, words) = said(&mut quire(&["umount", text(&self.dir)]));
            let log = || std::fs::read_to_string(self.dir.with_file_name("log")).unwrap_or_default();
            assert!(code == 0 || words.contains("in use"), "{code}: {words}the daemon's log: {}", log());
            code == 0
        });
        self.over = true;
        assert!(!self.is_alive(), "quire umount returned before the daemon ended");
    }

    #[must_use]
    pub fn is_alive(&self) -> bool {
        // One that has ended may wait for its parent to notice.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
    }

    fn send(&self, signal: rustix::process::Signal) -> rustix::io::Result<()> {
        rustix::process::kill_process(rustix::process::Pid::from_raw(self.pid).expect("a process"), signal)
    }

    /// Sends a signal and waits for the daemon's end.
    pub fn end_by(mut self, signal: rustix::process::Signal) {
        self.send(signal).expect("it is there");
        wait_until("the daemon's end", || !self.is_alive());
        // After a kill the mount point is left for the test to take away.
        self.over = true;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.over {
            let lazy: &[&str] = if is_root() { &["umount", "-l"] } else { &["fusermount3", "-u", "-z"] };
            tool(lazy[0]).args(&lazy[1..]).arg(&self.dir).output().ok();
            // A failed test may have threads that wait for the daemon; no signal ends such a wait.
            if std::thread::panicking() {
                self.send(rustix::process::Signal::KILL).ok();
            }
        }
    }
}
