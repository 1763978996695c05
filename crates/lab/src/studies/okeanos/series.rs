//! The modes that Okeanos compares, and what its studies assume of them and of the disks.

use std::time::Duration;

use anyhow::Result;
use quire_fs::{Checkpoint, Choices, CommitMode, Options, Profile};
use quire_testkit::Model;

use crate::results::Findings;
use crate::rig::{Plan, Rig};

/// The series. The paper's are one ext3 with one way to commit, so they are compared with one way here; `auto` is ours.
/// In the last one an fsync writes earlier journaled blocks of the file home.
pub const SERIES: [(&str, Choices); 6] = [
    ("ext4-ordered", with_barrier(Profile::Ext4Ordered)),
    ("ext4-journal", with_barrier(Profile::Ext4Journal)),
    ("wasteless", with_barrier(Profile::Wasteless)),
    ("selective", with_barrier(Profile::Selective)),
    ("auto", Profile::Auto.choices()),
    ("journal, home at fsync", Choices { checkpoint: Checkpoint::Fsync, ..with_barrier(Profile::Ext4Journal) }),
];

/// The paper's third baseline, of figure 1 alone.
pub const WRITEBACK: (&str, Choices) = ("ext4-writeback", with_barrier(Profile::Ext4Writeback));

pub const ORDERED: usize = 0;
/// The one that the others are compared with.
pub const JOURNAL: usize = 1;
pub const WASTELESS: usize = 2;
pub const SELECTIVE: usize = 3;
/// Of the series, the paper's four and ours.
pub const APPLICATIONS: usize = 5;

/// A profile with the commit of ext3: a block of its own, which waits until the others are written.
const fn with_barrier(profile: Profile) -> Choices {
    Choices { commit: CommitMode::Barrier, ..profile.choices() }
}

#[must_use]
pub fn names() -> [&'static str; 6] {
    SERIES.map(|(name, _)| name)
}

/// What a call takes of a processor, of which there are enough. Without it the next commit's write would be there
/// before the disk has turned on, and no commit would wait for a turn.
pub const CALL: Duration = Duration::from_micros(20);

/// Bytes of an inode: ext3's default in 2011. A commit logs a block for 32 of them.
pub(in crate::studies) const INODE: &str = "128";

/// Where the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// On the disk of the data.
    Inside,
    /// On a disk of its own.
    Apart,
}

/// The paper's server with a file system of so many MiB in this mode. What was read or written before is in the page
/// cache above, which is what `cached` says.
///
/// # Errors
/// As [`Rig::new`].
pub fn server(choices: Choices, mib: u64, journal: Journal, cached: bool) -> Result<Rig> {
    Rig::new(&plan(choices, mib, journal, cached))
}

/// The rig of [`server`].
#[must_use]
pub fn plan(choices: Choices, mib: u64, journal: Journal, cached: bool) -> Plan {
    let model = Model { cached, ..Model::hdd_15k() };
    let external = journal == Journal::Apart;
    let mut plan = Plan { external, journal_mib: 128, mib, ..Plan::new(model, Profile::Ext4Ordered) };
    plan.mke2fs = ["-I", INODE].map(String::from).to_vec();
    plan.options = plan.options.with(choices);
    plan
}

/// What all of the paper's studies assume of the disks and of the modes.
pub fn assume_disks(findings: &mut Findings, journal: Journal) {
    let where_it_is = match journal {
        Journal::Inside => "one disk for data and journal",
        Journal::Apart => "two disks (data, journal)",
    };
    findings.assume(format!(
        "{where_it_is}: model hdd15k: next track 0.3 ms, mean seek 3.5 ms, turn 4 ms, 102 MB/s, no write cache, no elevator; the \
         paper's are Cheetah SAS 15,000 rpm"
    ));
    findings.assume(
        "ordered and journal are Quire's jbd2 log with a group commit, on ext4; the paper's are ext3 of Linux 2.6.18",
    );
    findings.assume(
        "wasteless and selective log the bytes in which a block differs from what it was; the paper copies each write, \
         whatever it changes, with a tag of its own (section 4)",
    );
    findings.assume(format!("inodes of {INODE} B (mke2fs -I {INODE}), 32 to a block, as ext3's default then"));
    findings.assume(format!(
        "the file system's own cache is of {} MiB where nothing else is said (the paper's server has 3 GB)",
        Options::default().cache_bytes >> 20
    ));
    findings.assume(
        "all series but auto commit one way: the commit block waits until the blocks before it are written, as jbd of \
         Linux 2.6.18 has it (commit_mode=barrier); the paper says nothing of barriers, and a flush costs nothing on \
         these disks, which have no write cache",
    );
}

/// What the studies of streams assume.
pub fn assumed(findings: &mut Findings) {
    assume_disks(findings, Journal::Apart);
    findings.assume(
        "a thread appends once a second; where nothing else is said, all begin together and the cache is of 1 GiB; \
         processors cost nothing; time is virtual",
    );
    findings.assume(
        "\"several\": three times; \"almost unchanged\": a tenth more or less; \"identical\": within a twentieth; an \
         order of magnitude: 10 to 100 times, two: 100 to 1,000",
    );
    findings.assume(
        "claims are of ext4-journal: a write with O_SYNC writes back its own range alone in Linux 2.6.18 \
         (sync_page_range), so earlier journaled blocks stay in memory; \"journal, home at fsync\" shows what an \
         fsync, which takes the whole file, would add",
    );
}
