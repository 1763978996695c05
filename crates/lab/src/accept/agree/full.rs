//! A full disk, while the kernel keeps what is written.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;

use anyhow::{Result, bail};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::told::told;

const MIB: usize = 1 << 20;

/// A program that looks at nothing but write(2) is told before it has written twice what fits.
pub(super) fn writer(dir: &Path) -> Result<String> {
    let free = rustix::fs::statvfs(dir)?;
    let fits = usize::try_from(free.f_bavail * free.f_frsize)? / MIB;
    let mut file = File::create(dir.join("file"))?;
    for written in 0..fits * 2 {
        let wrote = file.write_all(&vec![1; MIB]);
        if wrote.is_err() {
            return Ok(format!("{}, most was written {}", told(wrote), written > fits * 3 / 4));
        }
    }
    Ok("still writing".to_owned())
}

/// Each small file is whole, or its write, fsync or close has failed; afterwards there is space again.
pub(super) fn small_files(dir: &Path) -> Result<String> {
    let big = File::create(dir.join("big"))?;
    let mut size = 0;
    while rustix::fs::fallocate(&big, FallocateFlags::empty(), size, 1 << 20).is_ok() {
        size += 1 << 20;
    }
    big.set_len(size - (1 << 20))?;
    let mut good = 0;
    let refused = loop {
        let path = dir.join(format!("small{good}"));
        let made = File::create(&path).and_then(|mut file| {
            file.write_all(&[2; 9000])?;
            file.sync_all()
        });
        if made.is_err() {
            break told(made);
        }
        if fs::read(&path)? != [2; 9000] || good > 1000 {
            bail!("{} is not whole, or does not fit", path.display());
        }
        good += 1;
    };
    big.set_len(0)?;
    let again = File::create(dir.join("again")).and_then(|mut file| {
        file.write_all(&[3; 100_000])?;
        file.sync_all()
    });
    Ok(format!("{refused}, some fitted {}, {}", good > 50, told(again)))
}

/// fallocate of a quarter of the disk beside a writer that removes what it wrote: there is space for both all the time.
pub(super) fn beside_removals(dir: &Path) -> Result<String> {
    let free = rustix::fs::statvfs(dir)?;
    let share = free.f_bavail * free.f_frsize / 4;
    let rounds = 12;
    let refused = thread::scope(|scope| {
        let writer = scope.spawn(|| -> std::io::Result<()> {
            for _ in 0..rounds {
                let mut file = File::create(dir.join("written"))?;
                for _ in 0..usize::try_from(share).unwrap_or(0) / MIB {
                    file.write_all(&[4; MIB])?;
                }
                drop(file);
                fs::remove_file(dir.join("written"))?;
            }
            Ok(())
        });
        let mut refused = 0;
        for _ in 0..rounds {
            let file = File::create(dir.join("allocated"))?;
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, share) {
                Err(Errno::NOSPC) => refused += 1,
                other => other?,
            }
            drop(file);
            fs::remove_file(dir.join("allocated"))?;
        }
        writer.join().expect("no panic")?;
        anyhow::Ok(refused)
    })?;
    Ok(format!("{refused} refused"))
}
