//! What the toolbox does to files of the host: devices, FIFOs and links stay, images in use are refused, modes and
//! owners are those that users expect.

use crate::common::{Place, copy_program, needs_mounts, needs_root, needs_tools, ok, quire, said, skip, text, tool};
use crate::trees::Scratch;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// An image of 16 MiB with a file `/f` of mode 0640 that says `hello`.
fn image(s: &Scratch, name: &str) -> String {
    needs_tools(&["mke2fs", "e2fsck", "resize2fs"]);
    let path = s.text(name);
    ok(&mut quire(&["create", &path, "--size", "16M"]));
    fs::write(s.path("hello"), "hello").unwrap();
    ok(&mut quire(&["put", "--mode", "0640", &s.text("hello"), &format!("{path}:/f")]));
    path
}

/// A loop device on an image, and a node for it that is ours.
struct Loop {
    device: String,
}

impl Loop {
    fn on(image: &str) -> Loop {
        needs_root();
        needs_tools(&["losetup"]);
        let (code, device) = said(tool("losetup").args(["-f", "--show", image]));
        if code != 0 {
            skip("no loop device");
        }
        Loop { device: device.trim().to_owned() }
    }

    fn node(&self, at: &Path) {
        let rdev = fs::metadata(&self.device).unwrap().rdev();
        let (major, minor) = (rustix::fs::major(rdev).to_string(), rustix::fs::minor(rdev).to_string());
        ok(tool("mknod").arg(at).args(["b", &major, &minor]));
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        tool("losetup").args(["-d", &self.device]).output().ok();
    }
}

fn is_block_device(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().file_type().is_block_device()
}

/// Names in a directory that begin with a dot: temporary files.
fn hidden(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// The command by a user with this umask.
fn with_umask(umask: &str, args: &[&str]) -> Command {
    let mut c = tool("sh");
    c.args(["-c", "umask $0; exec \"$@\"", umask, env!("CARGO_BIN_EXE_quire")]).args(args);
    c
}

#[test]
fn resize_and_create_of_a_block_device_are_refused_and_leave_its_node() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let device = Loop::on(&img);
    let before = fs::read(&img).unwrap();
    let node = s.path("node");
    device.node(&node);
    for (args, instead) in
        [(["resize", text(&node), "30M"], "resize2fs"), (["create", text(&node), "-Lx"], "mkfs.ext4")]
    {
        let (code, words) = said(&mut quire(&args));
        assert!(code == 1 && words.contains("a block device, not an image file"), "{args:?}: {code}: {words}");
        assert!(words.contains(instead), "{args:?}: {words}");
        assert!(is_block_device(&node), "{args:?} replaced the node");
    }
    assert_eq!(hidden(node.parent().unwrap()), [""; 0]);
    assert!(fs::read(&img).unwrap() == before);
}

#[test]
fn resize_and_create_refuse_an_image_that_a_loop_device_shows() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let device = Loop::on(&img);
    let ino = fs::metadata(&img).unwrap().ino();
    for args in [["resize", &img, "30M"], ["resize", &img, "min"], ["create", &img, "-Lx"]] {
        let (code, words) = said(&mut quire(&args));
        assert!(code == 1 && words.contains("in use by the kernel, through"), "{args:?}: {code}: {words}");
    }
    assert_eq!(fs::metadata(&img).unwrap().ino(), ino, "it was replaced");
    drop(device);
    ok(&mut quire(&["resize", &img, "30M"]));
}

