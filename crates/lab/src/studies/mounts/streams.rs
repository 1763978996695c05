//! Okeanos' streams on mounts (figures 4a, 4b and 4c): threads that append to a file of their own once a second, each
//! write `O_SYNC`.

mod fast;

use std::time::Duration;

use anyhow::Result;

use self::fast::{latency, most};
use super::super::okeanos::calibration::ORDERS;
use super::super::okeanos::series::INODE;
use super::super::streams::KBIT;
use super::appends::{Appends, Done};
use super::bed::{Bed, Measured, Rounds, sync};
use super::{
    FAST_COMMIT, HOME_AT_FSYNC, IN_MEMORY, JOURNAL, NONE, OF_OKEANOS, ORDERED, OWN_JOURNAL, SELECTIVE, WASTELESS,
    assume, mounters, only, rounds_of,
};
use crate::mounter::Mounter;
use crate::results::{ABOUT, Claim, Effort, Figure, Findings, with_one_row};
use crate::stats::float;

/// "Several times less".
const SEVERAL: f64 = 1.0 / 3.0;
/// "An order of magnitude": up to where the next one begins.
const ORDER: (f64, f64) = (10.0, 100.0);
/// "Approaches": so many times at most.
const APPROACHES: f64 = 2.0;
/// "Identical": within a twentieth, as in virtual time.
const IDENTICAL: f64 = 0.05;
/// Why the journal gets fewer bytes a second than the paper's.
const FEWER: &str = "the paper prints no number of streams, and these are fewer than \
     write 27 MB/s (okeanos-4a)";
/// Why a sentence of figure 4a may be true of another number of streams.
const NUMBER: &str =
    "the paper prints no number of streams; with more, more writers share a commit or wait for the next";

/// Those of 1 Kbit/s, which begin together.
fn slow_streams(count: usize, time: Duration) -> Appends {
    Appends::new(count, KBIT, time)
}

/// What figure 4b is measured of.
const OF_HOME: [&str; 7] = [NONE, ORDERED, JOURNAL, FAST_COMMIT, OWN_JOURNAL, WASTELESS, SELECTIVE];

/// Figures 4a, 4b and 4c.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let slow: &[usize] = effort.pick(&[1000], &[100, 1000], &[100, 500, 1000]);
    let fast: &[usize] = effort.pick(&[20], &[40, 100], &[20, 40, 60, 100, 150]);
    // With a disk of their own for the data more are needed to fill it.
    let apart: &[usize] = effort.pick(&[20], &[40, 100, 200, 300], &[40, 100, 150, 200, 250, 300]);
    let (time, of_slow) = (Duration::from_secs(effort.pick(1, 3, 10)), Duration::from_secs(effort.pick(1, 6, 10)));
    // As many as in virtual time, with the journal on another disk and files in runs of blocks.
    let both = effort.pick(20, 200, 200);
    let of_fast = fast.iter().map(|n| fast::streams_of(*n, time));
    let streams: Vec<Appends> = slow.iter().map(|n| slow_streams(*n, of_slow)).chain(of_fast).collect();
    // An eighth of a MiB is more than a write of 125,000 bytes.
    let written = fast.iter().sum::<usize>().max(apart.iter().sum()) as u64 * time.as_secs() / 8;
    let bed = Bed::new("hdd15k", 1024 + written, 128)?.with_inodes_of(INODE);
    let all = mounters(&OF_OKEANOS)?;
    let rounds = bed.rounds(
        rounds_of(effort),
        &all,
        |dir| streams.iter().try_for_each(|streams| streams.create(dir)),
        &streams,
        |dir, streams| streams.run(dir),
    )?;
    let figures = figures(&rounds, slow, fast, [of_slow, time]);
    let until_home: Vec<Appends> = slow.iter().map(|n| slow_streams(*n, of_slow * 2)).collect();
    let at_home = all_home(&bed, &all, &until_home)?;
    let mut claims = slow_claims(&rounds, &at_home, slow);
    let (otherwise, of_otherwise) = fast::otherwise(bed, &all, (streams[streams.len() - 1], apart, both), effort)?;
    let of_fast: Vec<(usize, usize)> = (slow.len()..).zip(fast.iter().copied()).collect();
    claims.extend(fast::claims(&rounds, &of_fast, &otherwise));
    let mut f = Findings { figures, claims, ..Findings::default() };
    f.figures.push(figure_of_home(&at_home, &until_home));
    f.figures.extend(of_otherwise);
    assume(&mut f, effort, "hdd15k");
    assume_streams(&mut f, [of_slow, time]);
    f.skipped.push(super::super::NILFS.into());
    Ok(f)
}

