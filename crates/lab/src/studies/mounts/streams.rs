//! Okeanos' streams on mounts (figures 4a, 4b and 4c): threads that append to a file of their own once a second, each
//! write `O_SYNC`.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use quire_testkit::rng::content;
use rustix::fs::OFlags;

use super::super::okeanos::{RUN, calibration::of_run};
use super::super::streams::{KBIT, MBIT, PERIOD};
use super::bed::{Bed, Measured, Rounds};
use super::{HOME_AT_FSYNC, JOURNAL, ORDERED, SELECTIVE, WASTELESS, assume, mounters, rounds_of};
use crate::results::{Claim, Effort, Figure, Findings};
use crate::stats::{Spread, float};

/// Memory of a thread's stack: there are a thousand.
const STACK: usize = 256 << 10;

/// The paper's modes; Okeanos' commit with a barrier, as the kernel and the paper's one ext3 do.
const QUIRE: [&str; 4] = [
    "profile=ext4-ordered",
    "profile=ext4-journal",
    "profile=wasteless,commit_mode=barrier",
    "profile=selective,commit_mode=barrier",
];

/// "Several times less".
const SEVERAL: f64 = 1.0 / 3.0;
/// Why the kernel's data journaling writes fewer bytes than the paper's.
const SHARED: &str = "27 MB/s are seven blocks to each of a thousand writes a second; all writers that wait share a commit here, \
     so a write logs little more than its block, and one disk, which has the data too, takes fewer writes a second";
/// Bytes of a block of the file system.
const BLOCK: f64 = 4096.0;

/// Streams: how many, and the bytes of each write.
type Kind = (usize, usize);

/// What the streams did: their writes, and the latencies of these, in milliseconds.
struct Done {
    writes: u64,
    latency: Spread,
}

fn path(dir: &Path, (count, bytes): Kind, n: usize) -> PathBuf {
    dir.join(format!("{count}-{bytes}-stream-{n}"))
}

/// The files of all streams, empty.
fn create(dir: &Path, kinds: &[Kind]) -> Result<()> {
    let paths = kinds.iter().flat_map(|kind| (0..kind.0).map(|n| path(dir, *kind, n)));
    paths.into_iter().try_for_each(|path| Ok(File::create(path).map(drop)?))
}

fn run(dir: &Path, kind: Kind, time: Duration) -> Result<Done> {
    let start = Instant::now();
    let latencies = std::thread::scope(|scope| {
        let spawn = |n: usize| {
            let path = path(dir, kind, n);
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || append(&path, n, kind.1, start, time))
        };
        let threads: Vec<_> = (0..kind.0).map(spawn).collect::<std::io::Result<_>>()?;
        threads.into_iter().map(|t| t.join().expect("a stream panicked")).collect::<Result<Vec<Vec<f64>>>>()
    })?;
    let latencies = latencies.concat();
    Ok(Done { writes: latencies.len() as u64, latency: Spread::of(latencies) })
}

fn append(path: &Path, n: usize, bytes: usize, start: Instant, time: Duration) -> Result<Vec<f64>> {
    let synced = i32::try_from(OFlags::SYNC.bits())?;
    let mut file = File::options().append(true).custom_flags(synced).open(path)?;
    let (mut next, mut at, mut latencies) = (Duration::ZERO, 0, Vec::new());
    while next < time {
        std::thread::sleep(next.saturating_sub(start.elapsed()));
        let began = Instant::now();
        file.write_all(&content(n as u64, at, bytes))?;
        latencies.push(began.elapsed().as_secs_f64() * 1e3);
        at += bytes as u64;
        next = (next + PERIOD).max(start.elapsed());
    }
    Ok(latencies)
}

/// Figures 4a, 4b and 4c.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let slow: &[usize] = effort.pick(&[1000], &[100, 1000], &[100, 500, 1000]);
    let fast: &[usize] = effort.pick(&[20], &[40], &[10, 20, 40]);
    let (time, of_slow) = (Duration::from_secs(effort.pick(1, 3, 10)), Duration::from_secs(effort.pick(2, 6, 10)));
    let kinds: Vec<Kind> = slow.iter().map(|n| (*n, KBIT)).chain(fast.iter().map(|n| (*n, MBIT))).collect();
    let bed = Bed::new("hdd15k", 1024 + 40 * time.as_secs() / 8, 128)?;
    let rounds = bed.rounds(
        rounds_of(effort),
        &mounters(&QUIRE)?,
        |dir| create(dir, &kinds),
        &kinds,
        |dir, kind| run(dir, kind, if kind.1 == KBIT { of_slow } else { time }),
    )?;
    let figures = figures(&rounds, slow, fast, [of_slow, time]);
    let mut claims = slow_claims(&rounds, slow.len() - 1, slow[slow.len() - 1]);
    claims.extend(home_claims(&rounds, slow.len() - 1, slow[slow.len() - 1]));
    let (_, swept) = of_run(effort, u64::try_from(fast[fast.len() - 1])?)?;
    claims.extend(fast_claims(&rounds, kinds.len() - 1, fast[fast.len() - 1], &swept));
    let mut f = Findings { figures, claims, ..Findings::default() };
    assume(&mut f, effort);
    f.assume(
        "data and journal on one disk of the model hdd15k, without a write cache, so a barrier costs no flush but the \
         turn that the commit block waits; the paper's journal is on another disk",
    );
    f.assume(format!(
        "an append a second for {} s (1 Kbit/s) and {} s; files are there before; the kernel's ext4 has no wasteless and no selective mode: \
         these are Quire's, with commit_mode=barrier, the kernel's way to commit",
        of_slow.as_secs(),
        time.as_secs()
    ));
    f.assume(
        "shares of bytes are of bytes to a write, because not every mount keeps up with a write a second; an order of \
         magnitude: as much as 27 MB/s and 4; orders of magnitude: a hundred times; \"several\": three times; \"identical\": within a \
         twentieth",
    );
    f.skipped.push(super::super::NILFS.into());
    Ok(f)
}

