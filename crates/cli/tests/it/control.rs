//! The control socket: bounded clients, slow ones and dead ones, and a mount that can be asked whatever its file system
//! does (P2, H4).

use crate::common::{Place, needs_mounts, needs_root, ok, quire, said, text, wait_until};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
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
