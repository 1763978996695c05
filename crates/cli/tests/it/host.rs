//! What surrounds the daemon: its caller's directory and limits, a log that nobody reads, what an image asks of its
//! host.

use crate::common::{Place, needs_mounts, needs_root, needs_tools, ok, quire, said, skip, text, tool, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// The process that has the image of a place open.
fn daemon_of(place: &Place) -> u32 {
    let image = place.image().canonicalize().unwrap();
    let has_it = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|f| fs::read_link(f.path()).ok()).any(|f| f == image)
    };
    let mut processes = fs::read_dir("/proc").unwrap().filter_map(|p| p.ok()?.file_name().to_str()?.parse().ok());
    processes.find(has_it).expect("a daemon")
}

/// Damages the inode of a file, so that its checksum is wrong.
fn damage(image: &Path, name: &str) {
    // "Inode 12 is part of block group 0\n\tlocated at block 70, offset 0x0b00"
    let words = ok(tool("debugfs").args(["-R", &format!("imap {name}")]).arg(image));
    let at = words.split("located at block ").nth(1).expect("a place");
    let (block, offset) = at.split_whitespace().next().zip(at.split("0x").nth(1)).expect("two numbers");
    let size = ok(tool("dumpe2fs").arg("-h").arg(image));
    let size = size.lines().find_map(|l| l.strip_prefix("Block size:")).expect("a size").trim().to_owned();
    let number = |s: &str, radix| {
        let digits = s.find(|c: char| !c.is_digit(radix)).map_or(s, |end| &s[..end]);
        u64::from_str_radix(digits, radix).expect("a number")
    };
    let byte = number(block, 10) * number(&size, 10) + number(offset, 16);
    File::options().write(true).open(image).unwrap().write_all_at(&[0xff; 4], byte + 8).unwrap();
}

/// An image with a file whose inode is damaged.
fn damaged() -> Place {
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    fs::write(m.path("bad"), "x").unwrap();
    fs::write(m.path("good"), "x").unwrap();
    m.unmount();
    damage(&place.image(), "/bad");
    place
}

/// The caller's directory may be unmounted and removed.
#[test]
fn the_daemon_does_not_stay_in_its_callers_directory() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    ok(quire(&["mount", "--log", "log", "-o", "profile=nvj,nvram=nv,nvram_simulated,nvram_size=4M", "image", "mnt"])
        .current_dir(place.path("")));
    let pid = daemon_of(&place);
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    fs::write(place.mnt().join("f"), "x").unwrap();
    ok(quire(&["umount", "mnt"]).current_dir(place.path("")));
    place.check();
}

/// The session of a process: field 6 of `/proc/PID/stat` (proc_pid_stat(5)).
fn session_of(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(3)?.parse().ok()).expect("a session")
}

/// A signal to the caller's process group, as Ctrl-C sends it, reaches neither of them.
#[test]
fn the_daemon_and_its_broker_do_not_stay_in_their_callers_session() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    let daemon = u32::try_from(m.pid).unwrap();
    let children = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).unwrap();
    let broker = children.split_whitespace().next().map(|pid| pid.parse().unwrap());
    let sessions = [Some(daemon), broker].map(|pid| pid.map(session_of));
    m.unmount();
    assert_eq!(sessions, [Some(daemon), broker], "the sessions of the daemon and its broker");
}

/// `ulimit -f` of the shell that mounts: a write beyond it fails, and the daemon goes on.
#[test]
fn a_write_beyond_the_limit_of_file_sizes_is_an_error_and_no_end() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("");
    fs::write(m.path("before"), [1; 5000]).unwrap();
    m.unmount();
    // 24 MiB, in blocks of 512 bytes or (bash) 1024.
    let script = r#"ulimit -f 24576 && cd "$1" && exec "$0" mount --log log image mnt"#;
    ok(tool("sh").args(["-c", script, env!("CARGO_BIN_EXE_quire")]).arg(place.path("")));
    let pid = daemon_of(&place);
    let mut failed = 0;
    for n in 0..60 {
        let written = File::create(place.mnt().join(format!("f{n}")))
            .and_then(|mut f| f.write_all(&vec![2; 1 << 20]).and_then(|()| f.sync_all()));
        failed += u32::from(written.is_err());
    }
    assert!(failed > 0, "the limit was never met");
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the daemon is gone");
    assert_eq!(fs::read(place.mnt().join("before")).unwrap(), [1; 5000]);
    // Whether it can be left clean depends on what lies behind the limit.
    said(&mut quire(&["umount", text(&place.mnt())]));
    let m = place.mount("");
    assert_eq!(fs::read(m.path("before")).unwrap(), [1; 5000]);
    m.unmount();
    place.check();
}