/// What these studies assume beside the others on mounts; `times` are those of slow and of fast streams.
fn assume_streams(f: &mut Findings, times: [Duration; 2]) {
    f.assume(
        "data and journal on one disk of the model hdd15k, without a write cache, so a barrier costs no flush but the \
         turn that the commit block waits; the paper's journal is on another disk, and it says nothing of barriers; \
         inodes are of 128 B, ext3's default then",
    );
    f.assume(format!(
        "an append a second for {} s (1 Kbit/s, begun together) and {} s (1 Mbit/s, begun within a second); files are \
         there before; the kernel's ext4 has no wasteless and no selective mode: these are Quire's, with \
         commit_mode=barrier, the kernel's way to commit",
        times[0].as_secs(),
        times[1].as_secs()
    ));
    f.assume(
        "in okeanos-4c-run-mounts and okeanos-4c-disks-run-mounts files have space before, so many blocks of each in \
         turn, and are appended to alike: an append there also makes an extent written",
    );
    f.assume(
        "figure 4b is of one round; it counts what an unmount writes home, too, because runs are shorter than the 30 s \
         after which blocks go home by their age: blocks that are written again later than that are written home once here",
    );
    f.assume(
        "the paper prints no number of streams; there are fewer here than in okeanos-slow, because one disk has data \
         and journal; claims of figures 4a and 4b are of the most of them, those of 4c of the number at which each is \
         strongest",
    );
    f.assume(format!(
        "shares of figure 4a are of MB/s, as the paper draws them: with many streams data journaling does not keep up \
         with a write a second, and its share is smaller (to a write: okeanos-4a-write-mounts); those of figure 4b are of \
         bytes to a write; an order of \
         magnitude: {} to {} times; orders of magnitude: {ORDERS} times; \"several\": three times; \"approaches\": at \
         most {APPROACHES} times; \"identical\": within a twentieth",
        ORDER.0, ORDER.1
    ));
}

/// Figure 4b: one round, with what an unmount writes home. The paper's dirty blocks go home when they are 30 s old.
fn all_home(bed: &Bed, all: &[Mounter], streams: &[Appends]) -> Result<Rounds<Done>> {
    bed.each(1, &only(all, &OF_HOME), |fresh| {
        let of_streams = |streams: &Appends| {
            let mounted = fresh.mount()?;
            streams.create(mounted.dir())?;
            sync(mounted.dir())?;
            fresh.measured(|| {
                let done = streams.run(mounted.dir())?;
                mounted.unmount()?;
                Ok(done)
            })
        };
        streams.iter().map(of_streams).collect()
    })
}

fn figure_of_home(rounds: &Rounds<Done>, streams: &[Appends]) -> Figure {
    let time = streams[0].time.as_secs();
    let title = format!("Bytes to the file system to a write, streams of 1 Kbit/s, {time} s and an unmount, mounts");
    let figure = Figure::bars("okeanos-4b-mounts", "figure 4b", title, "mount", "KB").logarithmic();
    let figure = figure.of_series(streams.iter().map(|streams| format!("{} streams", streams.count)));
    let phases: Vec<usize> = (0..streams.len()).collect();
    rounds.drawn(figure, &phases, |m| home(m) / 1e3).turned("number")
}

/// MB a second to the journal.
fn journal_rate(m: &Measured<Done>) -> f64 {
    float(m.asked.journal_bytes) / 1e6 / m.seconds.max(m.of.time)
}

/// Bytes to a write.
fn logged(m: &Measured<Done>) -> f64 {
    float(m.asked.journal_bytes) / float(m.of.writes)
}

/// The same, to the file system.
fn home(m: &Measured<Done>) -> f64 {
    float(m.asked.written_bytes - m.asked.journal_bytes) / float(m.of.writes)
}

