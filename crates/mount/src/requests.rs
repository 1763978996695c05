//! Answers requests: the one place where FUSE meets the engine.
//!
//! Relies on `default_permissions`: the kernel checks modes and ACLs before a request is sent. With `fakeroot` it does
//! not, because each caller may do all that root may inside the image (P3).
//!
//! Guarantees: a request is
//! answered once; a node that the kernel learns costs one reference, which FORGET or a failed reply gives back.

use crate::caller::Capability;
use crate::fail::Fail;
use crate::kernel_pages::Pages;
use crate::ops::{attr, data, dir, ioctl, names, xattr};
use crate::server::{Admission, Answer, Server, ino_of};
use crate::wire::abi::opcode;
use crate::wire::{Body, Header, Out};
use quire_layout::Ino;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Admits a request to the volume: at once if it changes nothing, else as [`Server::admit_change`] does.
pub(crate) fn admit<'s>(s: &'s Server, h: &Header, request: &[u8]) -> Admission<'s> {
    if s.is_remounted_read_only() && changes_although_read_only(h, request) {
        return Admission::ReadOnly;
    }
    if changes(h, request) { s.admit_change(request) } else { Admission::Now(None) }
}

/// True for FS_IOC_SHUTDOWN.
fn is_shutdown(h: &Header, request: &[u8]) -> bool {
    h.opcode == opcode::IOCTL && ioctl_is(request, ioctl::shuts_down)
}

/// The files of which the kernel must hand over its dirty pages before this request is answered: it looks for data,
/// sets flags that refuse data, syncs all, or shuts down; or [`Pages::Nothing`] where a worker would wait long. `None`:
/// a worker may answer, as it does who may not shut down.
pub(crate) fn needs_writeback(s: &Server, h: &Header, request: &[u8]) -> Option<Pages> {
    if is_shutdown(h, request) {
        return s.demand(&s.inside(h), Capability::SysAdmin).is_ok().then_some(Pages::AllIfClean);
    }
    if h.opcode == opcode::SYNCFS {
        return Some(Pages::Writers);
    }
    let sets_flags = h.opcode == opcode::IOCTL && ioctl_is(request, ioctl::sets_flags);
    // Without a writer there are no dirty pages: a mapping keeps its file open. But flags end what was refused, too.
    let of = |ino: &Ino| sets_flags || h.opcode == opcode::LSEEK && s.writers.has(*ino);
    let written = ino_of(h.node).ok().filter(of).map(Pages::File);
    // These commit: BMAP before it answers, flags S and D when they are set.
    written.or((sets_flags || h.opcode == opcode::BMAP).then_some(Pages::Nothing))
}

