//! SIGINT and SIGTERM during long work: nothing half done is left at the host or in an image.

use crate::common::{needs_tools, ok, quire, said, text, tool, wait_until};
use crate::trees::{Scratch, fsck, make_tree};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
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

/// An image whose archive has nothing but headers: wherever it is cut behind a block, it looks whole.
fn of_headers(s: &Scratch) -> String {
    std::fs::create_dir(s.path("tree")).unwrap();
    for n in 0..400 {
        std::fs::write(s.path(&format!("tree/{n}")), "").unwrap();
    }
    let image = s.text("image");
    // Whole seconds need no record of their own.
    let date = ["--source-date-epoch", "1700000000", "--size", "16M"];
    ok(quire(&["create", &image, "--from", &s.text("tree")]).args(date));
    image
}

/// What a pipe has got is refused, here and by GNU tar.
fn is_no_archive(s: &Scratch, got: &[u8], why: &str) {
    std::fs::write(s.path("cut.tar"), got).unwrap();
    let (code, words) = said(&mut quire(&["create", &s.text("copy"), "--from", &s.text("cut.tar"), "--size", "16M"]));
    assert!(code == 1 && words.contains("in the middle of"), "{why}, {} bytes: {code}: {words}", got.len());
    let (code, words) = said(tool("tar").args(["-tf", &s.text("cut.tar")]));
    assert!(code != 0, "{why}, {} bytes: tar takes it: {words}", got.len());
}

fn export_is_cut(signal: Signal) {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let image = of_headers(&s);
    for bytes in [0, 5000, 20_000] {
        let mut child = quire(&["export", &image, "-"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut pipe = child.stdout.take().unwrap();
        let mut got = vec![0; bytes];
        pipe.read_exact(&mut got).unwrap();
        // Until the pipe is full.
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "it waits for its reader");
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        pipe.read_to_end(&mut got).unwrap();
        assert!(got.len() > 20_000 + bytes, "{} bytes came", got.len());
        is_no_archive(&s, &got, &format!("{bytes} bytes were read before"));
    }
}

#[test]
fn an_export_to_a_pipe_that_is_killed_leaves_no_archive_that_looks_whole() {
    export_is_cut(Signal::KILL);
}

#[test]
fn an_export_to_a_pipe_that_is_terminated_leaves_no_archive_that_looks_whole() {
    export_is_cut(Signal::TERM);
}

#[test]
fn an_export_that_is_killed_before_much_is_read_leaves_no_empty_archive() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let image = of_headers(&s);
    ok(tool("mkfifo").arg(s.path("fifo")));
    let mut child = quire(&["export", &image, &s.text("fifo")]).stderr(Stdio::null()).spawn().unwrap();
    let mut pipe = std::fs::File::open(s.path("fifo")).unwrap();
    let mut got = vec![0; 1];
    pipe.read_exact(&mut got).unwrap();
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    pipe.read_to_end(&mut got).unwrap();
    is_no_archive(&s, &got, "a byte was read before");
}

/// A script on an image with a file `/big`, which is signalled once it waits for what comes through a FIFO.
fn script_is_interrupted(signal: Signal) {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let image = large(&s);
    let before = ok(&mut quire(&["tree", &image]));
    std::fs::create_dir(s.path("out")).unwrap();
    ok(tool("mkfifo").arg(s.path("fifo")));
    let lines = format!("mkdir /new\nget /big {}\nput {} /other\n", s.text("out/big"), s.text("fifo"));
    std::fs::write(s.path("script"), lines).unwrap();
    let mut child = quire(&["script", &image, &s.text("script")]).stderr(Stdio::piped()).spawn().unwrap();
    let fifo = std::fs::File::options().write(true).open(s.path("fifo")).unwrap();
    kill_process(Pid::from_child(&child), signal).unwrap();
    crate::common::is_within(std::time::Duration::from_secs(2), || child.try_wait().unwrap().is_some());
    // A script that has not noticed would go on with the end of the file.
    drop(fifo);
    let out = child.wait_with_output().unwrap();
    let words = String::from_utf8(out.stderr).unwrap();
    let expected = format!("quire: script: {}:3: interrupted\n", s.text("script"));
    assert_eq!((out.status.code(), words), (Some(130), expected));
    assert_eq!(names(&s.path("out")), [""; 0], "the file of `get`, and its temporary one");
    assert_eq!(ok(&mut quire(&["tree", &image])), before);
    fsck(Path::new(&image));
}

#[test]
fn an_interrupted_script_leaves_the_image_and_the_host_as_before_also_behind_a_get() {
    script_is_interrupted(Signal::INT);
}

#[test]
fn a_terminated_script_leaves_the_image_and_the_host_as_before_also_behind_a_get() {
    script_is_interrupted(Signal::TERM);
}

/// Commands that do not look for signals themselves follow.
#[test]
fn a_script_that_is_signalled_between_its_commands_does_not_commit() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let image = of_headers(&s);
    let before = ok(&mut quire(&["tree", &image]));
    std::fs::create_dir(s.path("out")).unwrap();
    let lines = format!("mkdir /new\nget /0 {}\n{}", s.text("out/0"), "find / --name none\n".repeat(2000));
    std::fs::write(s.path("script"), lines).unwrap();
    let mut c = quire(&["script", &image, &s.text("script")]);
    let child = c.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // What `get` does last is to set the time.
    let date = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let is_got =
        |name: &String| std::fs::metadata(s.path("out").join(name)).is_ok_and(|m| m.modified().unwrap() == date);
    wait_until("the file of `get`", || names(&s.path("out")).iter().any(is_got));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let out = child.wait_with_output().unwrap();
    let words = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.code() == Some(130) && words.ends_with(": interrupted\n"), "{:?}: {words}", out.status);
    assert_eq!(names(&s.path("out")), [""; 0]);
    assert_eq!(ok(&mut quire(&["tree", &image])), before);
}

/// The file of the first `get` has no name yet, and gets none.
#[test]
fn a_signal_ends_a_script_that_waits_for_the_reader_of_a_fifo() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let image = large(&s);
    std::fs::create_dir(s.path("out")).unwrap();
    ok(tool("mkfifo").arg(s.path("fifo")));
    let lines = format!("get /big {}\nget /big {}\n", s.text("out/big"), s.text("fifo"));
    std::fs::write(s.path("script"), lines).unwrap();
    let child = quire(&["script", &image, &s.text("script")]).stderr(Stdio::null()).spawn().unwrap();
    ends_soon(child, Signal::TERM);
    assert_eq!(names(&s.path("out")), [""; 0]);
}

#[test]
fn a_signal_ends_a_piped_shell_that_waits_for_a_line_also_behind_a_get() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let image = large(&s);
    for (n, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let got = s.path(&format!("got{n}"));
        for line in ["mkdir -p /new\n".to_owned(), format!("get /big {}\n", text(&got))] {
            let mut c = quire(&["shell", &image]);
            let mut child = c.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut pipe = child.stdin.take().unwrap();
            pipe.write_all(line.as_bytes()).unwrap();
            wait_until("the file of `get`", || !line.starts_with("get") || got.exists());
            ends_soon(child, signal);
            drop(pipe);
        }
    }
    fsck(Path::new(&image));
}