fn figures(rounds: &Rounds<Done>, slow: &[usize], fast: &[usize], times: [Duration; 2]) -> Vec<Figure> {
    let figure = |id: &str, of: &str, what: &str, y: &str, (rate, time, counts): (&str, Duration, &[usize])| {
        let title = format!("{what}, streams of {rate}, {} s, mounts", time.as_secs());
        let series = counts.iter().map(|n| format!("{n} streams"));
        Figure::bars(&format!("okeanos-{id}-mounts"), of, title, "mount", y).logarithmic().of_series(series)
    };
    let phases: Vec<usize> = (0..slow.len() + fast.len()).collect();
    let (of_slow, of_fast) = phases.split_at(slow.len());
    let (small, large) = (("1 Kbit/s", times[0], slow), ("1 Mbit/s", times[1], fast));
    let rate = figure("4a", "figure 4a", "Bytes to the journal", "MB/s", small);
    let journal = figure("4a-write", "figure 4a", "Bytes to the journal to a write", "KB", small);
    let mean_of_slow = figure("4a-latency", "figure 4a, latency", "Mean latency of a write", "ms", small);
    let mean = figure("4c", "figure 4c", "Mean latency of a write", "ms", large);
    let figures = [
        rounds.drawn(rate, of_slow, journal_rate),
        rounds.drawn(journal, of_slow, |m| logged(m) / 1e3),
        rounds.drawn(mean_of_slow, of_slow, latency),
        rounds.drawn(mean, of_fast, latency),
    ];
    figures.map(|figure| figure.turned("number")).into()
}

/// Figures 4a and 4b and the latency, with the most streams of 1 Kbit/s; `counts` are those of the phases. What is home
/// after an unmount is in `at_home`.
fn slow_claims(rounds: &Rounds<Done>, at_home: &Rounds<Done>, counts: &[usize]) -> Vec<Claim> {
    let phase = counts.len() - 1;
    let at = |what: &str| format!("{} streams: {what}", counts[phase]);
    let rates = [
        Claim::about(
            "figure 4a, on mounts",
            "data journaling writes up to 27 MB/s to the journal",
            at("kernel journal, MB/s"),
            rounds.median(JOURNAL, phase, journal_rate),
            ("27", ABOUT),
        )
        .supposedly(FEWER),
        Claim::about(
            "figure 4a, on mounts",
            "wasteless and selective write up to about 4 MB/s",
            at("the higher of both, MB/s"),
            most(rounds, phase, &[WASTELESS, SELECTIVE], journal_rate),
            ("4", ABOUT),
        )
        .supposedly(FEWER),
    ];
    let (values, otherwise): (Vec<_>, Vec<_>) = others(counts).into_iter().unzip();
    let row = |(journal, phase)| shares(rounds, at_home, journal, phase);
    let rows: Vec<_> = otherwise.into_iter().map(row).collect();
    let claims = claims_of_shares(row((JOURNAL, phase)), at);
    rates.into_iter().chain(with_one_row(&format!("{NUMBER}; {HOME_AT_FSYNC}"), &values, claims, &rows)).collect()
}

