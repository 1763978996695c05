//! A storm of names: one worker creates, renames (onto others, across directories), links, unlinks, makes and removes
//! directories and symlinks in two directories of its own, each step drawn from the seed and from what it has done so
//! far. So the state after step `n` is known from the seed alone.
//!
//! The log says how many steps have returned, and how many are durable (a directory or a file was fsynced). Afterwards
//! the names must be those after some step between the two: metadata is a prefix of the operations. A file's bytes must
//! be its own; all of them when it was fsynced.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{AckLog, Stopped, lines};
use quire_testkit::rng::{Rng, content};

const SIDES: [&str; 2] = ["left", "right"];
const NAMES: u64 = 40;
const LARGEST_FILE: u64 = 30_000;

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    /// Made by step `id`, with `len` bytes; `synced` when that step fsynced it.
    File {
        id: u64,
        len: u64,
        synced: bool,
    },
    Directory,
    Symlink {
        id: u64,
    },
}

type Names = BTreeMap<String, Node>;

/// One step.
#[derive(Debug, Clone)]
enum Step {
    Create { name: String, len: u64, sync: bool },
    Rename { from: String, to: String },
    Link { old: String, new: String },
    Unlink { name: String },
    Symlink { name: String },
    MakeDirectory { name: String },
    RemoveDirectory { name: String },
    SyncDirectory { side: &'static str },
}

/// The state that the seed leads to.
struct Plan {
    rng: Rng,
    names: Names,
    number: u64,
    /// The number after the last step that changed each side.
    changed: [u64; 2],
}

impl Plan {
    fn new(seed: u64, worker: u64) -> Self {
        Self { rng: Rng::from_parts(&[seed, worker, 6]), names: Names::new(), number: 0, changed: [0; 2] }
    }

    fn slot(&mut self) -> String {
        format!("{}/name{:02}", SIDES[self.rng.index(2)], self.rng.below(NAMES))
    }

    fn next(&mut self) -> Step {
        let name = self.slot();
        match (self.names.get(&name), self.rng.below(10)) {
            (_, 0) => Step::SyncDirectory { side: SIDES[self.rng.index(2)] },
            (None, 1) => Step::MakeDirectory { name },
            (None, 2) => Step::Symlink { name },
            (None, 3) => match self.some_file() {
                Some(old) => Step::Link { old, new: name },
                None => self.create(name),
            },
            (None, _) => self.create(name),
            (Some(Node::Directory), 1..=4) => Step::RemoveDirectory { name },
            (Some(Node::File { .. } | Node::Symlink { .. }), 1..=4) => Step::Unlink { name },
            (Some(&node), _) => {
                let to = self.slot();
                let fits = match self.names.get(&to) {
                    None => true,
                    // Two names of one file: rename would do nothing.
                    Some(&over) => over != node && over != Node::Directory && node != Node::Directory,
                };
                if fits { Step::Rename { from: name, to } } else { Step::SyncDirectory { side: SIDES[0] } }
            }
        }
    }

    fn create(&mut self, name: String) -> Step {
        let len = if self.rng.one_in(3) { self.rng.below(200) } else { self.rng.below(LARGEST_FILE) };
        Step::Create { name, len, sync: self.rng.one_in(6) }
    }

    fn some_file(&mut self) -> Option<String> {
        let files: Vec<&String> =
            self.names.iter().filter(|(_, node)| matches!(node, Node::File { .. })).map(|(name, _)| name).collect();
        if files.is_empty() { None } else { Some(files[self.rng.index(files.len())].clone()) }
    }

