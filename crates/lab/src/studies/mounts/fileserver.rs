//! RFJ's file server on mounts (figures 2 and 8): 50 threads create and write whole files, append, read, delete and
//! stat, and ask for nothing to be durable.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use quire_testkit::rng::{Rng, content};

use super::super::fileserver::{DIRECTORIES, OPERATIONS, Server};
use super::{ASSUMED, Bed, mounters};
use crate::results::{Effort, Figure, Findings};
use crate::stats::float;

fn make(path: &Path, rng: &mut Rng, server: Server) -> Result<()> {
    let len = server.mean / 2 + rng.below(server.mean);
    Ok(fs::write(path, content(len, 0, usize::try_from(len)?))?)
}

fn place(dir: &Path, name: &str, rng: &mut Rng) -> PathBuf {
    dir.join(format!("dir-{}", rng.below(DIRECTORIES))).join(name)
}

/// The files that are there at the beginning.
fn first(dir: &Path, server: Server) -> impl Iterator<Item = PathBuf> {
    (0..server.files).map(move |n| dir.join(format!("dir-{}", n % DIRECTORIES)).join(format!("first-{n}")))
}

fn fill(dir: &Path, server: Server) -> Result<()> {
    (0..DIRECTORIES).try_for_each(|n| fs::create_dir(dir.join(format!("dir-{n}"))))?;
    let mut rng = Rng::from_parts(&[1, 0xF5]);
    first(dir, server).try_for_each(|path| make(&path, &mut rng, server))
}

/// Returns the operations.
fn serve(dir: &Path, server: Server) -> Result<u64> {
    let (set, began) = (Mutex::new(first(dir, server).collect()), Instant::now());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..server.threads)
            .map(|n| {
                scope.spawn({
                    let set = &set;
                    move || thread(dir, set, n, began, server)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("a server's thread panicked")).sum()
    })
}

fn thread(dir: &Path, set: &Mutex<Vec<PathBuf>>, n: u64, began: Instant, server: Server) -> Result<u64> {
    let mut rng = Rng::from_parts(&[2, 0xF5, n]);
    let put = |path| set.lock().expect("no holder panics").push(path);
    let take = |rng: &mut Rng| {
        let mut set = set.lock().expect("no holder panics");
        let n = rng.index(set.len());
        set.swap_remove(n)
    };
    let mut turns = 0;
    while began.elapsed() < server.time {
        let path = place(dir, &format!("file-{n}-{turns}"), &mut rng);
        make(&path, &mut rng, server)?;
        put(path);
        let path = take(&mut rng);
        let len = server.append / 2 + rng.below(server.append);
        File::options().append(true).open(&path)?.write_all(&content(len, 0, usize::try_from(len)?))?;
        fs::read(&path)?;
        put(path);
        fs::remove_file(take(&mut rng))?;
        let path = take(&mut rng);
        fs::metadata(&path)?;
        put(path);
        turns += 1;
    }
    Ok(turns * OPERATIONS)
}

/// Figures 2 and 8.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let files = effort.pick(300, 2000, 2000);
    let server = Server { files, ..Server::new(Duration::from_secs(effort.pick(3, 15, 60))) };
    let bed = Bed::new("hdd7200", server.mib, 25)?;
    let title = format!("A file server of {} threads, {} s, mounts", server.threads, server.time.as_secs());
    let mut figure =
        Figure::bars("rfj-8-mounts", "figures 2 and 8", title, "mount", "operations/s").of_series(["operations/s"]);
    for mounter in mounters(&["profile=ext4-ordered", "profile=ext4-journal", "profile=rfj", "profile=auto"])? {
        let m = bed.measure(&mounter, |dir| fill(dir, server), |dir| serve(dir, server))?;
        figure.place(&mounter, [float(m.of) / m.seconds]);
    }
    let mut f = Findings { figures: vec![figure], ..Findings::default() };
    f.assume(ASSUMED);
    f.assume(format!(
        "{files} files; the machine's memory and its limits of dirty data: ext4 of today gives blocks to data when it is \
         written back, so its ordered mode does not flush other files' data as ext3's did"
    ));
    Ok(f)
}