/// Answers a request: fills `out`, or returns the error to send.
pub(crate) fn answer(s: &Server, h: &Header, mut body: Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let h = &s.inside(h);
    out.show_owner(s.options.owner);
    if s.volume.maintenance().is_shut_down() && !WHEN_SHUT_DOWN.contains(&h.opcode) {
        return Err(Fail::of(Errno::IO));
    }
    let b = &mut body;
    match h.opcode {
        opcode::LOOKUP => names::lookup(s, h, b, out),
        opcode::FORGET => attr::forget_one(s, h, b),
        opcode::BATCH_FORGET => attr::forget_many(s, b),
        opcode::GETATTR => attr::getattr(s, h, b, out),
        opcode::STATX => attr::statx(s, h, out),
        opcode::SETATTR => attr::setattr(s, h, b, out),
        opcode::READLINK => names::readlink(s, h, out),
        opcode::SYMLINK => names::symlink(s, h, b, out),
        opcode::MKNOD => names::mknod(s, h, b, out),
        opcode::MKDIR => names::mkdir(s, h, b, out),
        opcode::CREATE => names::create(s, h, b, out),
        opcode::TMPFILE => names::tmpfile(s, h, b, out),
        opcode::UNLINK => names::unlink(s, h, b),
        opcode::RMDIR => names::rmdir(s, h, b),
        opcode::RENAME => names::rename(s, h, b, false),
        opcode::RENAME2 => names::rename(s, h, b, true),
        opcode::LINK => names::link(s, h, b, out),
        opcode::OPEN => names::open(s, h, b, out),
        opcode::READ => data::read(s, h, b, out),
        opcode::WRITE => data::write(s, h, b, out),
        opcode::FALLOCATE => data::fallocate(s, h, b),
        opcode::LSEEK => data::lseek(s, h, b, out),
        opcode::BMAP => data::bmap(s, h, b, out),
        opcode::COPY_FILE_RANGE => data::copy_file_range(s, h, b, out),
        opcode::FSYNC | opcode::FSYNCDIR => data::fsync(h, b),
        opcode::SYNCFS => Ok(data::syncfs()),
        opcode::STATFS => attr::statfs(s, out),
        opcode::READDIR => dir::readdir(s, h, b, out),
        opcode::READDIRPLUS => dir::readdirplus(s, h, b, out),
        opcode::GETXATTR => xattr::getxattr(s, h, b, out),
        opcode::SETXATTR => xattr::setxattr(s, h, b),
        opcode::LISTXATTR => xattr::listxattr(s, h, b, out),
        opcode::REMOVEXATTR => xattr::removexattr(s, h, b),
        opcode::IOCTL => ioctl::ioctl(s, h, b, out),
        opcode::RELEASE => names::release(s, h, b),
        opcode::RELEASEDIR => Ok(Answer::Reply),
        opcode::DESTROY => destroy(s),
        opcode::INTERRUPT => Ok(Answer::None),
        // Asked for by the transport, which needs a request to reply to.
        opcode::NOTIFY_REPLY => Ok(Answer::Reply),
        // The kernel remembers this and does not ask again (OPENDIR, FLUSH, ...), or does it itself (locks).
        _ => Err(Fail::of(Errno::NOSYS)),
    }
}

/// The last request of a block device's mount: umount(2) waits for the answer, and then finds a clean image.
fn destroy(s: &Server) -> Result<Answer, Fail> {
    s.close()?;
    Ok(Answer::Reply)
}

/// True for requests that may change the volume. FSYNC and SYNCFS are not among them: on a frozen volume they have
/// nothing to do.
fn changes(h: &Header, request: &[u8]) -> bool {
    match h.opcode {
        opcode::OPEN => truncates(request),
        opcode::IOCTL => ioctl_is(request, ioctl::ioctl_changes),
        op => opcode::CHANGES.contains(&op),
    }
}

/// True for an IOCTL that changes something and that the kernel passes on although the mount is read-only.
fn changes_although_read_only(h: &Header, request: &[u8]) -> bool {
    let changes = |command| ioctl::ioctl_changes(command) && !ioctl::sets_flags(command);
    h.opcode == opcode::IOCTL && ioctl_is(request, changes)
}

/// What is answered after a shutdown, as the kernel's ext4 does: names, attributes, and what gives back. And IOCTL, to
/// shut down again.
const WHEN_SHUT_DOWN: [u32; 14] = [
    opcode::LOOKUP,
    opcode::FORGET,
    opcode::BATCH_FORGET,
    opcode::GETATTR,
    opcode::STATX,
    opcode::READLINK,
    opcode::READDIR,
    opcode::READDIRPLUS,
    opcode::STATFS,
    opcode::IOCTL,
    opcode::RELEASE,
    opcode::RELEASEDIR,
    opcode::DESTROY,
    opcode::INTERRUPT,
];

/// True for the flags of an OPEN that truncates.
fn truncates(request: &[u8]) -> bool {
    let mut body = Body::new(request);
    let flags = body.header().and_then(|_| body.u32());
    flags.is_ok_and(|f| OFlags::from_bits_retain(f).contains(OFlags::TRUNC))
}