/// Too few descriptors: the mount is refused and leaves nothing behind.
#[test]
fn a_mount_with_few_descriptors_works_or_is_refused_whole() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let script = r#"ulimit -n $2; cd "$1" && exec timeout 30 "$0" mount --log log image mnt"#;
    for limit in 4..=12 {
        let (code, words) = said(
            tool("sh").args(["-c", script, env!("CARGO_BIN_EXE_quire")]).arg(place.path("")).arg(limit.to_string()),
        );
        if code == 0 {
            fs::write(place.mnt().join("f"), limit.to_string()).unwrap();
            ok(&mut quire(&["umount", text(&place.mnt())]));
        } else {
            assert!(code < 124 && words.contains("Too many open files"), "{limit}: {code}: {words}");
            assert_eq!(fs::read_dir(place.mnt()).expect("no dead mount").count(), 0, "{limit}");
        }
        said(&mut quire(&["recover", text(&place.image())]));
    }
    place.check();
}

/// Too little address space would end the daemon at an allocation: the mount is refused.
#[test]
fn a_mount_with_too_little_address_space_is_refused() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let script = r#"ulimit -v 100000; cd "$1" && exec "$0" mount image mnt"#;
    let (code, words) = said(tool("sh").args(["-c", script, env!("CARGO_BIN_EXE_quire")]).arg(place.path("")));
    assert!(code == 2 && words.contains("ulimit -v"), "{code}: {words}");
}

/// A log daemon that does not read holds up nobody, also where each request is logged.
#[test]
fn a_log_that_nobody_reads_does_not_stop_the_mount() {
    needs_mounts();
    needs_root();
    needs_tools(&["debugfs"]);
    if said(tool("unshare").args(["-m", "mount", "--make-rprivate", "/"])).0 != 0 {
        skip("no unshare");
    }
    let place = damaged();
    let log = UnixDatagram::bind(place.path("socket")).unwrap();
    let script = r#"
        mount --make-rprivate / && mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && mknod /dev/fuse c 10 229 &&
        : > /dev/log && mount --bind "$1/socket" /dev/log && "$0" mount "$1/image" "$1/mnt" || exit 9
        i=0; while [ $i -lt 2000 ]; do [ -e "$1/mnt/bad" ] && exit 8; i=$((i+1)); done
        cat "$1/mnt/good" && "$0" umount "$1/mnt""#;
    let mut run = tool("unshare");
    run.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_quire")]).arg(place.path(""));
    run.env("QUIRE_LOG", "warn,quire_mount=trace");
    let run = std::thread::spawn(move || said(&mut run));
    let start = Instant::now();
    while !run.is_finished() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let hangs = !run.is_finished();
    if hangs {
        // Who waits for an answer of the daemon cannot be killed before it.
        kill(daemon_of(&place));
    }
    let (code, words) = run.join().unwrap();
    assert!(!hangs && code == 32 && words.contains("run e2fsck"), "hangs: {hangs}; {code}: {words}");
    log.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(log.recv(&mut [0; 1000]).is_ok(), "nothing came");
}

/// A user who looks at a damaged file again and again does not fill the log.
#[test]
fn errors_that_a_user_repeats_do_not_fill_the_log() {
    const TIMES: usize = 2000;
    needs_mounts();
    needs_tools(&["debugfs"]);
    let place = damaged();
    let m = place.mount("");
    assert!((0..TIMES).all(|_| fs::metadata(m.path("bad")).is_err()));
    said(&mut quire(&["umount", m.dir()]));
    wait_until("the daemon's end", || !m.is_alive());
    let log = fs::read_to_string(place.path("log")).unwrap();
    let errors = log.lines().filter(|line| line.contains("ERROR")).count();
    assert!((1..TIMES / 4).contains(&errors), "{errors} messages for {TIMES} errors");
}

