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
