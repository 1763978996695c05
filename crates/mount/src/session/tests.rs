//! Sessions whose connection is a pair of sockets.

use super::*;
use crate::server::ServeOptions;
use quire_device::{FileDevice, OpenOptions, SystemClock};
use quire_fs::{Devices, Options, Volume};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// A server of a fresh file system.
fn server() -> Arc<Server> {
    let image = tempfile::NamedTempFile::new().unwrap();
    let made = std::process::Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(image.path()).arg("16M").status();
    assert!(made.unwrap().success());
    let device = Arc::new(FileDevice::open(image.path(), OpenOptions::default()).unwrap());
    let volume = Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap();
    Arc::new(Server::new(volume, ServeOptions::default(), Box::new(|_, _| String::new())))
}

/// As over rings: while one queue breaks, the reader of another waits for requests that never come.
#[test]
fn an_error_ends_the_wait_for_the_session_though_a_reader_of_another_queue_waits() {
    let (kernel, ours) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let session = Session {
        shared: Arc::new(Shared {
            transport: Transport { channel: Channel::new(ours), rings: None },
            server: server(),
            workers: Workers::new(1, 1),
            kernel_pages: KernelPages::default(),
            space: SpaceQueue::default(),
            error: Mutex::default(),
        }),
    };
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