/// An image that asks for a panic gets a read-only mount; a panic is had by asking for it on the command line.
#[test]
fn an_image_cannot_end_the_daemon_but_its_user_can_ask_for_that() {
    needs_mounts();
    needs_tools(&["debugfs"]);
    let place = damaged();
    ok(tool("tune2fs").args(["-e", "panic"]).arg(place.image()));
    let m = place.mount("");
    assert!(fs::metadata(m.path("bad")).is_err());
    assert!(m.is_alive() && fs::read(m.path("good")).is_ok());
    assert!(fs::write(m.path("new"), "x").is_err(), "read-only after the error");
    said(&mut quire(&["umount", m.dir()]));
    wait_until("the daemon's end", || !m.is_alive());
    let m = place.mount("errors=panic");
    assert!(fs::metadata(m.path("bad")).is_err());
    wait_until("the daemon's end", || !m.is_alive());
}

#[test]
fn info_shows_control_characters_of_a_label_as_escapes() {
    needs_tools(&["mke2fs"]);
    let place = Place::new("16M", &["-L", "a\u{1b}[31m\nb"]);
    let shown = ok(&mut quire(&["info", text(&place.image())]));
    assert!(!shown.contains('\u{1b}') && shown.contains(r"a\u{1b}[31m\nb"), "{shown}");
}

/// A process that was killed lets go of the image a moment later.
#[test]
fn an_image_is_free_just_after_its_daemon_was_killed() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    for n in 0..5 {
        let m = place.mount("");
        fs::write(m.path(&format!("f{n}")), vec![1; 4 << 20]).unwrap();
        kill(u32::try_from(m.pid).unwrap());
        let (code, words) = said(&mut quire(&["recover", text(&place.image())]));
        assert!(code <= 1, "{code}: {words}");
        drop(m);
    }
    place.check();
}

/// The same for any other user who lets go of it within a second.
#[test]
fn an_image_that_its_user_lets_go_of_soon_is_waited_for() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let used = || {
        let file = File::open(place.image()).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(file);
        })
    };
    let user = used();
    ok(&mut quire(&["recover", text(&place.image())]));
    user.join().unwrap();
    let user = used();
    place.mount("").unmount();
    user.join().unwrap();
    place.check();
}

/// An image in use is still refused, soon.
#[test]
fn an_image_in_use_is_refused_after_a_second() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    let start = Instant::now();
    let (code, words) = said(&mut quire(&["recover", text(&place.image())]));
    assert!(code == 8 && words.contains("in use by quire (process"), "{code}: {words}");
    assert!(start.elapsed() < Duration::from_secs(5));
    m.unmount();
}

/// A loop device shows a file that Quire has mounted already: both would write.
#[test]
fn a_loop_device_of_a_mounted_image_is_refused_and_the_other_way_round() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &[]);
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    let m = place.mount("");
    let (code, device) = said(tool("losetup").args(["-f", "--show", text(&place.image())]));
    if code != 0 {
        skip("no loop device");
    }
    let device = Path::new(device.trim());
    let mount = |image: &Path| said(&mut quire(&["mount", text(image), text(&other)]));
    let (code, words) = mount(device);
    assert!(code == 32 && words.contains("in use by quire (process"), "{code}: {words}");
    let (code, words) = said(&mut quire(&["recover", text(device)]));
    assert!(code == 8 && words.contains("in use"), "{code}: {words}");
    m.unmount();
    let m = place.mount_image(device, "");
    fs::write(m.path("f"), "x").unwrap();
    let (code, words) = mount(&place.image());
    assert!(code == 32 && words.contains("in use"), "{code}: {words}");
    m.unmount();
    ok(tool("losetup").arg("-d").arg(device));
    place.check();
}

/// A mount that is in use for a moment, as by df(1), is unmounted.
#[test]
fn umount_waits_for_a_user_that_leaves_soon() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    let file = File::open(m.dir()).unwrap();
    let user = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(file);
    });
    ok(&mut quire(&["umount", m.dir()]));
    user.join().unwrap();
    place.check();
}
