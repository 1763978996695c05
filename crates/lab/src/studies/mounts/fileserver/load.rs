//! What the file server does in a directory: its threads make and write whole files, or write them anew in place, and
//! append, read, delete and stat; they ask for nothing to be durable.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Result;
use quire_testkit::rng::{Rng, content};

use super::super::super::fileserver::{DIRECTORIES, Server};

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

/// Makes directories and files.
///
/// # Errors
/// As all of these: the file system fails.
pub(super) fn fill(dir: &Path, server: Server) -> Result<()> {
    (0..DIRECTORIES).try_for_each(|n| fs::create_dir(dir.join(format!("dir-{n}"))))?;
    let mut rng = Rng::from_parts(&[1, 0xF5]);
    first(dir, server).try_for_each(|path| make(&path, &mut rng, server))
}

/// Serves; returns the operations of the time that is measured.
pub(super) fn serve(dir: &Path, server: Server) -> Result<u64> {
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

/// Writes a file anew, in place.
fn rewrite(path: &Path, turn: u64) -> Result<()> {
    let mut file = File::options().write(true).open(path)?;
    let len = file.metadata()?.len();
    Ok(file.write_all(&content(turn, 0, usize::try_from(len)?))?)
}

fn thread(dir: &Path, set: &Mutex<Vec<PathBuf>>, n: u64, began: Instant, server: Server) -> Result<u64> {
    let mut rng = Rng::from_parts(&[2, 0xF5, n]);
    let put = |path| set.lock().expect("no holder panics").push(path);
    let take = |rng: &mut Rng| {
        let mut set = set.lock().expect("no holder panics");
        let n = rng.index(set.len());
        set.swap_remove(n)
    };
    let (mut turns, mut counted) = (0, 0);
    let measured = server.before..server.before + server.time;
    let mut count = |operations: u64| counted += if measured.contains(&began.elapsed()) { operations } else { 0 };
    while began.elapsed() < measured.end {
        let rewrites = server.rewrites > 0 && rng.below(100) < server.rewrites;
        if rewrites {
            let path = take(&mut rng);
            rewrite(&path, turns)?;
            count(1);
            put(path);
        } else {
            let path = place(dir, &format!("file-{n}-{turns}"), &mut rng);
            make(&path, &mut rng, server)?;
            // A create and a write.
            count(2);
            put(path);
        }
        let path = take(&mut rng);
        let len = server.append / 2 + rng.below(server.append);
        File::options().append(true).open(&path)?.write_all(&content(len, 0, usize::try_from(len)?))?;
        count(1);
        fs::read(&path)?;
        count(1);
        put(path);
        if !rewrites {
            fs::remove_file(take(&mut rng))?;
            count(1);
        }
        let path = take(&mut rng);
        fs::metadata(&path)?;
        count(1);
        put(path);
        turns += 1;
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn names(dir: &Path) -> Vec<(PathBuf, u64)> {
        let dirs = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let files = dirs.flat_map(|dir| fs::read_dir(dir).unwrap()).map(|entry| entry.unwrap());
        let mut all: Vec<_> = files.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect();
        all.sort();
        all
    }

    #[test]
    fn a_server_that_overwrites_makes_no_file_and_deletes_none() {
        let server =
            Server { threads: 2, files: 40, mean: 2000, append: 100, ..Server::new(Duration::from_millis(30)) };
        for (rewrites, stay) in [(0, false), (100, true)] {
            let dir = tempfile::tempdir().unwrap();
            let server = Server { rewrites, ..server };
            fill(dir.path(), server).unwrap();
            let before = names(dir.path());
            // A machine under load may serve none in so short a time.
            assert!((0..100).any(|_| serve(dir.path(), server).unwrap() > 0));
            let after = names(dir.path());
            let same = before.iter().map(|(path, _)| path).eq(after.iter().map(|(path, _)| path));
            assert_eq!((before.len(), same), (40, stay));
            let total = |all: &[(PathBuf, u64)]| all.iter().map(|(_, len)| len).sum::<u64>();
            assert!(!stay || total(&after) > total(&before), "it appends");
        }
    }
}
