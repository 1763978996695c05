//! `quire shell`: lines of a pipe, and of a terminal.

use crate::common::{Place, needs_tools, ok, quire, text, tool, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn place() -> Place {
    needs_tools(&["mke2fs"]);
    Place::new("64M", &[])
}

/// Gives lines to a shell on the image; what it said is in one text.
fn typed(p: &Place, options: &[&str], lines: &str) -> (i32, String) {
    let image = p.image().display().to_string();
    let mut shell = quire(&[&["shell", &image], options].concat());
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A shell that has stopped reads no more.
    shell.stdin.take().unwrap().write_all(lines.as_bytes()).ok();
    let Output { status, stdout, stderr } = shell.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    (status.code().unwrap(), said.replace(&image, "IMG"))
}

#[test]
fn piped_lines_run_where_the_shell_is() {
    let p = place();
    let lines = "mkdir -p /etc/app\ncd etc\npwd\nmkdir app/sub\nln -s app link\nls\n# comment\n\ncd ../etc/app\n\
                 ls\ncd\nls -l /etc/link\n";
    let (code, said) = typed(&p, &[], lines);
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("/etc\napp\nlink\nsub\n") && said.ends_with("-> app\n"), "{said}");
    p.check();
}

#[test]
fn piped_lines_stop_at_the_first_error_and_what_came_before_it_stays() {
    let p = place();
    let (code, said) = typed(&p, &[], "mkdir /a\nrm /none\nmkdir /b\n");
    assert_eq!((code, said.as_str()), (1, "quire: shell: line 2: IMG:/none: no such file or directory\n"));
    let (code, said) = typed(&p, &[], "ls\nmkdirr /b\n");
    assert!(code == 2 && said.contains("line 2: ") && said.starts_with("a\nlost+found\n"), "{code}: {said}");
    // The end of the input need not be said, and what is behind it does not run.
    assert_eq!(typed(&p, &[], "exit\nmkdir /c\n"), (0, String::new()));
    assert_eq!(typed(&p, &[], "ls"), (0, "a\nlost+found\n".to_owned()));
    p.check();
}

#[test]
fn piped_lines_run_also_if_nobody_reads_what_they_print() {
    let p = place();
    let unread = |lines: &str| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut shell = quire(&["shell", text(&p.image())]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(lines.as_bytes()).ok();
        let out = shell.wait_with_output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    assert_eq!(unread("ls\nmkdir /a\nls -l\nmkdir /b\n"), (Some(0), String::new()));
    assert_eq!(typed(&p, &[], "ls\n"), (0, "a\nb\nlost+found\n".to_owned()));
    let (code, said) = unread("ls\nrmm /none\nmkdir /c\n");
    assert!(code == Some(2) && said.contains("line 2: "), "{code:?}: {said}");
    assert_eq!(typed(&p, &[], "ls\n"), (0, "a\nb\nlost+found\n".to_owned()));
    p.check();
}

/// The lines and the file would be the same input.
#[test]
fn a_put_from_the_standard_input_of_the_commands_is_wrong_usage_and_the_file_stays() {
    let p = place();
    assert_eq!(typed(&p, &[], "touch /x\nsetfattr -n user.k -v v /x\n"), (0, String::new()));
    let why = "-: the commands come from standard input, so no file can\n";
    let (code, said) = typed(&p, &[], "put - /x\nof the file\n");
    assert_eq!((code, said), (2, format!("quire: shell: line 1: {why}")));
    for script in [&["script", text(&p.image())][..], &["script", text(&p.image()), "-"]] {
        let mut script = quire(script).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        script.stdin.take().unwrap().write_all(b"mkdir /d\nput - /x\n").unwrap();
        let out = script.wait_with_output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), said), (Some(2), format!("quire: script: line 2: {why}")));
    }
    assert_eq!(typed(&p, &[], "ls\ngetfattr /x\n"), (0, "lost+found\nx\nuser.k=\"v\"\n".to_owned()));
    // A script of a file has standard input for itself.
    std::fs::write(p.path("script"), "put - /y\n").unwrap();
    let mut script = quire(&["script", text(&p.image()), text(&p.path("script"))]);
    let mut script = script.stdin(Stdio::piped()).spawn().unwrap();
    script.stdin.take().unwrap().write_all(b"of the file").unwrap();
    assert!(script.wait().unwrap().success());
    assert_eq!(typed(&p, &[], "cat /y\n"), (0, "of the file".to_owned()));
}

#[test]
fn the_directory_where_the_shell_is_cannot_be_removed_as_a_dot() {
    let p = place();
    let (code, said) = typed(&p, &[], "mkdir -p /a/b\ntouch /a/b/f\ncd /a/b\nls .\nrm -r .\n");
    let end = "line 5: IMG:/a/b/.: the path has no last name\n";
    assert!(code == 1 && said.starts_with("f\n") && said.ends_with(end), "{code}: {said}");
    assert_eq!(typed(&p, &[], "cd a/b\nls\ntouch /x\nmv /x .\nls\n"), (0, "f\nf\nx\n".to_owned()));
    p.check();
}

