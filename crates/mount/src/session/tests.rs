//! Sessions whose connection is not the kernel's FUSE.

use super::*;
use crate::again::Due;
use crate::server::{Admission, Answer, Sent, ServeOptions};
use crate::wire::Header;
use quire_device::SystemClock;
use quire_fs::{Cred, Devices, New, NewKind, Options, Volume};
use quire_layout::Ino;
use quire_testkit::{MemDevice, mke2fs};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

/// A server of a fresh file system.
fn server() -> Arc<Server> {
    let device = Arc::new(MemDevice::new(mke2fs("16M", &["-t", "ext4"])));
    let volume = Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap();
    Arc::new(Server::new(volume, ServeOptions::default(), Box::new(|_, _| String::new())))
}

/// What workers share over this connection, with so many further queues.
fn shared(connection: OwnedFd, rings: usize) -> Shared {
    Shared {
        transport: Transport { channel: Channel::new(connection), rings: None },
        server: server(),
        workers: Workers::new(FIRST_RING + rings, 1, Arc::default()),
        kernel_pages: KernelPages::default(),
        syncs: SessionQueue::default(),
        has_sync_thread: AtomicBool::new(false),
        dirty_memory: DirtyMemory::open(),
        page_threads: AtomicUsize::new(0),
        again: Again::default(),
        space: SpaceQueue::default(),
        error: Mutex::default(),
    }
}

/// As over rings: while one queue breaks, the reader of another waits for requests that never come.
#[test]
fn an_error_ends_the_wait_for_the_session_though_a_reader_of_another_queue_waits() {
    let (kernel, ours) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let session = Session { shared: Arc::new(shared(ours, 1)) };
    session.spawn().unwrap();
    assert_eq!(session.wait(Some(Duration::from_millis(1))), Ok(false));
    // Shorter than a header: one of the two readers takes it, and the other waits on.
    rustix::io::write(&kernel, &[0; 8]).unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(10);
    let ended = loop {
        match session.wait(Some(Duration::from_millis(10))) {
            Ok(false) if std::time::Instant::now() < until => {}
            ended => break ended,
        }
    };
    assert_eq!(ended, Err(Errno::PROTO));
    // The other reader ends with the connection.
    drop(kernel);
    assert!(session.shared.workers.wait(Some(Duration::from_secs(10))), "a reader waits without a connection");
}

/// What a freeze has held up is no worker's alone: with the first that leads commits, the others would wait for it.
#[test]
fn what_waited_for_a_thaw_is_taken_one_by_one() {
    let (_kernel, ours) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let shared = shared(ours, 0);
    let maintenance = shared.server.volume.maintenance();
    maintenance.freeze().unwrap();
    for request in [[1; 50], [2; 50]] {
        assert!(matches!(shared.server.admit_change(&request), Admission::AfterThaw));
    }
    shared.answer_thawed();
    assert!(shared.again.take_now().is_none(), "it is frozen");
    maintenance.thaw().unwrap();
    shared.answer_thawed();
    for request in [[1; 50], [2; 50]] {
        assert!(matches!(shared.again.take_now(), Some(Due::Thawed(due)) if due == request));
    }
    assert!(shared.again.take_now().is_none());
}

/// Writes to a timer are refused as the kernel refuses a reply that it finds fault with.
#[test]
fn what_a_refused_reply_was_to_give_stays_with_us() {
    let shared = shared(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap(), 0);
    let volume = &shared.server.volume;
    let before = volume.statfs().free_inodes;
    let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred { uid: 0, gid: 0 } };
    let ino = volume.create(Ino::ROOT, b"f", &new).unwrap().ino;
    let header = Header { opcode: opcode::LOOKUP, unique: 2, node: 1, uid: 0, gid: 0, pid: 0, waits: false };
    let sent = shared.reply_with(&header, Ok(Answer::Gives(ino)), &[0; 128]);
    assert_eq!(sent, Err(Errno::INVAL), "the error is refused, too");
    // Nothing refers to the file once its name is gone.
    volume.unlink(Ino::ROOT, b"f").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.statfs().free_inodes, before);
}

/// The kernel sends no RELEASE for an OPEN that failed, as it does where the commit of the truncation fails.
#[test]
fn an_open_that_is_refused_late_leaves_nothing_open() {
    let server = server();
    let ino = Ino(12);
    for writes in [false, true] {
        if writes {
            server.writers.opened(ino);
        }
        server.openers.opened(ino);
        server.take_back(Sent::Opened { ino, writes, spoils: true });
        assert!(!server.writers.has(ino) && !server.openers.has(ino));
    }
}
