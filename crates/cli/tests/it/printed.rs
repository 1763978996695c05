//! What becomes of a command whose standard output is full, or read by nobody.

use crate::common::{Place, needs_mounts, needs_tools, quire};
use std::fs::File;
use std::process::{Command, Stdio};

/// Each command that prints, with its exit code for a clean image, and for an output that takes nothing.
const COMMANDS: [(&[&str], i32, i32); 7] = [
    (&["info"], 0, 32),
    (&["info", "--json"], 0, 32),
    (&["dump", "", "journal", "--all"], 0, 32),
    (&["recover"], 0, 8),
    (&["check"], 0, 8),
    (&["completions", "bash"], 0, 2),
    (&["ls"], 0, 1),
];

/// A command with the image as its first argument that is no option: at the empty place, or at the end.
fn on(place: &Place, args: &[&str]) -> Command {
    let image = place.image();
    let image = image.to_str().expect("a plain path");
    let mut all: Vec<&str> = args.iter().map(|a| if a.is_empty() { image } else { a }).collect();
    if !args.contains(&"") && args[0] != "completions" {
        all.push(image);
    }
    quire(&all)
}

/// What a command comes to whose standard output is full, and one whose reader has gone.
fn judge(name: &[&str], command: impl Fn() -> Command, of_clean: i32, of_full: i32) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let out = command().stdout(full).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    let is_told = said.contains("standard output: No space left on device") && !said.contains("panicked");
    assert!(out.status.code() == Some(of_full) && is_told, "{name:?}: {:?}: {said}", out.status);

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = command().stdout(writer).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(of_clean) && said.is_empty(), "{name:?}: {:?}: {said}", out.status);
}

#[test]
fn a_full_output_is_told_and_one_that_nobody_reads_is_no_failure() {
    needs_tools(&["mke2fs", "e2fsck"]);
    let place = Place::new("16M", &[]);
    for (args, of_clean, of_full) in COMMANDS {
        judge(args, || on(&place, args), of_clean, of_full);
    }
    let (old, new) = (place.image().display().to_string(), format!("{}:/lost+found", place.image().display()));
    for args in [&["diff", &old, &new][..], &["diff", "--json", &old, &new]] {
        judge(args, || quire(args), 1, 2);
    }
}

#[test]
fn figures_of_a_mount_tell_of_a_full_output() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    for format in [None, Some("--json"), Some("--prometheus")] {
        let args: Vec<_> = ["stats"].into_iter().chain(format).chain([m.dir()]).collect();
        judge(&args, || quire(&args), 0, 32);
    }
    judge(&["top"], || quire(&["top", "--once", m.dir()]), 0, 2);
    m.unmount();
}
