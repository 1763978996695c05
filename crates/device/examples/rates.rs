//! What FileDevice costs beside the host's own calls:
//! `cargo run --release -p quire-device --example rates -- FILE [MIB]`. FILE is made, filled and removed.
//!
//! Prints the median of a 4 KiB write with fdatasync, through FileDevice and by raw calls on the same file with
//! O_DIRECT, in turns; then the rates of sequential transfers.

use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, FileDevice, Io, OpenOptions, Region};
use rustix::fs::{Mode, OFlags};
use std::io::{IoSlice, IoSliceMut};
use std::time::Instant;

const BLOCK: usize = 4096;
const CHUNK: usize = 1 << 20;
const ROUNDS: u64 = 2000;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: rates FILE [MIB]")?;
    let size: u64 = args.next().map_or(Ok(1024), |s| s.parse())? << 20;
    std::fs::File::create(&path)?.set_len(size)?;
    let dev = FileDevice::open(&path, OpenOptions { lock: false, ..OpenOptions::default() })?;
    println!("direct: {}", dev.is_direct());

    let start = Instant::now();
    dev.preallocate(0, size)?;
    rate("preallocate", size, start);
    for round in 1..=2 {
        sequential(&dev, size, round)?;
    }
    raw_sequential(&path, size)?;
    small(&dev, &path)?;
    std::fs::remove_file(path)?;
    Ok(())
}

fn rate(what: &str, bytes: u64, start: Instant) {
    let mib = u32::try_from(bytes >> 20).map_or(f64::INFINITY, f64::from);
    println!("{what}: {:.0} MiB/s", mib / start.elapsed().as_secs_f64());
}

/// Eight batches of 1 MiB in flight, as write-back would have.
fn sequential(dev: &FileDevice, size: u64, round: u32) -> Result<(), Box<dyn std::error::Error>> {
    let blocks: Vec<Arc<Buf>> = (0..CHUNK / BLOCK).map(|_| Arc::new(Buf::zeroed(BLOCK))).collect();
    let start = Instant::now();
    let mut flying = std::collections::VecDeque::new();
    for at in (0..size).step_by(CHUNK) {
        flying.push_back(dev.submit(vec![Io::Write { at, data: blocks.clone(), region: Region::Data, fua: false }]));
        if flying.len() == 8 {
            dev.wait(flying.pop_front().expect("eight"))?;
        }
    }
    flying.drain(..).try_for_each(|t| dev.wait(t).map(drop))?;
    dev.run(vec![Io::Flush])?;
    rate(&format!("sequential write of 4 KiB blocks, round {round}"), size, start);

    let start = Instant::now();
    for at in (0..size).step_by(CHUNK) {
        flying.push_back(dev.submit(vec![Io::Read { at, buf: Buf::zeroed(CHUNK), region: Region::Data }]));
        if flying.len() == 8 {
            dev.wait(flying.pop_front().expect("eight"))?;
        }
    }
    flying.drain(..).try_for_each(|t| dev.wait(t).map(drop))?;
    rate(&format!("sequential read, round {round}"), size, start);
    Ok(())
}

/// One call after the other, like `dd bs=1M oflag=direct conv=fdatasync`.
fn raw_sequential(path: &str, size: u64) -> Result<(), Box<dyn std::error::Error>> {
    let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::DIRECT, Mode::empty())?;
    let mut buf = Buf::zeroed(CHUNK);
    let start = Instant::now();
    for at in (0..size).step_by(CHUNK) {
        rustix::io::pwritev(&fd, &[IoSlice::new(&buf)], at)?;
    }
    rustix::fs::fdatasync(&fd)?;
    rate("raw sequential write", size, start);
    let start = Instant::now();
    for at in (0..size).step_by(CHUNK) {
        rustix::io::preadv(&fd, &mut [IoSliceMut::new(&mut buf)], at)?;
    }
    rate("raw sequential read", size, start);
    Ok(())
}

fn small(dev: &FileDevice, path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::DIRECT, Mode::empty())?;
    let block = Arc::new(Buf::zeroed(BLOCK));
    let place = |i: u64| (i % 256) * BLOCK as u64;
    let timed = |f: &mut dyn FnMut() -> Result<(), Box<dyn std::error::Error>>| {
        let start = Instant::now();
        f().map(|()| start.elapsed().as_secs_f64() * 1e6)
    };
    let [mut ours, mut raw, mut fua] = [(); 3].map(|()| Vec::new());
    let [mut scattered, mut one_by_one] = [(); 2].map(|()| Vec::new());
    let no_ring = FileDevice::open(path, OpenOptions { lock: false, ..OpenOptions::default() })?.without_ring();
    for i in 0..ROUNDS {
        ours.push(timed(&mut || {
            dev.write(place(i), Arc::clone(&block), Region::Log)?;
            dev.run(vec![Io::Flush])?;
            Ok(())
        })?);
        raw.push(timed(&mut || {
            rustix::io::pwrite(&fd, &block, place(i))?;
            rustix::fs::fdatasync(&fd)?;
            Ok(())
        })?);
        let write = |at, fua| Io::Write { at, data: vec![Arc::clone(&block)], region: Region::Log, fua };
        fua.push(timed(&mut || dev.run(vec![write(place(i), true)]).map(drop).map_err(Into::into))?);
        if i % 20 == 0 {
            let batch = || (0..64).map(|n| write(place(n * 2 + i) * 2, false)).collect();
            scattered.push(timed(&mut || dev.run(batch()).map(drop).map_err(Into::into))?);
            one_by_one.push(timed(&mut || no_ring.run(batch()).map(drop).map_err(Into::into))?);
        }
    }
    println!("4 KiB write + flush, FileDevice: {:.1} us", median(ours));
    println!("4 KiB write + fdatasync, raw:    {:.1} us", median(raw));
    println!("4 KiB write with FUA:            {:.1} us", median(fua));
    println!("64 scattered 4 KiB writes:       {:.1} us", median(scattered));
    println!("the same without io_uring:       {:.1} us", median(one_by_one));
    Ok(())
}
