//! Asynchronous direct writes (io_submit) beside reads from the page cache.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::OFlags;

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;
/// Writes that are under way together.
const DEPTH: usize = 8;
const LONGEST: Duration = Duration::from_secs(3);
const PWRITE: u16 = 1;

/// `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

/// A context of the kernel's asynchronous I/O.
struct Aio(libc::c_ulong);

impl Aio {
    fn new() -> Result<Self> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the call writes one number, to memory that lives.
        let r = unsafe { libc::syscall(libc::SYS_io_setup, DEPTH, &raw mut id) };
        ensure!(r == 0, "io_setup: {}", std::io::Error::last_os_error());
        Ok(Aio(id))
    }

    /// Writes the blocks from number `first` on, `DEPTH` of them, and calls `done` with each that has been written.
    fn write(
        &self,
        fd: impl AsFd,
        memory: &[u8],
        first: usize,
        mut done: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let iocb = |n: usize| -> Result<Iocb> {
            let at = n * BLOCK;
            Ok(Iocb {
                data: u64::try_from(n)?,
                opcode: PWRITE,
                fd: u32::try_from(fd.as_fd().as_raw_fd())?,
                buf: u64::try_from(memory[at..at + BLOCK].as_ptr().addr())?,
                len: u64::try_from(BLOCK)?,
                offset: i64::try_from(at)?,
                ..Iocb::default()
            })
        };
        let mut iocbs: Vec<Iocb> = (first..first + DEPTH).map(iocb).collect::<Result<_>>()?;
        let mut list: Vec<*mut Iocb> = iocbs.iter_mut().map(std::ptr::from_mut).collect();
        // SAFETY: the list and what it points to live until all events have come, below; so does the memory.
        let n = unsafe { libc::syscall(libc::SYS_io_submit, self.0, DEPTH, list.as_mut_ptr()) };
        ensure!(usize::try_from(n) == Ok(DEPTH), "io_submit: {n} {}", std::io::Error::last_os_error());
        let (mut came, mut failed) = (0, Ok(()));
        while came < DEPTH {
            let mut events = [Event::default(); DEPTH];
            let none = std::ptr::null_mut::<libc::timespec>();
            // SAFETY: the kernel fills at most `DEPTH` events of an array of so many.
            let n = unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 1, DEPTH, events.as_mut_ptr(), none) };
            let n = usize::try_from(n).context("io_getevents")?;
            came += n;
            for event in &events[..n] {
                let block = usize::try_from(event.data)?;
                let written = if event.result == 4096 { done(block) } else { Err(anyhow::anyhow!("{}", event.result)) };
                failed = failed.and(written);
            }
        }
        failed
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing is under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// What a read from the page cache shows of a block just when its direct write has ended, beside others who read.
pub(super) fn cached_reads(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    std::fs::write(&path, vec![0; BLOCKS * BLOCK])?;
    let cached = File::open(&path)?;
    cached.sync_all()?;
    let flags = i32::try_from(OFlags::DIRECT.bits())?;
    let direct = File::options().write(true).custom_flags(flags).open(&path)?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut block = [0; BLOCK];
                while !ended.load(Ordering::Relaxed) {
                    (0..BLOCKS).for_each(|n| {
                        cached.read_at(&mut block, (n * BLOCK) as u64).ok();
                    });
                }
            });
        }
        let stale = rounds(&cached, &direct);
        ended.store(true, Ordering::Relaxed);
        Ok(if stale? { "stale" } else { "fresh" }.to_owned())
    })
}

/// True as soon as a read has shown an old block.
fn rounds(cached: &File, direct: &File) -> Result<bool> {
    let aio = Aio::new()?;
    let mut memory = vec![0; (BLOCKS + 1) * BLOCK];
    let skip = memory.as_ptr().align_offset(BLOCK);
    let memory = &mut memory[skip..skip + BLOCKS * BLOCK];
    let start = Instant::now();
    let mut stale = false;
    for round in (1..=255_u8).cycle().take_while(|_| start.elapsed() < LONGEST) {
        memory.fill(round);
        for first in (0..BLOCKS).step_by(DEPTH) {
            aio.write(direct, memory, first, |n| {
                let mut seen = [0];
                cached.read_exact_at(&mut seen, (n * BLOCK) as u64)?;
                stale |= seen[0] != round;
                Ok(())
            })?;
        }
        if stale {
            break;
        }
    }
    Ok(stale)
}
