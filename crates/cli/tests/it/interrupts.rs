//! SIGINT and SIGTERM during long work: nothing half done is left at the host or in an image.

use crate::common::{needs_tools, ok, quire, tool, wait_until};
use crate::trees::{Scratch, fsck, make_tree};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The beginning of an archive, and a pipe that stays open.
fn begun(s: &Scratch, args: &[&str], stdin_bytes: usize) -> (Child, std::process::ChildStdin) {
    std::fs::create_dir(s.path("tree")).unwrap();
    make_tree(&s.path("tree"));
    ok(tool("tar").arg("-C").arg(s.path("tree")).args(["-cf", &s.text("a.tar"), "."]));
    let tar = std::fs::read(s.path("a.tar")).unwrap();
    let mut child = quire(args).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&tar[..stdin_bytes]).unwrap();
    (child, pipe)
}

/// Signals, then lets the work go on, which notices.
fn interrupt(mut child: Child, mut pipe: std::process::ChildStdin, signal: Signal) -> (i32, String) {
    kill_process(Pid::from_child(&child), signal).unwrap();
    // What is behind the signal: until the work has ended, it reads.
    while pipe.write_all(&[0; 65_536]).is_ok() {
        assert!(child.try_wait().unwrap().is_none_or(|status| !status.success()));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let out = child.wait_with_output().unwrap();
    (out.status.code().unwrap_or(-1), String::from_utf8_lossy(&out.stderr).into_owned())
}

fn create_is_interrupted(signal: Signal) {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    std::fs::create_dir(s.path("out")).unwrap();
    std::fs::write(s.path("out/image"), "old").unwrap();
    let args = ["create", &s.text("out/image"), "--from", "-", "--size", "64M"];
    // Far inside of the file of 3 MB.
    let (child, pipe) = begun(&s, &args, 600_000);
    wait_until("the temporary file", || names(&s.path("out")).len() == 2);
    let (code, text) = interrupt(child, pipe, signal);
    assert_eq!((code, text.as_str()), (130, "quire: create: interrupted\n"));
    assert_eq!(names(&s.path("out")), ["image"]);
    assert_eq!(std::fs::read(s.path("out/image")).unwrap(), b"old");
}

#[test]
fn an_interrupted_create_leaves_no_temporary_file_and_what_had_the_name() {
    create_is_interrupted(Signal::INT);
}

#[test]
fn a_terminated_create_leaves_no_temporary_file_and_what_had_the_name() {
    create_is_interrupted(Signal::TERM);
}

#[test]
fn an_interrupted_import_leaves_nothing_in_the_image() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let image = s.text("image");
    ok(&mut quire(&["create", &image, "--size", "64M"]));
    ok(&mut quire(&["mkdir", &format!("{image}:/was-there")]));
    let before = ok(&mut quire(&["tree", &image]));
    let (child, pipe) = begun(&s, &["import", &image, "-"], 600_000);
    let (code, text) = interrupt(child, pipe, Signal::INT);
    assert_eq!((code, text.as_str()), (130, "quire: import: interrupted\n"));
    assert_eq!(ok(&mut quire(&["tree", &image])), before);
    fsck(Path::new(&image));
}

/// A large file in an image, which no pipe holds.
fn large(s: &Scratch) -> String {
    let image = s.text("image");
    std::fs::write(s.path("big"), vec![7; 4 << 20]).unwrap();
    ok(&mut quire(&["create", &image, "--size", "64M"]));
    ok(&mut quire(&["put", &s.text("big"), &format!("{image}:/big")]));
    image
}

/// Signals work that waits for the other side of a pipe, which does nothing.
fn ends_soon(mut child: Child, signal: Signal) {
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it waits");
    kill_process(Pid::from_child(&child), signal).unwrap();
    wait_until("the end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_signal_ends_a_create_that_waits_for_standard_input() {
    needs_tools(&["mke2fs"]);
    for (signal, size) in [(Signal::INT, "64M"), (Signal::TERM, "min")] {
        let s = Scratch::new();
        std::fs::create_dir(s.path("out")).unwrap();
        let mut c = quire(&["create", &s.text("out/image"), "--from", "-", "--size", size]);
        let mut child = c.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let pipe = child.stdin.take();
        ends_soon(child, signal);
        assert_eq!(names(&s.path("out")), [""; 0], "{size}");
        drop(pipe);
    }
}

#[test]
fn a_signal_ends_an_import_that_waits_for_standard_input_or_a_fifo() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let image = s.text("image");
    ok(&mut quire(&["create", &image, "--size", "64M"]));
    ok(tool("mkfifo").arg(s.path("fifo")));
    let before = ok(&mut quire(&["tree", &image]));
    for source in ["-", &s.text("fifo")] {
        let mut c = quire(&["import", &image, source]);
        let mut child = c.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let pipe = child.stdin.take();
        ends_soon(child, Signal::TERM);
        drop(pipe);
    }
    assert_eq!(ok(&mut quire(&["tree", &image])), before);
    fsck(Path::new(&image));
}

#[test]
fn a_signal_ends_an_export_whose_reader_does_not_read() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let image = large(&s);
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = quire(&["export", &image, "-"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let pipe = child.stdout.take();
        ends_soon(child, signal);
        drop(pipe);
    }
}

/// `resize2fs` is one that waits, as the real one works for minutes on a large image.
#[test]
fn a_signal_ends_a_resize_with_the_program_that_it_runs() {
    needs_tools(&["mke2fs", "e2fsck"]);
    let s = Scratch::new();
    std::fs::create_dir(s.path("out")).unwrap();
    std::fs::create_dir(s.path("bin")).unwrap();
    let image = s.text("out/image");
    ok(&mut quire(&["create", &image, "--size", "16M"]));
    let program = s.path("bin/resize2fs");
    std::fs::write(&program, format!("#!/bin/sh\necho $$ >{}\nexec sleep 1000\n", s.text("pid"))).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut c = quire(&["resize", &image, "24M"]);
    c.env("PATH", format!("{}:{path}", s.text("bin"))).stderr(Stdio::null());
    let child = c.spawn().unwrap();
    let pid = || std::fs::read_to_string(s.path("pid")).ok()?.trim().parse::<i32>().ok();
    wait_until("resize2fs", || pid().is_some());
    ends_soon(child, Signal::TERM);
    assert!(!Path::new(&format!("/proc/{}", pid().unwrap())).exists(), "resize2fs goes on");
    assert_eq!(names(&s.path("out")), ["image"]);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 16 << 20);
}

#[test]
fn a_signal_ends_an_export_into_a_directory() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let image = s.text("image");
    // Enough objects that the signal comes before the end.
    std::fs::create_dir(s.path("tree")).unwrap();
    for n in 0..20_000 {
        std::fs::write(s.path(&format!("tree/{n}")), "x").unwrap();
    }
    ok(&mut quire(&["create", &image, "--from", &s.text("tree")]));
    let mut child = quire(&["export", &image, &s.text("out/")]).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the first files", || s.path("out").is_dir() && names(&s.path("out")).len() > 3);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(names(&s.path("out")).len() < 20_000, "it was not over");
}