/// A copy of what the kernel writes meanwhile would be of no moment. Nobody else holds a lock on it.
#[test]
fn clone_and_check_refuse_an_image_that_the_kernel_has_mounted_for_writing() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let loops = Loop::on(&img);
    let at = s.text("mnt");
    fs::create_dir(&at).unwrap();
    ok(tool("mount").args(["-t", "ext4", &loops.device, &at]));
    let copy = s.text("copy");
    let refused: Vec<_> = [&img, &loops.device]
        .into_iter()
        .flat_map(|image| [said(&mut quire(&["clone", image, &copy])), said(&mut quire(&["check", image]))])
        .collect();
    ok(tool("mount").args(["-o", "remount,ro", &at]));
    let read_only =
        [&["clone", &img, &copy][..], &["check", &img], &["check", &loops.device]].map(|args| said(&mut quire(args)));
    ok(tool("umount").arg(&at));
    let busy = format!("in use by a mount at {at}");
    let codes = refused.iter().map(|(code, _)| *code).collect::<Vec<_>>();
    assert_eq!(codes, [1, 8, 1, 8], "{refused:?}");
    assert!(refused.iter().all(|(_, words)| words.contains(&busy)), "{refused:?}");
    assert_eq!(read_only.each_ref().map(|(code, _)| *code), [0; 3], "{read_only:?}");
    assert_eq!(ok(&mut quire(&["cat", &format!("{copy}:/f")])), "hello");
}

#[test]
fn resize_and_create_refuse_an_image_that_is_mounted() {
    needs_mounts();
    let p = Place::new("16M", &[]);
    let m = p.mount("");
    let img = p.image();
    for args in [["resize", text(&img), "30M"], ["create", text(&img), "-Lx"]] {
        let (code, words) = said(&mut quire(&args));
        assert!(code == 1 && words.contains("in use by"), "{args:?}: {code}: {words}");
    }
    fs::write(m.path("f"), "stays").unwrap();
    m.unmount();
    assert_eq!(ok(&mut quire(&["cat", &format!("{}:/f", img.display())])), "stays");
}

/// A `put` that waits for the image of a `create` writes to the new image, not to the one that has gone.
#[test]
fn a_put_during_a_create_is_not_lost() {
    let s = Scratch::new();
    let img = image(&s, "img");
    ok(tool("mkfifo").arg(s.path("source")));
    let mut create = quire(&["create", &img, "--size", "32M", "--from", "-"]);
    let mut create = create.stdin(std::process::Stdio::piped()).spawn().unwrap();
    crate::common::wait_until("the new image", || !hidden(s.path("img").parent().unwrap()).is_empty());
    std::thread::sleep(std::time::Duration::from_millis(200));
    let put = quire(&["put", &s.text("hello"), &format!("{img}:/late")]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    // An archive without entries.
    std::io::Write::write_all(&mut create.stdin.take().unwrap(), &[0; 1024]).unwrap();
    assert!(create.wait().unwrap().success());
    let put = put.wait_with_output().unwrap().status.code();
    let (code, words) = said(&mut quire(&["cat", &format!("{img}:/late")]));
    match put {
        Some(0) => assert_eq!((code, words.as_str()), (0, "hello")),
        refused => assert_eq!((refused, code), (Some(1), 1), "{words}"),
    }
}

#[test]
fn get_and_export_write_to_a_device_and_leave_its_node() {
    let s = Scratch::new();
    let (img, target) = (image(&s, "img"), s.text("target"));
    fs::write(&target, vec![0xEE; 1 << 20]).unwrap();
    let device = Loop::on(&target);
    let node = s.path("node");
    device.node(&node);
    ok(&mut quire(&["get", &format!("{img}:/f"), text(&node)]));
    assert!(is_block_device(&node));
    drop(device);
    let bytes = fs::read(&target).unwrap();
    assert_eq!((&bytes[..6], bytes.len()), (&b"hello\xEE"[..], 1 << 20), "the rest of the device stays");
    let null = s.path("null");
    ok(tool("mknod").arg(&null).args(["c", "1", "3"]));
    for args in [["get", &format!("{img}:/f"), text(&null)], ["export", &img, text(&null)]] {
        ok(&mut quire(&args));
        assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device(), "{args:?}");
    }
}