/// True for an IOCTL whose command has a property.
fn ioctl_is(request: &[u8], property: impl FnOnce(u32) -> bool) -> bool {
    let mut body = Body::new(request);
    let command = body.header().and_then(|_| body.skip(12)).and_then(|()| body.u32());
    command.is_ok_and(property)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Durable, Need, Sent, ServeOptions};
    use crate::wire::request::HEADER;
    use quire_device::sync::Arc;
    use quire_device::{FileDevice, OpenOptions, SystemClock};
    use quire_fs::{Cred, Devices, New, NewKind, Options, Volume};
    use quire_layout::Ino;

    /// A request for a name in the root directory.
    fn request(op: u32, name: &[u8]) -> Vec<u8> {
        let mut r = vec![0; HEADER];
        let len = u32::try_from(HEADER + name.len() + 1).unwrap();
        r[..4].copy_from_slice(&len.to_ne_bytes());
        r[4..8].copy_from_slice(&op.to_ne_bytes());
        r[16..24].copy_from_slice(&1u64.to_ne_bytes());
        r.extend_from_slice(name);
        r.push(0);
        r
    }

    fn answered(server: &Server, request: &[u8]) {
        let mut body = Body::new(request);
        let (header, mut buf) = (Header { waits: true, ..body.header().unwrap() }, [0; 256]);
        match answer(server, &header, body, &mut Out::new(&mut buf)) {
            Ok(Answer::Reply) => {}
            Ok(Answer::WhenDurable(Durable { need: Need::Files { ino, data_only, .. }, .. })) => {
                server.volume.fsync(ino, data_only).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }

    /// flock(1) makes its files so. A file counts as written only while somebody has it open for that.
    #[test]
    fn a_file_that_is_made_for_reading_has_no_writer() {
        let device = Arc::new(quire_testkit::MemDevice::new(quire_testkit::mke2fs("16M", &["-t", "ext4"])));
        let volume = Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap();
        let server = Server::new(volume, ServeOptions::default(), Box::new(|_, _| String::new()));
        for (name, flags) in [(b"read", OFlags::RDONLY), (b"both", OFlags::RDWR)] {
            // `fuse_create_in`: flags, mode, umask, flags of the open; then the name.
            let words = [flags.bits(), 0o100_644, 0, 0].map(u32::to_ne_bytes).concat();
            let create = request(opcode::CREATE, &[&words[..], name].concat());
            let mut body = Body::new(&create);
            let (header, mut buf) = (body.header().unwrap(), [0; 512]);
            let made = answer(&server, &header, body, &mut Out::new(&mut buf));
            let Ok(Answer::Opens { ino, writes }) = made else { panic!("{made:?}") };
            assert_eq!((writes, server.writers.has(ino)), (flags == OFlags::RDWR, flags == OFlags::RDWR));
            // `fuse_release_in`: handle, flags.
            let mut release = request(opcode::RELEASE, &[&[0; 8], &words[..4], &[0; 12]].concat());
            release[16..24].copy_from_slice(&crate::wire::reply::node_of(ino).to_ne_bytes());
            answered(&server, &release);
            assert!(!server.writers.has(ino));
        }
    }

    /// N10, without a worker: the reply waits for the commit that `chattr +D` asks for.
    #[test]
    fn a_change_in_a_synchronous_directory_is_answered_after_its_commit() {
        let device = Arc::new(quire_testkit::MemDevice::new(quire_testkit::mke2fs("16M", &["-t", "ext4"])));
        let volume = Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap();
        let server = Server::new(volume, ServeOptions::default(), Box::new(|_, _| String::new()));
        let volume = &server.volume;
        let new = New { kind: NewKind::File, mode: 0o700, umask: 0, cred: Cred { uid: 0, gid: 0 } };
        for flag in [0, quire_layout::inode::flags::DIRSYNC] {
            let flags = volume.inode_flags().get(Ino::ROOT).unwrap();
            volume.inode_flags().set(Ino::ROOT, flags | flag).unwrap();
            let file = volume.create(Ino::ROOT, b"f", &new).unwrap();
            volume.forget(file.ino, 1);
            let request = request(opcode::UNLINK, b"f");
            let mut body = Body::new(&request);
            let (header, mut buf) = (body.header().unwrap(), [0; 256]);
            let answered = answer(&server, &header, body, &mut Out::new(&mut buf));
            let waits =
                matches!(answered, Ok(Answer::WhenDurable(Durable { need: Need::Commit(_), sent: Sent::Reply })));
            assert!(waits == (flag != 0) && answered.is_ok(), "{answered:?}");
        }
    }

    /// Kernels before 5.13 leave it to the daemon who may change flags.
    #[test]
    fn flags_are_changed_by_owners_and_immutability_by_the_capable() {
        use quire_layout::inode::flags::{IMMUTABLE, NODUMP};
        const OWNER: u32 = 1000;
        let device = Arc::new(quire_testkit::MemDevice::new(quire_testkit::mke2fs("16M", &["-t", "ext4"])));
        let volume = Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap();
        let cred = Cred { uid: OWNER, gid: OWNER };
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred };
        let ino = volume.create(Ino::ROOT, b"f", &new).unwrap().ino;
        let has = volume.inode_flags().get(ino).unwrap();
        let server = Server::new(volume, ServeOptions::default(), Box::new(|_, _| String::new()));
        for (uid, wanted, may) in
            [(7, NODUMP, false), (OWNER, NODUMP, true), (OWNER, IMMUTABLE, false), (0, IMMUTABLE, true)]
        {
            // `fuse_ioctl_in`: handle, flags, FS_IOC_SETFLAGS, address, sizes; then the flags.
            let words = [0, 0, 0, 0x4008_6602, 0, 0, 4, 0, has | wanted].map(u32::to_ne_bytes).concat();
            let mut request = request(opcode::IOCTL, &words);
            request[16..24].copy_from_slice(&u64::from(ino.0).to_ne_bytes());
            request[24..28].copy_from_slice(&uid.to_ne_bytes());
            let mut body = Body::new(&request);
            let (header, mut buf) = (Header { waits: true, ..body.header().unwrap() }, [0; 256]);
            let answered = answer(&server, &header, body, &mut Out::new(&mut buf));
            assert_eq!(answered.is_ok(), may, "{uid} sets {wanted:#x}: {answered:?}");
        }
    }

    #[test]
    fn with_dirsync_a_removal_is_durable_when_it_is_answered() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let made =
            std::process::Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(image.path()).arg("16M").status();
        assert!(made.unwrap().success());
        let open = || {
            let device = Arc::new(FileDevice::open(image.path(), OpenOptions::default()).unwrap());
            Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap()
        };
        for dir_sync in [false, true] {
            let volume = open();
            let cred = Cred { uid: 0, gid: 0 };
            for (name, kind) in [(b"f", NewKind::File), (b"d", NewKind::Dir)] {
                match volume.create(Ino::ROOT, name, &New { kind, mode: 0o700, umask: 0, cred }) {
                    Ok(_) | Err(quire_fs::Error::Exists) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            volume.sync().unwrap();
            let server = Server::new(volume, ServeOptions::default(), Box::new(|_, _| String::new()));
            server.changing.set_sync(dir_sync, false);
            answered(&server, &request(opcode::UNLINK, b"f"));
            answered(&server, &request(opcode::RMDIR, b"d"));
            // No unmount: what was not committed is lost.
            drop(server);
            let after = open();
            for name in [b"f", b"d"] {
                assert_eq!(after.lookup(Ino::ROOT, name).is_ok(), !dir_sync, "dirsync {dir_sync}");
            }
            after.close().unwrap();
        }
    }
}
