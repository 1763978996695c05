//! DJFS' random writes on mounts (figures 2 and 7): one program overwrites 4 KiB at random in files of 1 MiB, with an
//! fsync every so many writes, of the file that it wrote last.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use quire_testkit::rng::{Rng, content};

use super::{ASSUMED, Bed, mounters};
use crate::results::{Effort, Figure, Findings};
use crate::stats::float;

const FILE: usize = 1 << 20;
const PAGE: usize = 4096;
/// Writes to an fsync: the paper's lowest and highest frequency.
const EVERY: [u64; 2] = [1024, 64];

fn fill(dir: &Path, files: u64) -> Result<()> {
    (0..files).try_for_each(|n| Ok(fs::write(dir.join(format!("file-{n}")), content(n, 0, FILE))?))
}

/// Returns the writes.
fn write(dir: &Path, files: u64, every: u64, time: Duration) -> Result<u64> {
    let open = |n| File::options().write(true).open(dir.join(format!("file-{n}")));
    let files: Vec<File> = (0..files).map(open).collect::<std::io::Result<_>>()?;
    let mut rng = Rng::from_parts(&[1, 0x840]);
    let began = Instant::now();
    let mut writes = 0;
    while began.elapsed() < time {
        let file = &files[rng.index(files.len())];
        let at = rng.index(FILE / PAGE) * PAGE;
        writes += 1;
        file.write_all_at(&content(writes, at as u64, PAGE), at as u64)?;
        if writes % every == 0 {
            file.sync_all()?;
        }
    }
    Ok(writes)
}

/// Figures 2 and 7.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let files = effort.pick(64, 192, 512);
    let time = Duration::from_secs(effort.pick(2, 5, 20));
    let bed = Bed::new("samsung840", 384 + files * 5 / 4, 32)?;
    let title = |what: &str| format!("{what}, {files} files of 1 MiB, mounts");
    let names = EVERY.map(|every| format!("fsync every {every}"));
    let mut rate = Figure::bars("djfs-2-mounts", "figures 2 and 7", title("Random writes"), "mount", "writes/s")
        .of_series(names.clone());
    let mut flushes =
        Figure::bars("djfs-2-mounts-flushes", "figure 2", title("Flushes"), "mount", "of 1000 writes").of_series(names);
    for mounter in mounters(&["profile=ext4-ordered", "profile=ext4-journal", "profile=auto"])? {
        let mut row = [(0.0, 0.0); EVERY.len()];
        for (cell, every) in row.iter_mut().zip(EVERY) {
            let m = bed.measure(&mounter, |dir| fill(dir, files), |dir| write(dir, files, every, time))?;
            let writes = float(m.of);
            *cell = (writes / m.seconds, float(m.asked.flushes) / writes * 1000.0);
        }
        rate.place(&mounter, row.map(|(rate, _)| rate));
        flushes.place(&mounter, row.map(|(_, flushes)| flushes));
    }
    let mut f = Findings { figures: vec![rate, flushes], ..Findings::default() };
    f.assume(ASSUMED);
    f.assume(
        "the kernel's page cache takes the writes between two fsyncs, and writes of other files go home when they are \
         old: an fsync is of one file, as fio's",
    );
    Ok(f)
}