fn journal_rate(m: &Measured<Done>) -> f64 {
    float(m.asked.journal_bytes) / 1e6 / m.seconds
}

/// Bytes to a write.
fn logged(m: &Measured<Done>) -> f64 {
    float(m.asked.journal_bytes) / float(m.of.writes)
}

/// The same, to the file system.
fn home(m: &Measured<Done>) -> f64 {
    float(m.asked.written_bytes - m.asked.journal_bytes) / float(m.of.writes)
}

fn latency(m: &Measured<Done>) -> f64 {
    m.of.latency.mean
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
    let fs = figure("4b", "figure 4b", "Bytes to the file system to a write", "KB", small);
    let mean = figure("4c", "figure 4c", "Mean latency of a write", "ms", large);
    vec![
        rounds.drawn(rate, of_slow, journal_rate),
        rounds.drawn(journal, of_slow, |m| logged(m) / 1e3),
        rounds.drawn(fs, of_slow, |m| home(m) / 1e3),
        rounds.drawn(mean, of_fast, latency),
    ]
}

/// Figure 4a and the latency, with the most streams of 1 Kbit/s.
fn slow_claims(rounds: &Rounds<Done>, phase: usize, count: usize) -> Vec<Claim> {
    let at = |what: &str| format!("{count} streams: {what}");
    let most = |names: &[&str], of: fn(&Measured<Done>) -> f64| {
        names.iter().map(|name| rounds.median(name, phase, of)).fold(f64::NAN, f64::max)
    };
    let median = |name, of: fn(&Measured<Done>) -> f64| rounds.median(name, phase, of);
    let okeanos = [WASTELESS, SELECTIVE];
    vec![
        Claim::at_least(
            "figure 4a, on mounts",
            "data journaling writes up to 27 MB/s to the journal",
            at("kernel journal, MB/s"),
            median(JOURNAL, journal_rate),
            "27",
        )
        .because_within(BLOCK / 1e6 * median(JOURNAL, |m| float(m.of.writes) / m.seconds)..=27.0, SHARED),
        Claim::at_most(
            "figure 4a, on mounts",
            "wasteless and selective stay at about 4 MB/s",
            at("the higher of both, MB/s"),
            most(&okeanos, journal_rate),
            "4",
        ),
        Claim::at_most(
            "figure 4a, on mounts",
            "they write 4 / 27 of data journaling's bytes",
            at("the higher of both / kernel journal, to a write"),
            most(&okeanos, logged) / median(JOURNAL, logged),
            "0.148",
        ),
        Claim::at_least(
            "figure 4a, on mounts",
            "data journaling is an order of magnitude above all other modes",
            at("kernel journal / the highest of kernel ordered, wasteless, selective, to a write"),
            median(JOURNAL, logged) / most(&[ORDERED, WASTELESS, SELECTIVE], logged),
            27.0 / 4.0,
        ),
        Claim::at_most(
            "section 6, on mounts",
            "at 1 Kbit/s selective tends to become identical to wasteless in latency",
            at("the longer of both / the shorter"),
            most(&okeanos, latency) / okeanos.map(|name| median(name, latency)).into_iter().fold(f64::NAN, f64::min),
            1.05,
        ),
    ]
}

/// Figure 4b, with the same.
fn home_claims(rounds: &Rounds<Done>, phase: usize, count: usize) -> [Claim; 2] {
    let median = |name| rounds.median(name, phase, home);
    // What a block to each write is of ordered's bytes.
    let block = BLOCK / median(ORDERED);
    [
        Claim::at_most(
            "figure 4b, on mounts",
            "wasteless and selective write several times less to the file system than ordered",
            format!("{count} streams: the more of both / kernel ordered, to a write"),
            median(WASTELESS).max(median(SELECTIVE)) / median(ORDERED),
            SEVERAL,
        ),
        Claim::at_most(
            "figure 4b, on mounts",
            "so does data journaling",
            format!("{count} streams: kernel journal / kernel ordered, to a write"),
            median(JOURNAL) / median(ORDERED),
            SEVERAL,
        )
        .because_within(SEVERAL..=SEVERAL + block, HOME_AT_FSYNC),
    ]
}

/// Figure 4c, with the most streams of 1 Mbit/s. `swept` has ordered's and selective's parts in virtual time, by how
/// many blocks of a file lie side by side.
fn fast_claims(rounds: &Rounds<Done>, phase: usize, count: usize, swept: &[Vec<f64>; 2]) -> [Claim; 2] {
    let mean = |name| rounds.median(name, phase, latency);
    let others = mean(JOURNAL).max(mean(WASTELESS));
    let claim = |says, name, swept: &[f64]| {
        let what = format!("{count} streams: {name} / the longer of kernel journal and quire wasteless");
        let why = format!("{RUN} (swept in virtual time: okeanos-4c-run)");
        Claim::at_least("figure 4c, on mounts", says, what, mean(name) / others, 100.0).calibrated(swept, &why)
    };
    let [ordered, selective] = swept;
    [
        claim("ordered's latency is orders of magnitude above data journaling's and wasteless's", ORDERED, ordered),
        claim("selective's latency is orders of magnitude above theirs, too", SELECTIVE, selective),
    ]
}
