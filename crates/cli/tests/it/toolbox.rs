//! The toolbox: what each command does, says and returns, with debugfs and e2fsck as judges.

use crate::common::{Place, needs_tools, ok, quire, said, tool};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

fn place() -> Place {
    needs_tools(&["mke2fs", "debugfs"]);
    Place::new("64M", &[])
}

/// `IMG:PATH`.
trait Image {
    fn at(&self, path: &str) -> String;
}

impl Image for Place {
    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.image().display())
    }
}

fn debugfs(p: &Place, command: &str) -> String {
    ok(tool("debugfs").args(["-R", command]).arg(p.image()))
}

fn fsck(p: &Place) {
    ok(tool("e2fsck").arg("-fn").arg(p.image()));
}

#[test]
fn files_go_in_and_come_out_with_their_attributes() {
    let p = place();
    let (source, back) = (p.path("source"), p.path("back"));
    std::fs::write(&source, vec![7; 300_000]).unwrap();
    let s = source.to_str().unwrap();
    ok(&mut quire(&["put", "-p", s, &p.at("/usr/share/x"), "--mode", "0640", "--owner", "12:34"]));
    ok(&mut quire(&["get", &p.at("/usr/share/x"), back.to_str().unwrap()]));
    assert!(std::fs::read(&back).unwrap() == vec![7; 300_000]);
    let stat = debugfs(&p, "stat /usr/share/x");
    assert!(stat.contains("Mode:  0640") && stat.contains("User:    12   Group:    34"), "{stat}");
    // A file that is replaced keeps owner and mode.
    let mut put = quire(&["put", "-", &p.at("/usr/share/x")]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"shorter").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(ok(&mut quire(&["cat", &p.at("/usr/share/x")])), "shorter");
    let stat = debugfs(&p, "stat /usr/share/x");
    assert!(stat.contains("Mode:  0640") && stat.contains("User:    12   Group:    34"), "{stat}");
    fsck(&p);
}

#[test]
fn names_are_made_moved_linked_and_removed() {
    let p = place();
    ok(&mut quire(&["mkdir", "-p", "-m", "0750", &p.at("/a/b/c")]));
    ok(&mut quire(&["touch", "--time", "@1000000000.5", &p.at("/a/f")]));
    ok(&mut quire(&["touch", "--node", "c,1,3", &p.at("/a/null")]));
    ok(&mut quire(&["ln", &p.at("/a/f"), &p.at("/a/b")]));
    ok(&mut quire(&["ln", "-s", "b/c", &p.at("/a/s")]));
    ok(&mut quire(&["mv", &p.at("/a/b/c"), &p.at("/a/d")]));
    ok(&mut quire(&["chmod", "u=rwx,go=", &p.at("/a/f")]));
    ok(&mut quire(&["chown", "-R", "5:6", &p.at("/a")]));
    ok(&mut quire(&["truncate", "-s", "1M", &p.at("/a/f")]));
    ok(&mut quire(&["setfattr", "-n", "user.k", "-v", "v", &p.at("/a/f")]));
    assert_eq!(ok(&mut quire(&["getfattr", &p.at("/a/f")])), "user.k=\"v\"\n");
    assert_eq!(ok(&mut quire(&["ls", &p.at("/a")])), "b\nd\nf\nnull\ns\n");
    let long = ok(&mut quire(&["ls", "-l", &p.at("/a")]));
    assert!(long.contains("-rwx------   2     5     6    1048576 ") && long.contains("crw-r--r--"), "{long}");
    assert!(long.contains("s -> b/c"), "{long}");
    let all = ok(&mut quire(&["find", &p.at("/a"), "--name", "?", "--type", "directory"]));
    assert_eq!(all, "/a\n/a/b\n/a/d\n");
    let json = ok(&mut quire(&["stat", "--json", &p.at("/a/f")]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["size"], &json[0]["links"]), (&1_048_576.into(), &2.into()));
    assert_eq!(ok(&mut quire(&["tree", &p.at("/a/b")])), "/a/b\n  f\n");
    ok(&mut quire(&["rm", "-r", &p.at("/a")]));
    assert_eq!(ok(&mut quire(&["ls", &p.at("/")])), "lost+found\n");
    fsck(&p);
}

