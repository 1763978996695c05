//! Okeanos, section 6, on mounts: how long a mount takes after a power loss. The kernel's ext4 is shut down without a
//! flush of its log, Quire's process is killed; then both are mounted again, and once more when they are clean. What
//! the power loss adds to a clean mount is the recovery: the rest is processes and FUSE.
//!
//! *Guarantees*: all that the streams were told is durable is there after the recovery, or the study fails.

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::super::super::okeanos::recovery;
use super::super::super::streams::KBIT;
use super::super::appends::Appends;
use super::super::bed::{Fresh, Measured, Rounds, sync};
use super::super::{JOURNAL, SELECTIVE, WASTELESS};
use crate::mounter::Mounter;
use crate::results::{Claim, Effort, Figure, Findings};

/// Why the kernel's fast commits have no recovery here.
const FAST_COMMITS: &str = "recovery with the kernel's fast commits: after EXT4_IOC_SHUTDOWN files that were appended to \
    with O_SYNC came back shorter (3,500 of 12,500 bytes were there in one run)";
/// What a log that holds little does not make shorter (`strace quire mount`).
const FIXED: &str = "whatever the log holds, a mount of Quire's after a power loss reads the descriptors, the journal's \
    inode and its superblock once more than a clean one, and has three flushes more, one after the other; the fewer the \
    streams, the larger is this part";
/// Phases to each number of streams: the mount after the power loss, and the clean one.
const PHASES: usize = 2;

/// What streams do before the power loss.
pub(super) struct Work {
    /// How many there are.
    pub(super) counts: &'static [usize],
    pub(super) time: Duration,
}

impl Work {
    pub(super) fn new(effort: Effort) -> Self {
        Work {
            counts: effort.pick(&[400], &[100, 1000], &[100, 500, 1000]),
            time: Duration::from_secs(effort.pick(1, 1, 5)),
        }
    }
}

/// Whether a mounter's recovery is measured: without a journal there is none, and see [`FAST_COMMITS`].
fn is_measured(mounter: &Mounter) -> bool {
    mounter.feature().is_none()
}

/// Has so many streams of 1 Kbit/s write, and the power fail. Measures the mount after it and a clean one, in
/// milliseconds.
pub(super) fn measured(fresh: &Fresh<'_>, count: usize, time: Duration) -> Result<[Measured<f64>; PHASES]> {
    if !is_measured(fresh.mounter()) {
        let nothing = || fresh.measured(|| Ok(f64::NAN));
        return Ok([nothing()?, nothing()?]);
    }
    let streams = Appends::new(count, KBIT, time);
    let mut mounted = fresh.mount()?;
    streams.create(mounted.dir())?;
    sync(mounted.dir())?;
    let told = streams.run(mounted.dir())?.writes * KBIT as u64;
    mounted.kill()?;
    mounted.detach()?;
    let lost = mount(fresh, &streams, told)?;
    Ok([lost, mount(fresh, &streams, told)?])
}

/// Mounts until the root directory can be opened; the streams' files have so many bytes then.
fn mount(fresh: &Fresh<'_>, streams: &Appends, told: u64) -> Result<Measured<f64>> {
    let mut mounted = None;
    let measured = fresh.measured(|| {
        let began = Instant::now();
        let there = mounted.insert(fresh.mount()?);
        drop(File::open(there.dir())?);
        Ok(began.elapsed().as_secs_f64() * 1e3)
    })?;
    if let Some(mounted) = mounted {
        let found = streams.bytes_in(mounted.dir())?;
        ensure!(found == told, "{found} bytes are there after a power loss, and {told} were durable");
        mounted.unmount()?;
    }
    Ok(measured)
}

/// The phases of the number of streams at this place: after the power loss, and clean.
fn phases(first: usize, n: usize) -> [usize; PHASES] {
    [first + n * PHASES, first + n * PHASES + 1]
}

/// What the power loss adds to a clean mount, in milliseconds.
fn added(rounds: &Rounds<f64>, name: &str, [lost, clean]: [usize; PHASES]) -> f64 {
    rounds.median(name, lost, |m| m.of) - rounds.median(name, clean, |m| m.of)
}