#[test]
fn get_and_export_write_to_a_fifo() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let fifo = s.path("fifo");
    ok(tool("mkfifo").arg(&fifo));
    for (args, expected) in
        [(["get", &format!("{img}:/f"), text(&fifo)], "hello"), (["export", &img, text(&fifo)], "f")]
    {
        let mut writer = quire(&args).spawn().unwrap();
        let read = fs::read(&fifo).unwrap();
        assert!(writer.wait().unwrap().success(), "{args:?}");
        assert!(read.windows(expected.len()).any(|w| w == expected.as_bytes()), "{args:?}");
        assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo(), "{args:?}");
    }
}

/// `(echo first; quire get IMG:/f /dev/stdout) >FILE` writes to the shell's file, and makes no other of its name.
#[test]
fn get_to_standard_output_by_its_path_does_not_replace_a_file() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let out = s.path("out");
    let script = "echo first; \"$0\" get \"$1\" /dev/stdout; \"$0\" get \"$1\" /dev/fd/1";
    let mut shell = tool("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_quire"), &format!("{img}:/f")]);
    let file = fs::File::create(&out).unwrap();
    assert!(shell.stdout(file.try_clone().unwrap()).status().unwrap().success());
    assert_eq!(fs::read_to_string(&out).unwrap(), "first\nhellohello");
    assert_eq!(file.metadata().unwrap().nlink(), 1, "it was replaced");
}

#[test]
fn get_export_create_and_resize_follow_a_symbolic_link() {
    let s = Scratch::new();
    let img = image(&s, "img");
    fs::create_dir(s.path("there")).unwrap();
    fs::write(s.path("there/file"), "old").unwrap();
    let link = s.text("link");
    std::os::unix::fs::symlink("there/file", &link).unwrap();
    let is_link = || fs::symlink_metadata(&link).unwrap().is_symlink();
    ok(&mut quire(&["get", &format!("{img}:/f"), &link]));
    assert!(is_link() && fs::read(s.path("there/file")).unwrap() == b"hello");
    ok(&mut quire(&["export", &img, &link]));
    assert!(is_link() && fs::metadata(&link).unwrap().len() > 1024);
    ok(&mut quire(&["create", &link, "--size", "16M"]));
    assert!(is_link() && fs::metadata(&link).unwrap().len() == 16 << 20);
    ok(&mut quire(&["resize", &link, "24M"]));
    assert!(is_link() && fs::metadata(&link).unwrap().len() == 24 << 20);
    std::os::unix::fs::symlink("nowhere", s.path("dangling")).unwrap();
    let (code, words) = said(&mut quire(&["get", &format!("{img}:/f"), &s.text("dangling")]));
    assert!(code == 1 && words.contains("a symbolic link that leads nowhere"), "{code}: {words}");
}

#[test]
fn resize_keeps_owner_mode_and_attributes() {
    needs_root();
    needs_tools(&["setfattr", "getfattr"]);
    let s = Scratch::new();
    let img = image(&s, "img");
    std::os::unix::fs::chown(&img, Some(1000), Some(1001)).unwrap();
    fs::set_permissions(&img, fs::Permissions::from_mode(0o660)).unwrap();
    if said(tool("setfattr").args(["-n", "user.k", "-v", "v", &img])).0 != 0 {
        skip("no extended attributes here");
    }
    ok(&mut quire(&["resize", &img, "24M"]));
    let m = fs::metadata(&img).unwrap();
    assert_eq!((m.uid(), m.gid(), m.mode() & 0o7777, m.len()), (1000, 1001, 0o660, 24 << 20));
    assert_eq!(ok(tool("getfattr").args(["--only-values", "-n", "user.k", "--absolute-names", &img])), "v");
}