#[test]
fn failures_have_an_exit_code_and_name_image_and_path() {
    let p = place();
    let image = p.image().display().to_string();
    let (code, text) = said(&mut quire(&["cat", &p.at("/none")]));
    assert_eq!((code, text), (1, format!("quire: cat: {image}:/none: no such file or directory\n")));
    let (code, text) = said(&mut quire(&["put", "/no/such", &p.at("/x")]));
    assert!(code == 1 && text.starts_with("quire: put: /no/such: "), "{code}: {text}");
    let (code, text) = said(&mut quire(&["ls", "/no/such.img:/"]));
    assert_eq!((code, text.as_str()), (1, "quire: ls: /no/such.img: no such file or device\n"));
    assert_eq!(said(&mut quire(&["rm", &p.at("/lost+found")])).0, 1);
    assert_eq!(said(&mut quire(&["mkdir"])).0, 2);
    assert_eq!(said(&mut quire(&["chmod", "rwx", &p.at("/")])).0, 2);
    assert_eq!(said(&mut quire(&["mv", &p.at("/a"), "other.img:/b"])).0, 2);
    // Nothing of a command that fails in the middle has happened.
    assert_eq!(said(&mut quire(&["mkdir", &p.at("/new"), &p.at("/none/x")])).0, 1);
    assert_eq!(ok(&mut quire(&["ls", &p.at("/")])), "lost+found\n");
    fsck(&p);
}

#[test]
fn a_path_that_ends_in_a_dot_is_a_directory_without_a_name() {
    let p = place();
    let source = p.path("x");
    std::fs::write(&source, "new").unwrap();
    ok(&mut quire(&["mkdir", "-p", &p.at("/d/sub"), &p.at("/p/.")]));
    ok(&mut quire(&["touch", &p.at("/d/f"), &p.at("/g")]));
    let image = p.image().display().to_string();
    for args in [&["rm", "-r"][..], &["rm", "-d"], &["rm", "-rf"]] {
        for path in ["/d/.", "/d/./", "d/sub/../."] {
            let (code, text) = said(quire(args).arg(p.at(path)));
            let end = format!("{image}:{path}: the path has no last name\n");
            assert!(code == 1 && text.ends_with(&end), "{args:?} {path}: {code}: {text}");
        }
    }
    let (code, text) = said(&mut quire(&["mkdir", &p.at("/new/.")]));
    assert_eq!((code, text), (1, format!("quire: mkdir: {image}:/new/.: no such file or directory\n")));
    for args in [["mkdir", "/d/."], ["touch", "/new/."], ["truncate", "/new/."], ["chmod", "/g/."]] {
        let more = &["-s", "0"][..if args[0] == "truncate" { 2 } else { 0 }];
        let mode = &["0600"][..usize::from(args[0] == "chmod")];
        assert_eq!(said(quire(&[&args[..1], more, mode].concat()).arg(p.at(args[1]))).0, 1, "{args:?}");
    }
    assert_eq!(said(&mut quire(&["put", source.to_str().unwrap(), &p.at("/new/.")])).0, 1);
    assert_eq!(said(&mut quire(&["mv", &p.at("/d/."), &p.at("/e")])).0, 1);
    assert_eq!(said(&mut quire(&["mv", &p.at("/d/."), &p.at("/p")])).0, 2);
    assert_eq!(said(&mut quire(&["ln", "-s", "/d/.", &p.at("/p")])).0, 2);
    assert_eq!(ok(&mut quire(&["ls", &p.at("/")])), "d\ng\nlost+found\np\n");
    // It is read, and things are put into it.
    ok(&mut quire(&["mv", &p.at("/g"), &p.at("/d/.")]));
    ok(&mut quire(&["ln", &p.at("/d/g"), &p.at("/d/sub/.")]));
    ok(&mut quire(&["put", source.to_str().unwrap(), &p.at("/d/sub/.")]));
    ok(&mut quire(&["put", "-p", source.to_str().unwrap(), &p.at("/made/.")]));
    ok(&mut quire(&["mkdir", "-p", &p.at("/d/sub/.")]));
    ok(&mut quire(&["chmod", "0700", &p.at("/d/sub/.")]));
    assert_eq!(ok(&mut quire(&["ls", &p.at("/d/.")])), "f\ng\nsub\n");
    assert_eq!(ok(&mut quire(&["find", &p.at("/d/sub/.")])), "/d/sub/.\n/d/sub/./g\n/d/sub/./x\n");
    assert_eq!(ok(&mut quire(&["cat", &p.at("/made/x")])), "new");
    assert!(ok(&mut quire(&["stat", "--json", &p.at("/d/sub/.")])).contains("\"mode\": \"0700\""));
    fsck(&p);
}