    /// Takes the step, and says how many steps an fsync in it has made durable: all up to the last change of what was
    /// fsynced, for metadata is a prefix of the operations. (Of a directory that nothing changed an fsync need not
    /// write anything.)
    fn done(&mut self, step: &Step) -> Option<u64> {
        let id = self.number;
        self.number += 1;
        for (n, side) in SIDES.iter().enumerate() {
            if step.names().iter().any(|name| name.starts_with(side)) {
                self.changed[n] = self.number;
            }
        }
        let durable = match step {
            Step::Create { sync: true, .. } => Some(self.number),
            Step::SyncDirectory { side } => SIDES.iter().position(|other| other == side).map(|n| self.changed[n]),
            _ => None,
        };
        match step {
            Step::Create { name, len, sync } => {
                self.names.insert(name.clone(), Node::File { id, len: *len, synced: *sync });
            }
            Step::Rename { from, to } => {
                let node = self.names.remove(from).expect("drawn from the names");
                self.names.insert(to.clone(), node);
            }
            Step::Link { old, new } => {
                self.names.insert(new.clone(), self.names[old]);
            }
            Step::Unlink { name } | Step::RemoveDirectory { name } => {
                self.names.remove(name);
            }
            Step::Symlink { name } => {
                self.names.insert(name.clone(), Node::Symlink { id });
            }
            Step::MakeDirectory { name } => {
                self.names.insert(name.clone(), Node::Directory);
            }
            Step::SyncDirectory { .. } => {}
        }
        durable
    }
}

impl Step {
    /// The names that it makes or takes away.
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Create { name, .. }
            | Self::Unlink { name }
            | Self::Symlink { name }
            | Self::MakeDirectory { name }
            | Self::RemoveDirectory { name }
            | Self::Link { new: name, .. } => vec![name],
            Self::Rename { from, to } => vec![from, to],
            Self::SyncDirectory { .. } => Vec::new(),
        }
    }
}

fn key(seed: u64, worker: u64, id: u64) -> u64 {
    Rng::from_parts(&[seed, worker, id, 7]).bits()
}

/// A target that is sometimes short enough to live in the inode and sometimes not.
fn target(id: u64) -> String {
    format!("target-{id}-{}", "x".repeat(usize::try_from(id % 90).expect("small")))
}

/// Storms below `dir` until the time is over or the mount dies.
pub fn work(dir: &Path, log: &Path, worker: u64, seed: u64, limit: Duration) -> Result<(), Stopped> {
    let top = dir.join(format!("storm-{worker}"));
    for side in SIDES {
        fs::create_dir_all(top.join(side))?;
    }
    for path in [&top.join(SIDES[0]), &top.join(SIDES[1]), &top, dir] {
        File::open(path)?.sync_all()?;
    }
    let mut ack = AckLog::open(log, &format!("storm-{worker}"))?;
    ack.line("ready")?;
    let mut plan = Plan::new(seed, worker);
    let start = Instant::now();
    while start.elapsed() < limit {
        let step = plan.next();
        perform(&top, &step, key(seed, worker, plan.number), plan.number)?;
        match plan.done(&step) {
            Some(durable) => ack.line(&format!("done {}\ndurable {durable}", plan.number))?,
            None => ack.line(&format!("done {}", plan.number))?,
        }
    }
    Ok(())
}

fn perform(top: &Path, step: &Step, key: u64, id: u64) -> Result<(), Stopped> {
    match step {
        Step::Create { name, len, sync } => {
            let mut file = File::create_new(top.join(name))?;
            file.write_all(&content(key, 0, usize::try_from(*len).expect("small")))?;
            if *sync {
                file.sync_all()?;
            }
        }
        Step::Rename { from, to } => fs::rename(top.join(from), top.join(to))?,
        Step::Link { old, new } => fs::hard_link(top.join(old), top.join(new))?,
        Step::Unlink { name } => fs::remove_file(top.join(name))?,
        Step::Symlink { name } => symlink(target(id), top.join(name))?,
        Step::MakeDirectory { name } => fs::create_dir(top.join(name))?,
        Step::RemoveDirectory { name } => fs::remove_dir(top.join(name))?,
        Step::SyncDirectory { side } => {
            File::open(top.join(side))?.sync_all()?;
        }
    }
    Ok(())
}

