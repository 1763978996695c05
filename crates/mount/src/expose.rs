//! A block device as a file, served over FUSE: `disk` in a directory, and `counters` beside it. With a loop device on
//! top (`losetup --direct-io=on`) any file system, the kernel's too, works on a device that exists only as ours: a
//! modelled one. Of a device that can do without its time there is a file `timed`, too, which takes `0` and `1`. Root
//! only.
//!
//! ```text
//! kernel's ext4 ── loop ── FUSE: disk ──> worker: read request, BlockDevice::run, reply
//! ```

use crate::fail::Fail;
use crate::mounting::AttachError;
use crate::transport::Channel;
use crate::wire::abi::{self, MAX_WRITE, init, opcode};
use crate::wire::reply::{Dirent, Plus};
use crate::wire::{Body, Header, Out};
use quire_device::sync::{Arc, thread};
use quire_device::{BlockDevice, Buf, Io, Region};
use quire_fs::Attr;
use quire_layout::Ino;
use quire_layout::inode::{Timestamp, mode};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Requests that are served at once.
const WORKERS: usize = 16;
/// Bytes of a request besides the data of a WRITE.
const HEAD: usize = 4096;
/// How long the kernel may believe what it was told.
const VALID: Duration = Duration::from_secs(3600);
/// OPEN's reply: every read and write reaches us, and writes do not wait for each other.
const DIRECT_IO: u32 = 1 << 0;
const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// FALLOCATE's modes: keep the size, and punch a hole or zero.
const PUNCH: u32 = 1 << 1;
const ZERO: u32 = 1 << 4;

const DISK: Ino = Ino(11);
const COUNTERS: Ino = Ino(12);
const TIMED: Ino = Ino(13);
const NAMES: [(Ino, &str); 3] = [(DISK, "disk"), (COUNTERS, "counters"), (TIMED, "timed")];
const COUNTERS_MAX: u64 = 4096;

/// What the file `counters` says.
pub type Counters = Arc<dyn Fn() -> String + Send + Sync>;

/// Whether the device takes its time; what the file `timed` is told.
pub type Timed = Arc<dyn Fn(bool) + Send + Sync>;

/// A device that is served. Dropping it ends that.
pub struct Exposed {
    dir: PathBuf,
    workers: Vec<thread::JoinHandle<Result<(), Errno>>>,
}

impl Exposed {
    /// The file.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.dir.join(NAMES[0].1)
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// What ended the connection besides an unmount.
    pub fn wait(mut self) -> Result<(), Errno> {
        self.workers.drain(..).try_for_each(|w| w.join().expect("a worker panicked"))
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        if let Err(e) = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH) {
            tracing::warn!("{}: {e}", self.dir.display());
        }
    }
}

/// Serves a device in a directory.
///
/// # Errors
/// There is no FUSE, or we may not mount.
pub fn expose(device: Arc<dyn BlockDevice>, counters: Counters, dir: &Path) -> Result<Exposed, AttachError> {
    serve(device, counters, None, dir)
}

/// The same with a file `timed`.
///
/// # Errors
/// There is no FUSE, or we may not mount.
pub fn expose_timed(
    device: Arc<dyn BlockDevice>,
    counters: Counters,
    timed: Timed,
    dir: &Path,
) -> Result<Exposed, AttachError> {
    serve(device, counters, Some(timed), dir)
}

fn serve(
    device: Arc<dyn BlockDevice>,
    counters: Counters,
    timed: Option<Timed>,
    dir: &Path,
) -> Result<Exposed, AttachError> {
    let fd = Channel::open_device().map_err(AttachError::NoFuse)?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", fd.as_raw_fd());
    let data = CString::new(data).expect("no NUL in it");
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
    rustix::mount::mount("quire-model", dir, "fuse.quire-model", flags, data.as_c_str()).map_err(AttachError::Mount)?;
    let mut exposed = Exposed { dir: dir.to_owned(), workers: Vec::new() };
    let shared = Arc::new(Shared { channel: Channel::new(fd), device, counters, timed });
    for _ in 0..WORKERS {
        let shared = shared.clone();
        exposed.workers.push(thread::spawn(move || shared.serve()));
    }
    Ok(exposed)
}

struct Shared {
    channel: Channel,
    device: Arc<dyn BlockDevice>,
    counters: Counters,
    timed: Option<Timed>,
}