#[test]
fn a_link_does_not_replace_the_name_that_it_leads_to() {
    let p = place();
    ok(&mut quire(&["mkdir", &p.at("/d")]));
    let mut put = quire(&["put", "-", &p.at("/d/h")]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"kept").unwrap();
    assert!(put.wait().unwrap().success());
    ok(&mut quire(&["ln", "-s", "d", &p.at("/link")]));
    let refused = |args: &[&str], target: &str, path: &str| {
        let target = if args.contains(&"-s") { target.to_owned() } else { p.at(target) };
        let (code, text) = said(quire(args).args([&target, &p.at(path)]));
        assert!(code == 1 && text.ends_with(&format!("and {path} are the same file\n")), "{args:?}: {code}: {text}");
    };
    refused(&["ln", "-f"], "/d/h", "/d/h");
    refused(&["ln", "-f"], "/link/h", "/d/h");
    refused(&["ln", "-f", "-s"], "h", "/d/h");
    refused(&["ln", "-f", "-s"], "/d/h", "/d/h");
    assert_eq!(said(&mut quire(&["ln", "-f", &p.at("/none"), &p.at("/d/h")])).0, 1);
    // Another name of the same file is replaced, as by ln(1); the last one is not.
    ok(&mut quire(&["ln", &p.at("/d/h"), &p.at("/second")]));
    ok(&mut quire(&["ln", "-f", &p.at("/d/h"), &p.at("/second")]));
    refused(&["ln", "-f"], "/second", "/second");
    refused(&["ln", "-f"], "/link/h", "/d/h");
    assert_eq!(ok(&mut quire(&["cat", &p.at("/second")])), "kept");
    ok(&mut quire(&["ln", "-f", "-s", "d/h", &p.at("/second")]));
    ok(&mut quire(&["ln", "-f", "-s", "d/h", &p.at("/second")]));
    ok(&mut quire(&["ln", "-f", "-s", "none", &p.at("/second")]));
    assert_eq!(ok(&mut quire(&["cat", &p.at("/d/h")])), "kept");
    fsck(&p);
}

#[test]
fn an_owner_of_minus_one_is_wrong_usage() {
    let p = place();
    let (none, map) = ("4294967295", "0:4294967295");
    let image = p.image().display().to_string();
    for args in [
        &["chown", none, &p.at("/lost+found")][..],
        &["chown", "-R", "0:4294967295", &p.at("/")],
        &["mkdir", "--owner", none, &p.at("/d")],
        &["put", "--owner", ":4294967295", "-", &p.at("/f")],
        &["import", "--owner", map, &image, "/nowhere"],
        &["import", "--map-user", map, &image, "/nowhere"],
        &["import", "--map-group", map, &image, "/nowhere"],
        &["create", "--map-user", map, "new.img"],
    ] {
        let (code, text) = said(&mut quire(args));
        assert!(code == 2 && text.contains("is no owner"), "{args:?}: {code}: {text}");
    }
    assert_eq!(ok(&mut quire(&["ls", &p.at("/")])), "lost+found\n");
}