/// Checks what is there against the log; returns how many steps were durable.
pub fn check(dir: &Path, log: &Path, worker: u64, seed: u64) -> Result<u64> {
    let acknowledged = lines(log, &format!("storm-{worker}"))?;
    if acknowledged.is_empty() {
        return Ok(0);
    }
    let top = dir.join(format!("storm-{worker}"));
    let largest = |word: &str| {
        acknowledged.iter().filter_map(|line| line.strip_prefix(word)?.trim().parse::<u64>().ok()).max().unwrap_or(0)
    };
    let durable = largest("durable");
    // The step after the last one that returned may have happened, too.
    let latest = largest("done") + 1;
    let there = look(&top)?;
    let mut plan = Plan::new(seed, worker);
    let mut nearest: Option<(usize, u64, String)> = None;
    while plan.number <= latest {
        if plan.number >= durable {
            let wrong = mismatches(&plan.names, &there, latest, |id| key(seed, worker, id));
            if wrong.is_empty() {
                return Ok(durable);
            }
            if nearest.as_ref().is_none_or(|(count, ..)| wrong.len() < *count) {
                nearest = Some((wrong.len(), plan.number, wrong.join("\n")));
            }
        }
        let step = plan.next();
        let _ = plan.done(&step);
    }
    let (count, step, wrong) = nearest.context("at least one state was compared")?;
    bail!(
        "{}: the names are those after no step from {durable} (durable) to {latest} (begun); nearest is step {step}, with {count} differences:\n{wrong}",
        top.display()
    );
}

/// What is on the mount.
enum There {
    File(Vec<u8>),
    Directory,
    Symlink(String),
}

fn look(top: &Path) -> Result<BTreeMap<String, There>> {
    let mut there = BTreeMap::new();
    for side in SIDES {
        for entry in fs::read_dir(top.join(side)).with_context(|| format!("{side} of {} is durable", top.display()))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            let seen = if kind.is_dir() {
                ensure!(fs::read_dir(&path)?.next().is_none(), "{} is not empty", path.display());
                There::Directory
            } else if kind.is_symlink() {
                There::Symlink(fs::read_link(&path)?.to_string_lossy().into_owned())
            } else {
                There::File(fs::read(&path)?)
            };
            there.insert(format!("{side}/{}", entry.file_name().to_string_lossy()), seen);
        }
    }
    Ok(there)
}

/// What differs. The step before `latest` had only begun: a file that it made need not have been fsynced yet.
fn mismatches(names: &Names, there: &BTreeMap<String, There>, latest: u64, key: impl Fn(u64) -> u64) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, node) in names {
        match (node, there.get(name)) {
            (_, None) => wrong.push(format!("{name}: {node:?} is missing")),
            (Node::Directory, Some(There::Directory)) => {}
            (Node::Symlink { id }, Some(There::Symlink(to))) if *to == target(*id) => {}
            (Node::File { id, len, synced }, Some(There::File(bytes))) => {
                let right = content(key(*id), 0, usize::try_from(*len).expect("small"));
                if !right.starts_with(bytes) {
                    wrong.push(format!("{name}: the {} bytes are not those of {node:?}", bytes.len()));
                } else if *synced && *id + 1 < latest && bytes.len() < right.len() {
                    wrong.push(format!("{name}: {} bytes of {node:?}, which was fsynced", bytes.len()));
                }
            }
            (_, Some(_)) => wrong.push(format!("{name}: is not {node:?}")),
        }
    }
    wrong.extend(
        there.keys().filter(|name| !names.contains_key(*name)).map(|name| format!("{name}: should not be there")),
    );
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_state_passes_and_a_lost_name_does_not() {
        let (dir, log) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        crate::work::end(work(dir.path(), log.path(), 0, 1, Duration::from_millis(700))).unwrap();
        check(dir.path(), log.path(), 0, 1).unwrap();
        let side = dir.path().join("storm-0/left");
        File::create(side.join("extra")).unwrap();
        assert!(check(dir.path(), log.path(), 0, 1).unwrap_err().to_string().contains("should not be there"));
        fs::remove_file(side.join("extra")).unwrap();
        let entries = SIDES.into_iter().flat_map(|side| fs::read_dir(dir.path().join("storm-0").join(side)).unwrap());
        let one = entries.filter_map(Result::ok).find(|entry| entry.file_type().unwrap().is_file()).unwrap();
        fs::write(one.path(), "somebody else's bytes").unwrap();
        assert!(check(dir.path(), log.path(), 0, 1).is_err());
    }
}