#[test]
fn resize_refuses_what_the_user_may_not_write_and_what_has_two_names() {
    needs_root();
    needs_tools(&["setpriv"]);
    let s = Scratch::new();
    let img = image(&s, "img");
    let dir = s.path("img").parent().unwrap().to_owned();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&img, fs::Permissions::from_mode(0o444)).unwrap();
    let program = s.path("quire");
    copy_program(&program);
    for args in [["resize", &img, "24M"], ["create", &img, "-Lx"]] {
        let mut user = tool("setpriv");
        user.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]).arg(&program).args(args);
        let (code, words) = said(&mut user);
        assert!(code == 1 && words.contains("permission denied"), "{args:?}: {code}: {words}");
    }
    assert_eq!(fs::metadata(&img).unwrap().len(), 16 << 20);
    fs::hard_link(&img, s.path("other")).unwrap();
    let (code, words) = said(&mut quire(&["resize", &img, "24M"]));
    assert!(code == 1 && words.contains("has 2 names (hard links)"), "{code}: {words}");
    assert_eq!(fs::metadata(&img).unwrap().nlink(), 2);
}

#[test]
fn new_files_have_the_mode_of_the_umask_and_replaced_ones_their_own() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let f = format!("{img}:/f");
    fs::set_permissions(&img, fs::Permissions::from_mode(0o664)).unwrap();
    for (umask, plain, copied, of_f) in
        [("0077", 0o600, 0o600, 0o600), ("0002", 0o664, 0o664, 0o640), ("0000", 0o666, 0o664, 0o640)]
    {
        let at = |name: &str| s.text(&format!("{name}-{umask}"));
        ok(&mut with_umask(umask, &["create", &at("created"), "--size", "16M"]));
        ok(&mut with_umask(umask, &["clone", &img, &at("cloned")]));
        ok(&mut with_umask(umask, &["export", &img, &at("exported")]));
        ok(&mut with_umask(umask, &["get", &f, &at("got")]));
        let modes = ["created", "cloned", "exported", "got"].map(|name| mode(Path::new(&at(name))));
        assert_eq!(modes, [plain, copied, plain, of_f], "created, cloned, exported, got with the umask {umask}");
    }
    let old = s.text("created-0000");
    for args in [&["create", &old, "--size", "16M"][..], &["export", &img, &old], &["get", &f, &old]] {
        fs::set_permissions(&old, fs::Permissions::from_mode(0o620)).unwrap();
        ok(&mut with_umask("0022", args));
        assert_eq!(mode(Path::new(&old)), 0o620, "{args:?}");
    }
    fs::set_permissions(&img, fs::Permissions::from_mode(0o444)).unwrap();
    ok(&mut with_umask("0022", &["clone", &img, &s.text("read-only")]));
    assert_eq!(mode(&s.path("read-only")), 0o444);
}

#[test]
fn a_clone_of_an_image_through_a_mount_of_another_is_refused() {
    needs_mounts();
    let (p, other) = (Place::new("16M", &[]), Place::new("16M", &[]));
    let m = p.mount("");
    let copy = p.path("copy");
    let clone = |img: &Path| quire(&["clone", "--mount", m.dir(), text(img), text(&copy)]);
    let (code, words) = said(&mut clone(&other.image()));
    assert!(code == 1 && words.contains("which is a mount of"), "{code}: {words}");
    assert!(!copy.exists());
    // By another name it is the same image.
    let link = p.path("link");
    fs::hard_link(p.image(), &link).unwrap();
    fs::write(m.path("f"), "x").unwrap();
    ok(&mut clone(&link));
    assert_eq!(ok(&mut quire(&["cat", &format!("{}:/f", copy.display())])), "x");
    m.unmount();
}

/// The command has only these capabilities: those of an ordinary user.
#[test]
fn an_export_that_the_host_refuses_names_the_file_of_the_host() {
    needs_root();
    needs_tools(&["setpriv"]);
    let s = Scratch::new();
    let img = image(&s, "img");
    ok(&mut quire(&["touch", "--node", "b,7,0", &format!("{img}:/blk")]));
    let out = s.path("out");
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::chown(&out, Some(1000), Some(1000)).unwrap();
    let dir = out.parent().unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let program = s.path("quire");
    copy_program(&program);
    let mut user = Command::new(&program);
    user.args(["export", &img, "out/"]).current_dir(dir).uid(1000).gid(1000);
    let (code, words) = said(&mut user);
    assert_eq!((code, words.as_str()), (1, "quire: export: out/blk: Operation not permitted (os error 1)\n"));
}