#[test]
fn reading_an_image_does_not_change_it() {
    let p = place();
    let before = std::fs::read(p.image()).unwrap();
    for args in [&["ls", "-l"][..], &["tree"], &["du"], &["df"], &["find"], &["stat"]] {
        ok(&mut quire(&[args, &[&p.at("/")]].concat()));
    }
    assert!(std::fs::read(p.image()).unwrap() == before);
}

fn script(p: &Place, text: &str) -> (i32, String) {
    let file = p.path("script");
    std::fs::write(&file, text).unwrap();
    let (code, said) = said(&mut quire(&["script", p.image().to_str().unwrap(), file.to_str().unwrap()]));
    (code, said.replace(file.to_str().unwrap(), "SCRIPT").replace(p.image().to_str().unwrap(), "IMG"))
}

#[test]
fn a_script_stops_at_its_first_error_with_the_line_and_nothing_has_happened() {
    let p = place();
    let (code, text) = script(&p, "mkdir /a\n# comment\n\nrm /none\nmkdir /b\n");
    assert_eq!((code, text.as_str()), (1, "quire: script: SCRIPT:4: IMG:/none: no such file or directory\n"));
    // A line that is no command is found before the first one runs.
    let (code, text) = script(&p, "mkdir /a\nmkdirr /b\n");
    assert!(code == 2 && text.contains("SCRIPT:2: ") && text.contains("mkdirr"), "{code}: {text}");
    assert_eq!(ok(&mut quire(&["ls", &p.at("/")])), "lost+found\n");
    let (code, text) = script(&p, "mkdir '/a b'\nls /\n");
    assert_eq!((code, text.as_str()), (0, "a b\nlost+found\n"));
    fsck(&p);
}

/// The twenty things that are done with debugfs.
const TWENTY: &str = "mkdir /etc\nput SOURCE /etc/passwd\nput SOURCE /etc/big\nln /etc/passwd /etc/linked
ln -s passwd /etc/link\nchmod 0600 /etc/passwd\nchown 1:2 /etc/passwd\ntouch --node c,1,3 /etc/null
touch --node p /etc/pipe\nsetfattr -n user.a -v b /etc/passwd\ntruncate -s 100 /etc/big\nmv /etc/big /etc/cut
rm /old/file\nrm -r /old\nmkdir -p /var/lib/app\nchown -R 3:4 /var\ntouch --time 1 /etc/passwd
setfattr -x user.a /etc/passwd\nput SOURCE /over\nchmod u+s /over\n";

#[test]
fn a_script_that_is_killed_at_any_moment_leaves_all_of_it_or_nothing() {
    let p = place();
    let rounds: u32 = if std::env::var_os("FULL").is_some() { 200 } else { 12 };
    let source = p.path("source");
    std::fs::write(&source, vec![5; 400_000]).unwrap();
    let text = TWENTY.replace("SOURCE", source.to_str().unwrap());
    let setup = "mkdir /old\nput SOURCE /old/file\nput SOURCE /over\n".replace("SOURCE", source.to_str().unwrap());
    assert_eq!(script(&p, &setup).0, 0);
    let (fresh, file) = (p.path("fresh"), p.path("twenty"));
    std::fs::copy(p.image(), &fresh).unwrap();
    std::fs::write(&file, &text).unwrap();
    let image = p.image();
    let run = || quire(&["script", image.to_str().unwrap(), file.to_str().unwrap()]);
    let started = std::time::Instant::now();
    ok(&mut run());
    let whole = started.elapsed();
    let listing = || {
        let tree = ok(&mut quire(&["find", &p.at("/"), "--json"]));
        let items: Vec<serde_json::Value> = serde_json::from_str(&tree).unwrap();
        let shown = items.iter().map(|i| format!("{} {} {} {}", i["path"], i["mode"], i["uid"], i["size"]));
        shown.collect::<Vec<_>>()
    };
    let after = listing();
    std::fs::copy(&fresh, &image).unwrap();
    let before = listing();
    let (mut none, mut all) = (0, 0);
    for round in 0..rounds {
        std::fs::copy(&fresh, &image).unwrap();
        let mut child = run().spawn().unwrap();
        // Moments over the whole run and a little behind it.
        std::thread::sleep(whole.mul_f64(1.2 * f64::from(round) / f64::from(rounds)));
        child.kill().ok();
        child.wait().unwrap();
        let found = listing();
        assert!(found == before || found == after, "round {round} of {rounds}: half of a script: {found:#?}");
        if found == before {
            none += 1
        } else {
            all += 1
        }
        fsck(&p);
    }
    println!("{none} times nothing, {all} times all");
}