#[test]
fn a_read_only_shell_refuses_changes() {
    let p = place();
    let before = std::fs::read(p.image()).unwrap();
    let (code, said) = typed(&p, &["--read-only"], "ls\nmkdir /a\n");
    assert!(code == 1 && said.contains("read-only"), "{code}: {said}");
    assert!(std::fs::read(p.image()).unwrap() == before);
}

#[test]
fn help_lists_the_commands_and_explains_each() {
    let p = place();
    let (code, all) = typed(&p, &[], "help\n");
    assert!(code == 0 && all.contains("chmod ") && all.contains("cd ") && all.contains("exit "), "{all}");
    let (code, one) = typed(&p, &[], "help mkdir\nls --help\nhelp cd\n");
    assert!(code == 0 && one.contains("--parents") && one.contains("PATH") && !one.contains("IMG:"), "{one}");
    assert_eq!(typed(&p, &[], "help nothing\n").0, 2);
}

/// The shell on a terminal, which script(1) gives it. Ctrl-C goes to every process of the terminal: `exec`, because
/// dash would end with 130 for it, whatever the shell of the image returns.
fn on_terminal(image: &str, history: &Path) -> Command {
    let mut script = tool("script");
    let shell = format!("exec {} shell {image}", env!("CARGO_BIN_EXE_quire"));
    script.args(["-qec", &shell, "/dev/null"]).env("TERM", "xterm");
    script.env("QUIRE_HISTORY", history).stdin(Stdio::piped()).stdout(Stdio::piped());
    script
}

/// A terminal's lines: names become whole by Tab, errors do not end the shell, lines are kept.
#[test]
fn a_terminal_has_completion_history_and_goes_on_after_an_error() {
    let p = place();
    needs_tools(&["script"]);
    let image = p.image().display().to_string();
    ok(&mut quire(&["mkdir", "-p", &format!("{image}:/etc/network"), &format!("{image}:/var")]));
    let history = p.path("history");
    let run = |keys: &str| {
        let mut script = on_terminal(&image, &history).spawn().unwrap();
        let mut keyboard = script.stdin.take().unwrap();
        for line in keys.split_inclusive('\r') {
            keyboard.write_all(line.as_bytes()).unwrap();
            keyboard.flush().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        let out = script.wait_with_output().unwrap();
        drop(keyboard);
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let (code, said) = run("mkd\t/etc/net\tmade\rcat /none\rcd /va\t\rmkdir here\rexit\r");
    assert!(code == Some(0) && said.contains("/none: no such file or directory"), "{code:?}: {said}");
    let found = ok(&mut quire(&["find", &image, "--type", "directory"]));
    assert!(found.contains("/etc/network/made\n") && found.contains("/var/here\n"), "{found}: {said}");
    let kept = std::fs::read_to_string(&history).unwrap();
    assert!(kept.contains("mkdir /etc/network/made") && kept.contains("exit"), "{kept}");
    // The line before `exit` of the last time comes back with two arrows up; Ctrl-D ends the shell.
    let (code, said) = run("\u{1b}[A\u{1b}[A2\r\u{4}\r");
    assert!(code == Some(0), "{code:?}: {said}");
    assert!(ok(&mut quire(&["ls", &image])).contains("here2"), "{said}");
    p.check();
}

/// Ctrl-C, which the terminal makes a signal, ends a `get`. The shell goes on.
#[test]
fn a_terminals_shell_goes_on_after_a_get_that_was_interrupted() {
    let p = place();
    needs_tools(&["script"]);
    let image = p.image().display().to_string();
    std::fs::write(p.path("big"), vec![7; 4 << 20]).unwrap();
    ok(&mut quire(&["put", text(&p.path("big")), &format!("{image}:/big")]));
    ok(tool("mkfifo").arg(p.path("fifo")));
    // A reader that reads nothing.
    let reader = std::fs::File::options().read(true).write(true).open(p.path("fifo")).unwrap();
    let mut script = on_terminal(&image, Path::new("")).spawn().unwrap();
    let mut keyboard = script.stdin.take().unwrap();
    let mut types = |keys: &str| keyboard.write_all(keys.as_bytes()).unwrap();
    types(&format!("get /big {}\r", text(&p.path("fifo"))));
    let has_come = || poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0;
    wait_until("what get writes", has_come);
    types("\u{3}");
    let (mut terminal, mut said) = (script.stdout.take().unwrap(), String::new());
    let mut reads = |until: &str| {
        let start = said.len();
        while !said[start..].contains(until) {
            let mut byte = [0];
            assert_eq!(terminal.read(&mut byte).unwrap(), 1, "{said}");
            said.push(char::from(byte[0]));
        }
    };
    ["interrupted", "image:/> "].into_iter().for_each(&mut reads);
    types("mkdir /after\r");
    ["after", "image:/> "].into_iter().for_each(&mut reads);
    types("exit\r");
    let status = script.wait().unwrap();
    assert!(status.success(), "{status:?}: {said}");
    assert!(ok(&mut quire(&["ls", &image])).contains("after"), "{said}");
    p.check();
}