#[test]
fn a_put_takes_set_id_from_the_source_only_if_it_is_asked_to() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let program = s.path("program");
    fs::write(&program, "#!").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o7755)).unwrap();
    let put = |more: &[&str], path: &str| {
        let target = format!("{img}:{path}");
        ok(&mut quire(&[&["put", text(&program), &target], more].concat()));
        ok(&mut quire(&["ls", "-l", &target]))[..10].to_owned()
    };
    assert_eq!(put(&[], "/plain"), "-rwxr-xr-x");
    assert_eq!(put(&["--mode", "u+s"], "/asked"), "-rwsr-xr-x");
    // A file that is replaced keeps its own.
    assert_eq!(put(&[], "/asked"), "-rwsr-xr-x");
}

#[test]
fn an_export_by_another_user_than_the_owner_drops_set_id() {
    needs_root();
    let s = Scratch::new();
    let img = image(&s, "img");
    for (path, owner) in [("/of-root", "0:0"), ("/own", "1000:1000"), ("/of-group", "1000:0")] {
        let target = format!("{img}:{path}");
        ok(&mut quire(&["put", "--mode", "6755", "--owner", owner, &s.text("hello"), &target]));
    }
    ok(&mut quire(&["mkdir", "-m", "2755", &format!("{img}:/dir")]));
    let out = s.path("out");
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::chown(&out, Some(1000), Some(1000)).unwrap();
    let dir = out.parent().unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&img, fs::Permissions::from_mode(0o644)).unwrap();
    let program = s.path("quire");
    copy_program(&program);
    ok(Command::new(&program).args(["export", &img, "out/"]).current_dir(dir).uid(1000).gid(1000));
    let modes = ["of-root", "own", "of-group", "dir"].map(|name| mode(&out.join(name)));
    assert_eq!(modes, [0o755, 0o6755, 0o755, 0o755]);
    ok(&mut quire(&["export", &img, &s.text("by-root/")]));
    let modes = ["of-root", "own", "of-group", "dir"].map(|name| mode(&s.path("by-root").join(name)));
    assert_eq!(modes, [0o6755, 0o6755, 0o6755, 0o2755], "root keeps the owners");
}

#[test]
fn get_and_export_refuse_to_replace_the_image_itself() {
    let s = Scratch::new();
    let img = image(&s, "img");
    std::os::unix::fs::symlink("img", s.path("link")).unwrap();
    let before = fs::read(&img).unwrap();
    for dest in [img.clone(), s.text("link")] {
        for args in [["get", &format!("{img}:/f"), &dest], ["export", &img, &dest]] {
            let (code, words) = said(&mut quire(&args));
            let expected = format!("quire: {}: {dest}: this is the image itself\n", args[0]);
            assert_eq!((code, words), (1, expected));
        }
    }
    assert!(fs::read(&img).unwrap() == before);
}

#[test]
fn a_script_gets_more_files_than_a_process_may_have_open() {
    let s = Scratch::new();
    let img = image(&s, "img");
    let gets: String = (0..100).map(|n| format!("get /f {}/{n}\n", s.text("out"))).collect();
    fs::create_dir(s.path("out")).unwrap();
    fs::write(s.path("gets"), gets).unwrap();
    let mut limited = tool("sh");
    let run = "ulimit -n 40; exec \"$0\" script \"$1\" \"$2\"";
    ok(limited.args(["-c", run, env!("CARGO_BIN_EXE_quire"), &img, &s.text("gets")]));
    assert_eq!(fs::read_dir(s.path("out")).unwrap().count(), 100);
    assert_eq!((fs::read_to_string(s.path("out/99")).unwrap(), mode(&s.path("out/99"))), ("hello".into(), 0o640));
}