#[test]
fn commands_work_on_a_partition_and_at_an_offset() {
    let p = place();
    let fs = std::fs::read(p.image()).unwrap();
    let mut disk = vec![0; 1 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&u32::try_from(fs.len() / 512).unwrap().to_le_bytes());
    disk.extend(fs);
    std::fs::write(p.image(), disk).unwrap();
    ok(&mut quire(&["mkdir", "--partition", "1", &p.at("/in")]));
    assert_eq!(ok(&mut quire(&["ls", "--offset", "1M", &p.at("/")])), "in\nlost+found\n");
    let image = p.image().display().to_string();
    for at in [["--offset", "1M"], ["--partition", "1"]] {
        for args in [&["info"][..], &["wait"], &["recover", "--dry-run"]] {
            ok(quire(args).args(at).arg(&image));
        }
        assert!(ok(quire(&["dump"]).args(at).args([&image, "dir", "/"])).contains("in"));
        ok(quire(&["diff", &image, &image]).args(at));
    }
    let (code, text) = said(&mut quire(&["ls", &p.at("/")]));
    assert!(code == 1 && text.contains("not an ext4 file system"), "{text}");
    assert_eq!(said(&mut quire(&["ls", "--partition", "2", &p.at("/")])).0, 1);
}

#[test]
fn a_script_makes_files_of_the_host_at_its_end_only() {
    let p = place();
    let (new, old) = (p.path("new"), p.path("old"));
    std::fs::write(&old, "old").unwrap();
    std::fs::write(p.path("hello"), "hello").unwrap();
    ok(&mut quire(&["put", p.path("hello").to_str().unwrap(), &p.at("/f")]));
    let gets = format!("get /f {}\nget /f {}\n", new.display(), old.display());
    let unchanged = |after: &str| {
        assert!(!new.exists() && std::fs::read(&old).unwrap() == b"old", "after {after}");
    };
    let file = p.path("gets");
    std::fs::write(&file, &gets).unwrap();
    let (image, file) = (p.image().display().to_string(), file.display().to_string());
    ok(&mut quire(&["script", "--dry-run", &image, &file]));
    unchanged("a dry run");
    assert_eq!(script(&p, &format!("{gets}rm /none\n")).0, 1);
    unchanged("an error of a later line");
    let (code, text) = script(&p, &format!("{gets}put {} /g\n", old.display()));
    assert!(code == 1 && text.ends_with("old: this script replaces it, at its end\n"), "{code}: {text}");
    unchanged("a put of what is replaced");
    let (code, text) = said(quire(&["script", "--dry-run", &image, "/dev/stdin"]).stdin(lines("get /f /dev/null\n")));
    assert!(code == 1 && text.contains("/dev/null: a dry run writes to no device, FIFO or open file"), "{text}");
    assert_eq!(script(&p, &gets), (0, String::new()));
    assert_eq!([new, old].map(|f| std::fs::read_to_string(f).unwrap()), ["hello", "hello"]);
}

/// A file with these lines as an input.
fn lines(text: &str) -> std::fs::File {
    use std::io::Seek;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file
}

/// What a command prints as JSON.
fn json(c: &mut std::process::Command) -> serde_json::Value {
    serde_json::from_str(&ok(c)).unwrap()
}