/// The longer recovery of wasteless and selective in parts of data journaling's; NaN where one of them is not longer
/// than nothing, because then nothing is measured.
fn part(ours: [f64; 2], journal: f64) -> f64 {
    let is_measured = ours.iter().chain([&journal]).all(|ms| *ms > 0.0);
    if is_measured { ours[0].max(ours[1]) / journal } else { f64::NAN }
}

/// Adds the figures and the claim, of the phases from `first` on.
pub(super) fn add(f: &mut Findings, rounds: &Rounds<f64>, first: usize, work: &Work) {
    let at = "section 6, recovery";
    for (n, (id, what)) in
        [("", "Time to mount after a power loss"), ("-clean", "Time to mount when clean")].iter().enumerate()
    {
        let title = format!("{what}, streams of 1 Kbit/s, {} s, mounts", work.time.as_secs());
        let places =
            work.counts.iter().enumerate().map(|(count, streams)| (phases(first, count)[n], streams.to_string()));
        let figure = Figure::lines(&format!("okeanos-recovery-mounts{id}"), at, title, "streams", "ms");
        f.figures.push(rounds.drawn_along(figure, &places.collect::<Vec<_>>(), |m| m.of));
    }
    f.skipped.push(FAST_COMMITS.into());
    f.claims.extend(claims(rounds, first, work.counts.len()));
    f.assume(format!(
        "power loss: after {} s of streams the kernel's ext4 is shut down without a flush of its log \
         (EXT4_IOC_SHUTDOWN), Quire's process is killed; the recovery is what the next mount takes longer than a clean \
         one; it reads the log from the modelled disk; a file system without a journal recovers nothing",
        work.time.as_secs()
    ));
}

/// The longer recovery of wasteless and selective by data journaling's, with each number of streams.
fn claims(rounds: &Rounds<f64>, first: usize, counts: usize) -> [Claim; 2] {
    let parts = (0..counts).map(|n| {
        let phases = phases(first, n);
        part([WASTELESS, SELECTIVE].map(|name| added(rounds, name, phases)), added(rounds, JOURNAL, phases))
    });
    let what = "what a power loss adds to a clean mount: the longer / kernel journal";
    let [tends, some] = recovery::claims("section 6, recovery, on mounts", what, &parts.collect::<Vec<_>>());
    [tends.supposedly(FIXED), some]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::served::Asked;

    /// Of each mounter the mounts after a power loss and the clean ones, in ms, behind a phase of something else.
    fn judged(of: [(&str, [f64; 4]); 3]) -> [Claim; 2] {
        let measured = |of: f64| Measured { of, asked: Asked::default(), seconds: 1.0 };
        let round = |of: [f64; 4]| [f64::NAN].into_iter().chain(of).map(measured).collect();
        let rounds = of.map(|(name, of)| (name.to_owned(), vec![round(of)]));
        claims(&Rounds::of(rounds.into()), 1, 2)
    }

    #[test]
    fn recovery_is_what_a_power_loss_adds_in_the_case_in_which_it_is_shortest() {
        let journal = (JOURNAL, [110.0, 10.0, 210.0, 10.0]);
        let of = |wasteless, selective| judged([journal, (WASTELESS, wasteless), (SELECTIVE, selective)]);
        let [_, shorter] = of([140.0, 50.0, 200.0, 50.0], [120.0, 50.0, 190.0, 50.0]);
        assert_eq!((shorter.verdict, shorter.measured), (Verdict::Held, Some(0.75)));
        let [_, longer] = of([140.0, 50.0, 200.0, 50.0], [140.0, 50.0, 220.0, 50.0]);
        assert_eq!((longer.verdict, longer.measured), (Verdict::NotHeld, Some(0.85)));
    }

    #[test]
    fn what_has_no_journal_and_what_has_fast_commits_is_not_measured() {
        let of = |text: &str| is_measured(&text.parse().unwrap());
        assert!(of("kernel:data=journal") && of("quire:profile=auto"));
        assert!(!of("kernel:none") && !of("kernel:fast_commit"));
    }

    #[test]
    fn a_mount_that_is_no_longer_than_a_clean_one_measures_nothing() {
        let journal = (JOURNAL, [110.0, 10.0, 10.0, 10.0]);
        let [_, nothing] = judged([journal, (WASTELESS, [50.0; 4]), (SELECTIVE, [51.0, 50.0, 51.0, 50.0])]);
        assert_eq!((nothing.verdict, nothing.measured), (Verdict::NotHeld, None));
    }
}
