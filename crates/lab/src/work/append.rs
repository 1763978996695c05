//! Appenders: each appends records of odd sizes to a file of its own and makes each durable, by fsync, fdatasync or
//! O_DSYNC in turn. The length is acknowledged when that returned. Afterwards: the file is at least that long, and
//! every byte that it has is the byte that belongs there.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{AckLog, Stopped, lines};
use quire_testkit::rng::{Rng, content};

const LARGEST_RECORD: u64 = 9000;
/// A file that grew to this is deleted and begun anew, so that a long run needs no more space.
const LARGEST_FILE: u64 = 4 << 20;

/// Appends until the time is over or the mount dies.
pub fn work(dir: &Path, log: &Path, worker: u64, seed: u64, limit: Duration) -> Result<(), Stopped> {
    let mut rng = Rng::from_parts(&[seed, worker, 4]);
    let mut ack = AckLog::open(log, &format!("append-{worker}"))?;
    let start = Instant::now();
    let mut generation = 0_u64;
    while start.elapsed() < limit {
        let path = dir.join(format!("append-{worker}-{generation}"));
        let way = rng.below(3);
        let mut file = File::options()
            .create_new(true)
            .append(true)
            .custom_flags(if way == 2 { libc::O_DSYNC } else { 0 })
            .open(&path)?;
        // The name is durable with the first fsync of the file, as ext4 has it; O_DSYNC alone does not promise the
        // name.
        file.sync_all()?;
        let mut length = 0;
        while start.elapsed() < limit && length < LARGEST_FILE {
            let record = usize::try_from(1 + rng.below(LARGEST_RECORD)).expect("small");
            file.write_all(&content(key(seed, worker, generation), length, record))?;
            match way {
                0 => file.sync_all()?,
                1 => file.sync_data()?,
                _ => {}
            }
            length += record as u64;
            ack.line(&format!("{generation} {length}"))?;
        }
        if length >= LARGEST_FILE {
            ack.line(&format!("{} 0", generation + 1))?;
            fs::remove_file(&path)?;
        }
        generation += 1;
    }
    Ok(())
}

fn key(seed: u64, worker: u64, generation: u64) -> u64 {
    Rng::from_parts(&[seed, worker, generation, 5]).bits()
}

/// Checks the last file of a worker; returns the bytes that were acknowledged.
pub fn check(dir: &Path, log: &Path, worker: u64, seed: u64) -> Result<u64> {
    let Some(last) = lines(log, &format!("append-{worker}"))?.pop() else { return Ok(0) };
    let (generation, length) = last.split_once(' ').context("a line of two numbers")?;
    let (generation, acknowledged): (u64, u64) = (generation.parse()?, length.parse()?);
    let path = dir.join(format!("append-{worker}-{generation}"));
    if acknowledged == 0 && !path.exists() {
        return Ok(0);
    }
    let bytes =
        fs::read(&path).with_context(|| format!("{acknowledged} bytes of {} were acknowledged", path.display()))?;
    ensure!(
        bytes.len() as u64 >= acknowledged,
        "{} has {} bytes; {acknowledged} were acknowledged",
        path.display(),
        bytes.len()
    );
    let right = content(key(seed, worker, generation), 0, bytes.len());
    if let Some(at) = bytes.iter().zip(&right).position(|(is, should)| is != should) {
        let zeros = bytes[at..].iter().take_while(|byte| **byte == 0).count();
        anyhow::bail!(
            "{}: byte {at} of {} is wrong ({zeros} zero bytes from there; {acknowledged} bytes were acknowledged)",
            path.display(),
            bytes.len()
        );
    }
    Ok(acknowledged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_and_a_wrong_byte_are_seen() {
        // A fast disk may be at its second file, or just about to begin it.
        let (dir, generation) = loop {
            let dir = tempfile::tempdir().unwrap();
            crate::work::end(work(dir.path(), dir.path(), 0, 1, Duration::from_millis(100))).unwrap();
            let last = lines(dir.path(), "append-0").unwrap().pop().unwrap();
            let (generation, length) = last.split_once(' ').unwrap();
            if length.parse::<u64>().unwrap() > 14 {
                break (dir, generation.to_owned());
            }
        };
        assert!(check(dir.path(), dir.path(), 0, 1).unwrap() > 0);
        let file = File::options().write(true).open(dir.path().join(format!("append-0-{generation}"))).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1, 2, 3, 4], 10).unwrap();
        assert!(check(dir.path(), dir.path(), 0, 1).unwrap_err().to_string().contains("is wrong"));
        file.set_len(5).unwrap();
        assert!(check(dir.path(), dir.path(), 0, 1).unwrap_err().to_string().contains("has 5 bytes"));
    }
}