#[test]
fn lists_of_several_directories_have_whole_paths_in_json() {
    let p = place();
    ok(&mut quire(&["mkdir", &p.at("/a"), &p.at("/b")]));
    ok(&mut quire(&["touch", &p.at("/a/x"), &p.at("/b/x")]));
    ok(&mut quire(&["ln", "-s", "x", &p.at("/a/link")]));
    let found = json(&mut quire(&["ls", "--json", &p.at("/a"), &p.at("/b/"), &p.at("/a/x")]));
    let paths: Vec<_> = found.as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/a/link", "/a/x", "/b/x", "/a/x"]);
    assert_eq!(found[0]["target"], "x");
}

#[test]
fn stat_has_the_same_in_json_as_in_text() {
    let p = place();
    ok(&mut quire(&["touch", "--time", "@1000000000.5", &p.at("/f")]));
    let text = ok(&mut quire(&["stat", &p.at("/f")]));
    let found = &json(&mut quire(&["stat", "--json", &p.at("/f")]))[0];
    let of_text = |name: &str| {
        let times = text.lines().filter(|line| line.ends_with('Z'));
        let time = times.filter_map(|line| line.trim().split_once(": ")).find(|(of, _)| *of == name);
        time.unwrap_or_else(|| panic!("{name} of {text}")).1
    };
    for (key, name) in [("accessed", "Access"), ("changed", "Change"), ("created", "Birth")] {
        assert_eq!(found[key], of_text(name), "{key}");
    }
    assert_eq!((&found["modified"], &found["modified_nanos"]), (&"2001-09-09T01:46:40Z".into(), &500_000_000.into()));
    assert_eq!(of_text("Modify"), "2001-09-09T01:46:40.500000000Z");
    let flags = found["flags"].as_u64().unwrap();
    assert!(text.contains(&format!("Flags: {flags:#x}\n")) && flags != 0, "{flags}: {text}");
    assert!(found["path"] == "/f" && found["uid"] == 0 && found["size"] == 0, "{found}");
}

#[test]
fn getfattr_in_json_has_each_attribute_whatever_its_name() {
    let p = place();
    ok(&mut quire(&["touch", &p.at("/f")]));
    let names = [&b"user.\xff"[..], b"user.\\xff", b"user.plain"];
    for (name, value) in names.into_iter().zip(["1", "2", "3"]) {
        ok(quire(&["setfattr", "-v", value, "-n"]).args([OsStr::from_bytes(name), OsStr::new(&p.at("/f"))]));
    }
    let expected = serde_json::json!({"hex:757365722eff": "31", "user.\\xff": "32", "user.plain": "33"});
    assert_eq!(json(&mut quire(&["getfattr", "--json", &p.at("/f")])), expected);
}

#[test]
fn a_chmod_of_a_directory_keeps_set_group_id_unless_it_names_it() {
    let p = place();
    ok(&mut quire(&["mkdir", "-m", "2770", &p.at("/d")]));
    ok(&mut quire(&["touch", &p.at("/d/f")]));
    ok(&mut quire(&["chmod", "2770", &p.at("/d/f")]));
    ok(&mut quire(&["chmod", "-R", "0755", &p.at("/d")]));
    assert!(debugfs(&p, "stat /d").contains("Mode:  02755") && debugfs(&p, "stat /d/f").contains("Mode:  0755"));
    ok(&mut quire(&["chmod", "g-s", &p.at("/d")]));
    assert!(debugfs(&p, "stat /d").contains("Mode:  0755"));
}

#[test]
fn an_import_of_a_file_that_tar_was_given_twice_keeps_it() {
    needs_tools(&["tar"]);
    let p = place();
    std::fs::write(p.path("a"), "hello").unwrap();
    std::fs::hard_link(p.path("a"), p.path("b")).unwrap();
    let tar = p.path("t.tar");
    ok(tool("tar").arg("-C").arg(p.path("")).arg("-cf").arg(&tar).args(["a", "a"]));
    let image = p.image().display().to_string();
    ok(&mut quire(&["import", &image, tar.to_str().unwrap()]));
    assert_eq!(ok(&mut quire(&["cat", &p.at("/a")])), "hello");
    fsck(&p);
}