/// What may be otherwise, in words: the data journaling, and the phase with its number of streams, each alone and both.
fn others(counts: &[usize]) -> Vec<(String, (&'static str, usize))> {
    let last = counts.len() - 1;
    let fewer = (0..last).map(|phase| (format!("{} streams", counts[phase]), phase));
    let fewer: Vec<(String, usize)> = fewer.collect();
    let together = |(name, phase): &(String, usize)| (format!("{IN_MEMORY} and {name}"), (OWN_JOURNAL, *phase));
    let alone = fewer.iter().map(|(name, phase)| (name.clone(), (JOURNAL, *phase)));
    let journal = std::iter::once((IN_MEMORY.to_owned(), (OWN_JOURNAL, last)));
    alone.chain(journal).chain(fewer.iter().map(together)).collect()
}

/// What the claims of figures 4a and 4b that compare modes are of, with this data journaling and in this phase. What
/// wrote nothing home was not measured.
fn shares(rounds: &Rounds<Done>, at_home: &Rounds<Done>, journal: &str, phase: usize) -> [f64; 5] {
    let of_home = |name| Some(at_home.median(name, phase, home)).filter(|bytes| *bytes > 0.0).unwrap_or(f64::NAN);
    [
        rounds.median(journal, phase, journal_rate)
            / most(rounds, phase, &[ORDERED, WASTELESS, SELECTIVE], journal_rate),
        most(rounds, phase, &[WASTELESS, SELECTIVE], journal_rate) / rounds.median(ORDERED, phase, journal_rate),
        rounds.median(SELECTIVE, phase, latency) / rounds.median(WASTELESS, phase, latency),
        more(of_home(WASTELESS), of_home(SELECTIVE)) / of_home(ORDERED),
        of_home(journal) / of_home(ORDERED),
    ]
}

/// Those of figures 4a and 4b that compare modes, of [`shares`].
fn claims_of_shares(figures: [f64; 5], at: impl Fn(&str) -> String) -> [Claim; 5] {
    let [times_others, times_ordered, apart, of_both, of_journal] = figures;
    [
        Claim::between(
            "figure 4a, on mounts",
            "data journaling is an order of magnitude above all other modes",
            at("kernel journal / the highest of kernel ordered, wasteless, selective, MB/s"),
            times_others,
            ORDER,
        ),
        Claim::at_most(
            "figure 4a, caption, on mounts",
            "wasteless and selective approach ordered",
            at("the higher of both / kernel ordered, MB/s"),
            times_ordered,
            APPROACHES,
        ),
        Claim::about(
            "figure 4a, latency, on mounts",
            "at 1 Kbit/s selective tends to become identical to wasteless",
            at("mean latency, selective / wasteless"),
            apart,
            (1.0, IDENTICAL),
        ),
        Claim::at_most(
            "figure 4b, on mounts",
            "wasteless and selective write several times less to the file system than ordered",
            at("the more of both / kernel ordered, to a write"),
            of_both,
            SEVERAL,
        ),
        Claim::at_most(
            "figure 4b, on mounts",
            "so does data journaling",
            at("kernel journal / kernel ordered, to a write"),
            of_journal,
            SEVERAL,
        ),
    ]
}

/// NaN if one is.
fn more(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::served::Asked;
    use crate::stats::Spread;

    /// One round of these mounters: of each phase the bytes to the journal, and the mean latency in ms, of 100 writes.
    pub(super) fn rounds(of: &[(&str, &[(u64, f64)])]) -> Rounds<Done> {
        rounds_in(of, 1.0)
    }

    /// The same, with phases of so many seconds.
    fn rounds_in(of: &[(&str, &[(u64, f64)])], seconds: f64) -> Rounds<Done> {
        let measured = |(bytes, mean): &(u64, f64)| {
            let asked = Asked { journal_bytes: *bytes, written_bytes: *bytes, ..Asked::default() };
            let latency = Spread { mean: *mean, ..Spread::default() };
            Measured { of: Done { time: 1.0, writes: 100, latency }, asked, seconds }
        };
        let phases = |of: &[(u64, f64)]| vec![of.iter().map(measured).collect()];
        Rounds::of(of.iter().map(|(name, of)| ((*name).to_owned(), phases(of))).collect())
    }

    /// What ordered, data journaling, one that leaves blocks in memory, wasteless and selective write home, in each of
    /// so many phases.
    fn homes(of: [u64; 5], phases: usize) -> Rounds<Done> {
        let measured = |bytes| {
            let asked = Asked { written_bytes: bytes, ..Asked::default() };
            let of = Done { time: 1.0, writes: 100, latency: Spread::default() };
            Measured { of, asked, seconds: 1.0 }
        };
        let names = [ORDERED, JOURNAL, OWN_JOURNAL, WASTELESS, SELECTIVE];
        let phases = |bytes| vec![(0..phases).map(|_| measured(bytes)).collect()];
        Rounds::of(names.into_iter().zip(of).map(|(name, bytes)| (name.to_owned(), phases(bytes))).collect())
    }

    const HOME: [u64; 5] = [40_000, 9000, 9000, 1000, 900];

    fn verdicts(claims: &[Claim]) -> Vec<Verdict> {
        claims.iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn claims_of_slow_streams_are_of_what_is_logged_a_second() {
        let of = |journal, seconds| {
            let all: [(&str, &[_]); 4] = [
                (ORDERED, &[(50_000, 9.0)]),
                (JOURNAL, &[(journal, 9.0)]),
                (WASTELESS, &[(60_000, 1.0)]),
                (SELECTIVE, &[(60_000, 1.0)]),
            ];
            verdicts(&slow_claims(&rounds_in(&all, seconds), &homes(HOME, 1), &[100]))
        };
        let (held, not) = (Verdict::Held, Verdict::NotHeld);
        assert_eq!(of(600_000, 1.0)[..5], [not, not, held, held, held], "that more streams write more is supposed");
        assert_eq!(of(500_000, 1.0)[..5], [not, not, not, held, held], "8.3 times has no cause");
        assert_eq!(of(500_000, 1.0)[5..], [held, held]);
        assert_eq!(of(27_000_000, 1.0)[0], held);
        assert_eq!(of(27_000_000, 2.0)[0], not, "as many bytes in two seconds");
        assert_eq!(of(27_000_000, 0.8)[0], held, "the last second counts to its end");
    }

    /// The paper prints no number of streams: fewer of them may be an order of magnitude apart, and as long.
    #[test]
    fn a_number_of_streams_of_which_a_sentence_is_true_is_the_cause_where_it_is_not() {
        let of = |fewer: u64, wait: f64| {
            let all: [(&str, &[_]); 4] = [
                (ORDERED, &[(30_000, 9.0), (50_000, 9.0)]),
                (JOURNAL, &[(fewer, 9.0), (500_000, 9.0)]),
                (WASTELESS, &[(50_000, 1.0), (60_000, 1.0)]),
                (SELECTIVE, &[(50_000, wait), (60_000, 1.2)]),
            ];
            verdicts(&slow_claims(&rounds(&all), &homes(HOME, 2), &[100, 1000]))
        };
        let (differs, not) = (Verdict::Differs, Verdict::NotHeld);
        assert_eq!(of(520_000, 1.0)[2], differs);
        assert_eq!(of(480_000, 1.0)[2], not);
        assert_eq!([of(520_000, 1.0)[4], of(520_000, 1.2)[4]], [differs, not]);
    }

    /// Figures 4a and 4b are one group: what is said of either is judged by the same data journaling.
    #[test]
    fn data_journaling_that_leaves_blocks_in_memory_is_a_cause_for_figures_4a_and_4b_or_for_neither() {
        let of = |own: u64, at_home: [u64; 5]| {
            let all: [(&str, &[_]); 5] = [
                (ORDERED, &[(50_000, 9.0)]),
                (JOURNAL, &[(300_000, 9.0)]),
                (OWN_JOURNAL, &[(own, 1.0)]),
                (WASTELESS, &[(60_000, 1.0)]),
                (SELECTIVE, &[(60_000, 1.0)]),
            ];
            let claims = slow_claims(&rounds(&all), &homes(at_home, 1), &[1000]);
            [2, 5, 6].map(|n| claims[n].verdict)
        };
        use Verdict::{Differs, Held, NotHeld};
        let [good, bad] = [1000, 40_000];
        assert_eq!(of(660_000, [40_000, bad, good, 1000, 900]), [Differs, Held, Differs]);
        assert_eq!(of(540_000, [40_000, bad, good, 1000, 900]), [NotHeld, Held, Differs]);
        assert_eq!(of(660_000, [40_000, good, bad, 1000, 900]), [NotHeld, Held, Held], "it loses figure 4b's");
        assert_eq!(of(660_000, [40_000, bad, good, 20_000, 900]), [Differs, NotHeld, Differs]);
        assert_eq!(of(540_000, [40_000, bad, 0, 0, 900]), [NotHeld; 3], "nothing went home");
    }

    #[test]
    fn fewer_streams_and_another_data_journaling_are_tried_alone_and_together() {
        let names: Vec<String> = others(&[100, 1000]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["100 streams".to_owned(), IN_MEMORY.into(), format!("{IN_MEMORY} and 100 streams")]);
    }
}
