//! Names of any bytes: in arguments, in what is printed, in tar archives of GNU tar's.

use crate::common::{Place, needs_tools, ok, quire, said, text, tool};
use crate::trees::Scratch;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

fn place() -> Place {
    needs_tools(&["mke2fs"]);
    Place::new("64M", &[])
}

/// `IMG:PATH`, with any bytes.
fn at(p: &Place, path: &[u8]) -> OsString {
    OsStr::from_bytes(&[p.image().as_os_str().as_bytes(), b":", path].concat()).to_owned()
}

/// The standard output of a command that succeeds, as it is.
fn output(c: &mut Command) -> Vec<u8> {
    let out = c.output().unwrap();
    assert!(out.status.success(), "{c:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

#[test]
fn control_characters_are_escaped_on_a_terminal_and_raw_elsewhere() {
    needs_tools(&["script"]);
    let p = place();
    ok(quire(&["mkdir"]).arg(at(&p, b"/d")));
    ok(quire(&["touch"]).arg(at(&p, b"/d/a\x1b]0;title\x07b")));
    ok(quire(&["ln", "-s", "to\x1b[2J"]).arg(at(&p, b"/d/link")));
    let dir = at(&p, b"/d").into_string().unwrap();
    for command in [&["ls"][..], &["ls", "-l"], &["tree"], &["find"], &["ls", "--json"]] {
        let raw = output(quire(command).arg(&dir));
        let json = command.contains(&"--json");
        assert!(json || raw.windows(6).any(|w| w == b"a\x1b]0;t"), "{command:?}");
        let line = format!("{} {} {dir}", env!("CARGO_BIN_EXE_quire"), command.join(" "));
        let shown = output(tool("script").args(["-qec", &line, "/dev/null"]));
        let shown = String::from_utf8(shown).unwrap();
        assert!(!shown.contains(['\x1b', '\x07']) && shown.contains("]0;title"), "{command:?}: {shown:?}");
    }
    let link = format!("{} stat {dir}/link", env!("CARGO_BIN_EXE_quire"));
    let shown = String::from_utf8(output(tool("script").args(["-qec", &link, "/dev/null"]))).unwrap();
    assert!(shown.contains("/d/link -> to\\u{1b}[2J"), "{shown:?}");
}

#[test]
fn control_characters_are_escaped_in_errors() {
    let p = place();
    for args in [&["cat"][..], &["rm"], &["ls"], &["stat"]] {
        let (code, text) = said(quire(args).arg(at(&p, b"/no\x1b[2J\nne\xff")));
        assert!(code == 1 && text.ends_with("/no\\u{1b}[2J\\nne\\xff: no such file or directory\n"), "{text:?}");
    }
    let (code, text) = said(quire(&["mv"]).args([at(&p, b"/lost+found"), at(&p, b"/\x1b/x")]));
    assert!(code == 1 && text.contains(":/\\u{1b}/x: ") && !text.contains('\x1b'), "{text:?}");
}

#[test]
fn files_and_trees_of_names_that_are_not_utf_8_come_in_and_out() {
    needs_tools(&["tar"]);
    let p = place();
    let host = |name: &[u8]| p.path("host").join(OsStr::from_bytes(name));
    std::fs::create_dir_all(host(b"in\xff")).unwrap();
    std::fs::write(host(b"in\xff/f\xfe"), "of the host").unwrap();
    ok(quire(&["mkdir"]).arg(at(&p, b"/d\xff")));
    ok(quire(&["put"]).args([host(b"in\xff/f\xfe").into_os_string(), at(&p, b"/d\xff/g\xfd")]));
    ok(quire(&["put"]).args([host(b"in\xff/f\xfe").into_os_string(), at(&p, b"/d\xff")]));
    ok(quire(&["import"]).args([at(&p, b"/d\xff"), host(b"in\xff").into_os_string()]));
    assert_eq!(output(quire(&["ls"]).arg(at(&p, b"/d\xff"))), b"f\xfe\ng\xfd\n");
    ok(quire(&["get"]).args([at(&p, b"/d\xff/g\xfd"), host(b"out\xfb").into_os_string()]));
    assert_eq!(std::fs::read(host(b"out\xfb")).unwrap(), b"of the host");
    ok(quire(&["export"]).args([at(&p, b"/d\xff"), host(b"tree\xfa/").into_os_string()]));
    assert_eq!(std::fs::read(host(b"tree\xfa/g\xfd")).unwrap(), b"of the host");
    let put = said(quire(&["put", "-"]).arg(at(&p, b"/d\xff")));
    assert_eq!(put.0, 2);
    assert!(put.1.contains("/d\\xff: standard input needs the name of a file"), "{put:?}");
}

#[test]
fn differences_have_names_of_any_bytes_which_have_no_effect_on_a_terminal() {
    needs_tools(&["script"]);
    let p = place();
    ok(quire(&["mkdir"]).args([at(&p, b"/a\xff"), at(&p, b"/b"), at(&p, b"/c")]));
    ok(quire(&["touch"]).args([at(&p, b"/a\xff/x\xfe"), at(&p, b"/b/y\x1b[2J")]));
    let diff = |how: &[&str]| quire(&["diff"]).args(how).args([at(&p, b"/a\xff"), at(&p, b"/b")]).output().unwrap();
    let out = diff(&[]);
    assert_eq!((out.status.code(), &out.stdout[..]), (Some(1), &b"- x\xfe\n+ y\x1b[2J\n"[..]));
    let found: serde_json::Value = serde_json::from_slice(&diff(&["--json"]).stdout).unwrap();
    assert_eq!(found[0]["path_hex"], "78fe");
    assert!(found[1].get("path_hex").is_none() && found[1]["path"] == "y\u{1b}[2J", "{found}");
    let line = format!("{} diff {1}:/c {1}:/b", env!("CARGO_BIN_EXE_quire"), p.image().display());
    let shown = tool("script").args(["-qec", &line, "/dev/null"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8(shown).unwrap(), "+ y\\u{1b}[2J\r\n");
}

#[test]
fn names_that_are_not_utf_8_are_names_as_others() {
    let p = place();
    ok(quire(&["mkdir", "-p"]).arg(at(&p, b"/d\xff/sub")));
    ok(quire(&["touch"]).args([at(&p, b"/d\xff/a\xfe"), at(&p, b"/d\xff/a\xfd")]));
    ok(quire(&["ln", "-s"]).args([OsStr::from_bytes(b"t\xfc"), &at(&p, b"/d\xff/link")]));
    ok(quire(&["mv"]).args([at(&p, b"/d\xff/a\xfe"), at(&p, b"/d\xff/sub")]));
    ok(quire(&["setfattr", "-v", "v", "-n"]).args([OsStr::from_bytes(b"user.\xfb"), &at(&p, b"/d\xff/a\xfd")]));
    assert_eq!(output(quire(&["getfattr"]).arg(at(&p, b"/d\xff/a\xfd"))), b"user.\xfb=\"v\"\n");
    assert_eq!(output(quire(&["ls"]).arg(at(&p, b"/d\xff"))), b"a\xfd\nlink\nsub\n");
    assert!(output(quire(&["ls", "-l"]).arg(at(&p, b"/d\xff"))).windows(10).any(|w| w == b"link -> t\xfc"));
    assert_eq!(output(quire(&["tree"]).arg(at(&p, b"/d\xff/sub"))), b"/d\xff/sub\n  a\xfe\n");
    let pattern = OsStr::from_bytes(b"?\xfe");
    assert_eq!(output(quire(&["find", "--name"]).arg(pattern).arg(at(&p, b"/"))), b"/d\xff/sub/a\xfe\n");
    let json = output(quire(&["find", "--json"]).arg(at(&p, b"/d\xff")));
    let items: Vec<serde_json::Value> = serde_json::from_slice(&json).unwrap();
    let paths: Vec<_> = items.iter().map(|i| i["path_hex"].as_str().unwrap()).collect();
    assert_eq!(paths, ["2f64ff", "2f64ff2f61fd", "2f64ff2f6c696e6b", "2f64ff2f737562", "2f64ff2f7375622f61fe"]);
    assert_eq!(items[2]["target_hex"], "74fc");
    let script = p.path("script");
    std::fs::write(&script, b"rm /d\xff/a\xfd\nls /d\xff\n").unwrap();
    assert_eq!(output(quire(&["script"]).args([&p.image(), &script])), b"link\nsub\n");
    ok(quire(&["rm", "-r"]).arg(at(&p, b"/d\xff")));
    assert_eq!(output(quire(&["find", "--json", "--type", "file"]).arg(at(&p, b"/"))), b"[]\n");
    p.check();
}

#[test]
fn a_name_that_ends_with_a_slash_is_a_directory() {
    let p = place();
    let (file, new) = (at(&p, b"/file"), at(&p, b"/new/"));
    ok(quire(&["touch"]).arg(&file));
    let (code, text) = said(quire(&["mv"]).args([&file, &new]));
    assert!(code == 1 && text.contains("/new/: ") && text.contains("not a directory"), "{text}");
    ok(quire(&["mkdir", "-p"]).arg(at(&p, b"/a/../b")));
    assert_eq!(output(quire(&["ls"]).arg(p.image())), b"a\nb\nfile\nlost+found\n");
}

#[test]
fn modes_are_copied_and_changed_more_than_once_as_chmod_does() {
    let p = place();
    ok(quire(&["touch"]).arg(at(&p, b"/f")));
    ok(quire(&["chmod", "u+x-w,g=u"]).arg(at(&p, b"/f")));
    assert!(output(quire(&["ls", "-l"]).arg(at(&p, b"/f"))).starts_with(b"-r-xr-xr--"));
}

#[test]
fn gnu_tar_reads_the_names_of_attributes_and_quire_reads_gnu_tars() {
    needs_tools(&["mke2fs", "tar", "getfattr", "setfattr"]);
    let s = Scratch::new();
    std::fs::create_dir_all(s.path("tree")).unwrap();
    std::fs::write(s.path("tree/f"), "").unwrap();
    let names = ["user.a=b", "user.100%", "user.%3D", "user.a%25="];
    for name in names {
        if !tool("setfattr").args(["-n", name, "-v", "v"]).arg(s.path("tree/f")).status().unwrap().success() {
            crate::common::skip("no attributes on the host");
        }
    }
    let attributes = ["--xattrs", "--xattrs-include=*"];
    ok(tool("tar").args(attributes).arg("-C").arg(s.path("tree")).args(["-cf", &s.text("gnu.tar"), "."]));
    ok(&mut quire(&["create", &s.text("image"), "--from", &s.text("gnu.tar"), "--size", "16M"]));
    let file = format!("{}:/f", s.text("image"));
    let mut wanted: Vec<_> = names.iter().map(|n| format!("{n}=\"v\"")).collect();
    wanted.sort();
    let listed = |text: String| {
        let mut lines: Vec<_> = text.lines().filter(|l| l.starts_with("user.")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(listed(ok(&mut quire(&["getfattr", &file]))), wanted);
    ok(&mut quire(&["export", &s.text("image"), &s.text("quire.tar")]));
    std::fs::create_dir(s.path("out")).unwrap();
    ok(tool("tar").args(attributes).arg("-C").arg(s.path("out")).args(["-xf", &s.text("quire.tar")]));
    let found = ok(tool("getfattr").args(["-d", "-m", "user."]).arg(s.path("out/f")));
    // getfattr(1) shows `=` in a name as an octal escape.
    assert_eq!(listed(found.replace("\\075", "=").replace("\\075", "=")), wanted);
}

#[test]
fn a_default_acl_of_a_host_directory_gives_no_acls_to_what_is_below() {
    needs_tools(&["mke2fs", "setfacl"]);
    let s = Scratch::new();
    let shell = r#"mkdir -p "$1/d"; echo c >"$1/d/child"; chmod 640 "$1/d/child"; setfacl -m d:u:7:rwx "$1/d""#;
    if !tool("sh").args(["-c", shell, "sh", &s.text("tree")]).status().unwrap().success() {
        crate::common::skip("no ACLs on the host");
    }
    let image = s.text("image");
    ok(&mut quire(&["create", &image, "--from", &s.text("tree"), "--size", "16M"]));
    assert_eq!(ok(&mut quire(&["getfattr", &format!("{image}:/d/child")])), "");
    assert!(ok(&mut quire(&["getfattr", &format!("{image}:/d")])).starts_with("system.posix_acl_default="));
    assert!(ok(&mut quire(&["ls", "-l", &format!("{image}:/d")])).starts_with("-rw-r----- "));
}

#[test]
fn commands_tell_a_directory_that_is_below_itself() {
    needs_tools(&["debugfs"]);
    let p = place();
    ok(quire(&["mkdir", "-p"]).arg(at(&p, b"/a/b")));
    ok(quire(&["touch"]).arg(at(&p, b"/kept")));
    ok(tool("debugfs").args(["-w", "-R", "ln / /a/b/up"]).arg(p.image()));
    for command in [&["tree"][..], &["du"], &["find"], &["rm", "-r"], &["chmod", "-R", "0700"]] {
        for path in [&b"/a"[..], b"/a/b"] {
            let (code, text) = said(quire(command).arg(at(&p, path)));
            assert!(code == 1 && text.ends_with("/a/b/up: corrupt: directory inode 2 is below itself\n"), "{text}");
        }
    }
    assert_eq!(said(quire(&["rm", "-r"]).arg(at(&p, b"/a/b/up"))).0, 1);
    let (code, text) = said(quire(&["export"]).arg(p.image()).arg(p.path("out.tar")));
    assert!(code == 1 && text.contains("directory inode 2 is below itself"), "{text}");
    assert_eq!(output(quire(&["ls"]).arg(p.image())), b"a\nkept\nlost+found\n");
}

#[test]
fn programs_by_other_names_take_names_of_any_bytes() {
    let s = Scratch::new();
    let missing = s.path("").join(OsStr::from_bytes(b"no\xff.img"));
    for name in ["mount.quire", "fuse2fs"] {
        let program = s.path(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_quire"), &program).unwrap();
        let (code, text) = said(tool(text(&program)).arg(&missing).arg(s.path("")));
        assert!(code == 32 && text.contains("No such file") && !text.contains("panicked"), "{name}: {code}: {text}");
    }
    let (code, text) = said(quire(&[]).arg(OsStr::from_bytes(b"\xff")));
    assert!(code == 1 && !text.contains("panicked"), "{code}: {text}");
}

/// A reader that stops at the end of an archive does not see that its writer has failed.
#[test]
fn an_export_that_fails_leaves_no_archive_that_looks_whole() {
    needs_tools(&["debugfs", "tar"]);
    let p = place();
    ok(quire(&["mkdir", "-p"]).arg(at(&p, b"/a/b")));
    ok(tool("debugfs").args(["-w", "-R", "ln / /a/b/up"]).arg(p.image()));
    let out = quire(&["export"]).arg(p.image()).arg("-").output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let tar = p.path("out.tar");
    std::fs::write(&tar, out.stdout).unwrap();
    let (code, text) = said(tool("tar").arg("-tf").arg(&tar));
    assert!(code == 2 && text.starts_with("./\na/\na/b/\n"), "GNU tar: {code}: {text}");
    let (code, text) = said(quire(&["create"]).arg(p.path("new")).arg("--from").arg(&tar));
    assert!(code == 1 && text.contains("the archive ends in the middle of an entry"), "{code}: {text}");
}
