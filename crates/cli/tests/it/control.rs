//! The control socket: bounded clients, slow ones and dead ones, and a mount that can be asked whatever its file system
//! does (P2, H4).

use crate::common::{
    Place, copy_program, needs_mounts, needs_root, needs_tools, ok, quire, said, skip, text, tool, wait_until,
};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The socket of what is mounted at `dir`.
fn socket(dir: &Path) -> PathBuf {
    let device = fs::metadata(dir).unwrap().dev();
    PathBuf::from(format!("/run/quire/{}:{}.sock", rustix::fs::major(device), rustix::fs::minor(device)))
}

#[test]
fn slow_and_silent_clients_hold_up_nobody() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    let socket = socket(&place.mnt());
    // More than are served at once: some say nothing, some half a request, some do not read the answer.
    let clients: Vec<_> = (0..60)
        .map(|n| {
            let mut client = UnixStream::connect(&socket).unwrap();
            let words: &[u8] = [&b""[..], b"\"sta", b"\"stats\"\n", b"nonsense\n"][n % 4];
            client.write_all(words).ok();
            client
        })
        .collect();
    let start = Instant::now();
    fs::write(m.path("f"), "the file system goes on").unwrap();
    assert!(start.elapsed() < Duration::from_secs(3));
    ok(&mut quire(&["stats", m.dir()]));
    ok(&mut quire(&["freeze", m.dir()]));
    ok(&mut quire(&["thaw", m.dir()]));
    assert!(start.elapsed() < Duration::from_secs(30));
    drop(clients);
    m.unmount();
    assert!(!socket.exists());
    place.check();
}

/// Who sees the mount can ask it: the socket is there before the first request is answered.
#[test]
fn a_mount_that_answers_has_its_control_socket() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &[]);
    for _ in 0..20 {
        let outside = fs::metadata(place.mnt()).unwrap().dev();
        let mut command = quire(&["mount", "-f", text(&place.image()), text(&place.mnt())]);
        let mut daemon = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        while fs::metadata(place.mnt()).unwrap().dev() == outside {
            std::thread::yield_now();
        }
        let reached = UnixStream::connect(socket(&place.mnt()));
        ok(&mut quire(&["umount", text(&place.mnt())]));
        daemon.wait().unwrap();
        reached.expect("the socket of a mount that answers");
    }
    place.check();
}

#[test]
fn a_request_that_is_too_long_or_no_request_is_refused() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    for words in [&vec![b'x'; 100_000][..], b"{}\n", b"\n", &[0xff; 10]] {
        let mut client = UnixStream::connect(socket(&place.mnt())).unwrap();
        client.write_all(words).ok();
        client.shutdown(std::net::Shutdown::Write).ok();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).ok();
        assert!(!String::from_utf8_lossy(&answer).contains("done"), "{answer:?}");
    }
    assert!(m.is_alive());
    m.unmount();
}

/// What waits for a thaw goes on when it comes through the socket, though no other request follows.
#[test]
fn a_thaw_wakes_what_waits_for_it() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    ok(&mut quire(&["freeze", m.dir()]));
    let path = m.path("d");
    let maker = std::thread::spawn(move || fs::create_dir(path));
    std::thread::sleep(Duration::from_millis(200));
    assert!(!maker.is_finished());
    ok(&mut quire(&["thaw", m.dir()]));
    wait_until("what waited", || maker.is_finished());
    maker.join().unwrap().unwrap();
    m.unmount();
    place.check();
}

#[test]
fn a_directory_of_another_file_system_is_no_quire_mount() {
    let place = Place::new("16M", &[]);
    let (code, words) = said(&mut quire(&["stats", text(&place.mnt())]));
    assert!(code == 32 && words.contains("not a Quire mount"), "{code}: {words}");
    let (code, words) = said(&mut quire(&["stats", "/does/not/exist"]));
    assert!(code == 32 && words.contains("No such file"), "{code}: {words}");
}

/// Root may not look into a user's mount, but it may administer it. What a program has written, and the kernel still
/// holds, is in a clone of a mount.
#[test]
fn root_administers_a_users_mount_that_it_may_not_enter() {
    needs_mounts();
    needs_root();
    needs_tools(&["setpriv", "fusermount3"]);
    const USER: u32 = 65534;
    let place = Place::new("40M", &["-E", "root_owner=65534:65534"]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for path in [place.image(), place.mnt()] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let program = place.path("quire");
    copy_program(&program);
    let by_user = || {
        let mut c = tool("setpriv");
        c.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        c
    };
    let (image, dir, copy) = (place.image(), place.mnt(), place.path("copy"));
    ok(by_user().arg(&program).args(["mount", text(&image), text(&dir)]));
    let entered = fs::read_dir(&dir).is_ok();
    // A program that keeps its file open.
    let script = "exec 3>$0; echo written >&3; echo done; read line";
    let mut writer = by_user();
    writer.args(["sh", "-c", script]).arg(dir.join("f")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    writer.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    let (image, dir) = (text(&image), text(&dir));
    let commands: [&[&str]; 5] = [
        &["clone", "--mount", dir, image, text(&copy)],
        &["sync", dir],
        &["freeze", dir],
        &["thaw", dir],
        &["resize", dir, "80M"],
    ];
    let answers = commands.map(|command| (command[0], said(&mut quire(command))));
    drop(writer.stdin.take());
    writer.wait().unwrap();
    ok(by_user().arg(&program).args(["umount", dir]));
    if entered {
        skip("this kernel lets root into every FUSE mount");
    }
    let mut expected = commands.map(|command| (command[0], (0, String::new())));
    if !crate::permissions::may_use_resources() {
        // The daemon has been asked.
        expected[4].1 = (32, format!("quire: resize: {dir}: resize: Operation not permitted\n"));
    }
    assert_eq!(answers, expected);
    assert!(ok(tool("debugfs").args(["-R", "cat /f"]).arg(&copy)).contains("written"), "in the clone");
    place.check();
}

/// Users reach the socket of root's mount by a directory that root's umask may not close to them.
#[test]
fn the_directory_of_roots_sockets_is_open_whatever_the_callers_umask() {
    needs_mounts();
    needs_root();
    needs_tools(&["unshare"]);
    let place = Place::new("16M", &[]);
    let alone = |script: &str| {
        let mut c = tool("unshare");
        c.args(["-m", "sh", "-euc", script, env!("CARGO_BIN_EXE_quire"), text(&place.image()), text(&place.mnt())]);
        c
    };
    if said(&mut alone("mount -t tmpfs tmpfs /run")).0 != 0 {
        skip("no mount namespaces");
    }
    let mode = ok(&mut alone(
        "mount -t tmpfs tmpfs /run; umask 077; \"$0\" mount $1 $2; stat -c %a /run/quire; \"$0\" umount $2",
    ));
    assert_eq!(mode, "755\n");
    place.check();
}
