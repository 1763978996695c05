//! One file through the page cache, past it, and through mappings.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Result;
use memmap2::MmapMut;
use quire_testkit::rng::content;
use rustix::fs::OFlags;

/// A file mapped for reading and writing, shared.
pub(super) struct Mapped(MmapMut);

impl Mapped {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        // SAFETY: the mapping is only used through plain loads and stores of bytes, which any value suits; no case
        // touches a page that it has truncated away.
        Ok(Mapped(unsafe { MmapMut::map_mut(&file)? }))
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub(super) fn sync(&self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

/// Memory that O_DIRECT takes.
fn aligned(len: usize, with: impl FnOnce(&mut [u8]) -> std::io::Result<()>) -> Result<()> {
    let mut memory = vec![0; len + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    Ok(with(&mut memory[skip..skip + len])?)
}

/// What one way has written the others see: cached, direct, mapped.
pub(super) fn direct(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    let cached = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    let flags = i32::try_from(OFlags::DIRECT.bits())?;
    let direct = File::options().read(true).write(true).custom_flags(flags).open(&path)?;
    cached.write_all_at(&content(1, 0, 65_536), 0)?;
    let mut map = Mapped::open(&path)?;
    let mut seen = Vec::new();
    for round in 0..20_u64 {
        let new = content(round + 10, 0, 8192);
        let at = round % 7 * 8192;
        let from = usize::try_from(at)?;
        match round % 3 {
            0 => cached.write_all_at(&new, at)?,
            1 => aligned(8192, |block| {
                block.copy_from_slice(&new);
                direct.write_all_at(block, at)
            })?,
            _ => map.bytes()[from..from + 8192].copy_from_slice(&new),
        }
        let (mut by_read, mut by_direct) = (vec![0; 8192], false);
        cached.read_exact_at(&mut by_read, at)?;
        aligned(8192, |block| {
            direct.read_exact_at(block, at)?;
            by_direct = block == new;
            Ok(())
        })?;
        if by_read != new || !by_direct || map.bytes()[from..from + 8192] != new {
            seen.push(round.to_string());
        }
    }
    Ok(format!("stale after rounds [{}]", seen.join(" ")))
}

/// Bytes that are stored behind the end of a file do not appear when it grows.
pub(super) fn behind_the_end(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.write_all_at(&[1; 5000], 0)?;
    let mut map = Mapped::open(&path)?;
    // The last page is mapped whole; the length of the slice ends at the end of the file.
    map.bytes()[4999] = 2;
    map.sync()?;
    file.set_len(4500)?;
    file.set_len(9000)?;
    let bytes = fs::read(&path)?;
    let (zeros, length) = (bytes[4500..].iter().all(|b| *b == 0), bytes.len());
    file.write_all_at(b"end", 20_000)?;
    let bytes = fs::read(&path)?;
    Ok(format!("{zeros} {length}; {} {}", bytes[9000..20_000].iter().all(|b| *b == 0), bytes.len()))
}

/// Pages of a mapping that are cut off and come back are zeros.
pub(super) fn truncated(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.write_all_at(&[3; 4 * 4096], 0)?;
    let mut map = Mapped::open(&path)?;
    map.bytes()[3 * 4096] = 4;
    file.set_len(4096)?;
    file.set_len(4 * 4096)?;
    let through_map = (map.bytes()[4095], map.bytes()[4096], map.bytes()[3 * 4096]);
    map.bytes()[2 * 4096] = 5;
    drop(map);
    file.sync_all()?;
    let bytes = fs::read(&path)?;
    Ok(format!("{through_map:?} {} {:?}", bytes.len(), (bytes[4095], bytes[4096], bytes[8192], bytes[3 * 4096])))
}

/// The size after unsynced writes of another descriptor: by stat, by lseek, by a read at the end, and for an append.
pub(super) fn sizes(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    let mut writer = File::create(&path)?;
    let (mut reader, mut appender) = (File::open(&path)?, File::options().append(true).open(&path)?);
    let mut seen = Vec::new();
    for _ in 0..3 {
        writer.write_all(&[1; 3000])?;
        let by_stat = fs::metadata(&path)?.len();
        let by_seek = reader.seek(SeekFrom::End(0))?;
        let at_end = reader.read_at(&mut [0; 10], by_stat.saturating_sub(4))?;
        appender.write_all(&[2; 10])?;
        writer.seek(SeekFrom::End(0))?;
        seen.push(format!("{by_stat} {by_seek} {at_end}"));
    }
    let twos = fs::read(&path)?.iter().filter(|b| **b == 2).count();
    Ok(format!("{}; {twos}", seen.join(", ")))
}

/// Appends are whole and none is lost.
pub(super) fn appends(dir: &Path) -> Result<String> {
    let path = dir.join("log");
    File::create(&path)?;
    std::thread::scope(|scope| {
        let writer = |id: u8| -> std::io::Result<()> {
            let mut file = File::options().append(true).open(&path)?;
            (0..100).try_for_each(|_| file.write_all(&[id; 701]))
        };
        let all: Vec<_> = (1..=4).map(|id| scope.spawn(move || writer(id))).collect();
        all.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let bytes = fs::read(&path)?;
    let whole = bytes.chunks(701).all(|record| record.iter().all(|b| *b == record[0]));
    Ok(format!("{} bytes, whole {whole}", bytes.len()))
}

/// A file without a name lives as long as its mapping.
pub(super) fn removed(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    fs::write(&path, [6; 3 * 4096])?;
    let mut map = Mapped::open(&path)?;
    fs::remove_file(&path)?;
    map.bytes()[4096] = 7;
    map.sync()?;
    // Others take the space that is free.
    fs::write(dir.join("other"), vec![8; 1 << 20])?;
    File::open(dir.join("other"))?.sync_all()?;
    Ok(format!("{:?}", (map.bytes()[0], map.bytes()[4096], map.bytes()[8192])))
}