impl Shared {
    fn serve(&self) -> Result<(), Errno> {
        let size = usize::try_from(MAX_WRITE).expect("1 MiB") + HEAD;
        let (mut request, mut reply) = (vec![0; size], vec![0; size]);
        let mut out = Out::new(&mut reply);
        while let Some(n) = self.channel.receive(&mut request)? {
            let mut body = Body::new(&request[..n]);
            let Ok(header) = body.header() else { return Err(Errno::PROTO) };
            if matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
                continue;
            }
            out.clear();
            let error = self.answer(&header, body, &mut out).err();
            match self.channel.send(out.finish(header.unique, error.as_ref())) {
                Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn answer(&self, h: &Header, mut body: Body<'_>, out: &mut Out<'_>) -> Result<(), Fail> {
        let ino = if h.node == abi::ROOT_NODE { Ino::ROOT } else { Ino(u32::try_from(h.node).unwrap_or(0)) };
        match h.opcode {
            opcode::INIT => handshake(&mut body, out),
            opcode::LOOKUP => {
                let name = body.name()?;
                let found = self.names().find(|(_, n)| n.as_bytes() == name).ok_or(Fail::of(Errno::NOENT))?;
                out.entry(&self.attr(found.0), VALID, VALID)
            }
            opcode::GETATTR | opcode::SETATTR => out.attr(&self.attr(ino), VALID),
            opcode::OPEN => {
                out.u64(0)?;
                out.u32(DIRECT_IO | PARALLEL_DIRECT_WRITES)?;
                out.u32(0)
            }
            opcode::READDIR => self.list(&mut body, out),
            opcode::READ => self.read(ino, &mut body, out),
            opcode::WRITE => self.write(ino, &mut body, out),
            opcode::FSYNC => self.run(Io::Flush).map(drop),
            opcode::FALLOCATE => self.fallocate(&mut body),
            opcode::RELEASE | opcode::DESTROY => Ok(()),
            _ => Err(Fail::of(Errno::NOSYS)),
        }
    }

    /// The files that there are.
    fn names(&self) -> impl Iterator<Item = (Ino, &'static str)> {
        NAMES.into_iter().filter(|(ino, _)| *ino != TIMED || self.timed.is_some())
    }

    fn run(&self, io: Io) -> Result<Vec<Buf>, Fail> {
        Ok(self.device.run(vec![io]).map_err(|_| Fail::of(Errno::IO))?.reads)
    }

    fn attr(&self, ino: Ino) -> Attr {
        let (kind, size) = match ino {
            DISK => (mode::REG | 0o600, self.device.info().size),
            COUNTERS => (mode::REG | 0o444, COUNTERS_MAX),
            TIMED => (mode::REG | 0o200, 0),
            _ => (mode::DIR | 0o755, 0),
        };
        let zero = Timestamp::default();
        Attr {
            ino,
            generation: 0,
            mode: kind,
            links: if ino == Ino::ROOT { 2 } else { 1 },
            uid: 0,
            gid: 0,
            device: (0, 0),
            size,
            sectors: size / 512,
            block_size: 4096,
            flags: 0,
            atime: zero,
            mtime: zero,
            ctime: zero,
            crtime: None,
        }
    }

    fn read(&self, ino: Ino, body: &mut Body<'_>, out: &mut Out<'_>) -> Result<(), Fail> {
        body.skip(8)?;
        let (at, len) = (body.u64()?, body.u32()?);
        if ino == TIMED {
            return Err(Fail::of(Errno::PERM));
        }
        if ino == COUNTERS {
            let text = (self.counters)();
            let from = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
            return out.bytes(&text.as_bytes()[from..]);
        }
        let left = self.device.info().size.saturating_sub(at);
        let len = usize::try_from(u64::from(len).min(left)).expect("32 bits");
        if len == 0 {
            return Ok(());
        }
        let read = self.run(Io::Read { at, buf: Buf::zeroed(len), region: Region::Data })?;
        out.bytes(&read[0][..len])
    }

    fn write(&self, ino: Ino, body: &mut Body<'_>, out: &mut Out<'_>) -> Result<(), Fail> {
        body.skip(8)?;
        let (at, len) = (body.u64()?, body.u32()?);
        body.skip(20)?;
        let data = body.bytes(len)?;
        match (ino, &self.timed) {
            (DISK, _) => {
                let data = vec![Arc::new(Buf::copy_of(data))];
                self.run(Io::Write { at, data, region: Region::Data, fua: false })?;
            }
            (TIMED, Some(timed)) => match data.trim_ascii() {
                b"0" => timed(false),
                b"1" => timed(true),
                _ => return Err(Fail::of(Errno::INVAL)),
            },
            _ => return Err(Fail::of(Errno::PERM)),
        }
        out.u32(len)?;
        out.u32(0)
    }

    fn fallocate(&self, body: &mut Body<'_>) -> Result<(), Fail> {
        body.skip(8)?;
        let (at, len, how) = (body.u64()?, body.u64()?, body.u32()?);
        match how & (PUNCH | ZERO) {
            0 => Ok(()),
            _ => self.run(Io::Zero { at, len, region: Region::Data }).map(drop),
        }
    }

    fn list(&self, body: &mut Body<'_>, out: &mut Out<'_>) -> Result<(), Fail> {
        body.skip(8)?;
        let (from, limit) = (body.u64()?, body.u32()?);
        let limit = usize::try_from(limit).expect("32 bits");
        for (cookie, (ino, name)) in (1..).zip(self.names()).filter(|(cookie, _)| *cookie > from) {
            const REGULAR: u32 = 8;
            let entry = Dirent { ino: u64::from(ino.0), cookie, kind: REGULAR, name: name.as_bytes() };
            if !out.dirent(&entry, Plus::Off, limit) {
                break;
            }
        }
        Ok(())
    }
}

/// INIT.
fn handshake(body: &mut Body<'_>, out: &mut Out<'_>) -> Result<(), Fail> {
    let (_, minor, readahead) = (body.u32()?, body.u32()?, body.u32()?);
    let offered = u64::from(body.u32()?);
    let agreed = offered & (init::ASYNC_READ | init::BIG_WRITES | init::ASYNC_DIO | init::MAX_PAGES);
    let background = u16::try_from(WORKERS).expect("a few");
    for v in [abi::MAJOR, abi::MINOR.min(minor), readahead, u32::try_from(agreed).expect("of 32 bits")] {
        out.u32(v)?;
    }
    out.u16(background)?;
    out.u16(background)?;
    out.u32(MAX_WRITE)?;
    out.u32(1)?;
    out.u16(abi::max_pages(rustix::param::page_size()))?;
    out.u16(0)?;
    out.bytes(&[0; 32])
}
