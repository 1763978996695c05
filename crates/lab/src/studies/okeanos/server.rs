//! Okeanos, figures 5c and 5d (USENIX ATC '11): the data server of a parallel file system under an MPI-IO benchmark.
//! Each process writes 1,024 bytes at a time to a file of its own, and the server makes each write durable before it
//! answers; on one modelled 15,000 rpm disk with the journal on it, in virtual time.
//!
//! The paper's server is PVFS2's, with thirteen clients; here the server's part stands alone: its I/O threads take the
//! requests in turn. `make bench-clusters` runs GlusterFS, whose bricks do the same, on real mounts (docs/clusters.md).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use quire_fs::Choices;
use quire_testkit::rng::content;

use super::series::{
    APPLICATIONS, CALL, JOURNAL, Journal, ORDERED, SELECTIVE, SERIES, WASTELESS, assume_disks, server,
};
use crate::results::{Claim, Effort, Figure, Findings, with_one_row};
use crate::rig::{Body, Traffic};
use crate::stage::{Durability, Stage};
use crate::stats::float;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Each with a file of its own.
    pub processes: u64,
    /// Of all processes.
    pub writes: u64,
    /// What a write takes beside the disk of data and journal.
    pub beside: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Of data, in MB a second.
    pub rate: f64,
    pub traffic: Traffic,
}

/// Bytes of a write.
pub const WRITE: u64 = 1024;
/// Threads of the server that do I/O at once: PVFS2's default (`TroveMaxConcurrentIO`).
pub const IO_THREADS: u64 = 16;

/// Runs the server in this mode, in virtual time.
///
/// # Errors
/// The file system fails.
pub fn run(choices: Choices, work: Work) -> Result<Outcome> {
    let mib = 512 + ((work.writes * WRITE) >> 20) * 2;
    let rig = server(choices, mib, Journal::Inside, true)?;
    let files = prepare(&rig, work)?;
    rig.settle()?;
    let before = rig.counted();
    let rate = serve(&rig, &files, work)?;
    // What is still to go home belongs to the run, too.
    rig.settle()?;
    let traffic = rig.traffic(&before);
    rig.close()?;
    Ok(Outcome { rate, traffic })
}

/// Makes the processes' files.
///
/// # Errors
/// The file system fails.
pub fn prepare<S: Stage>(stage: &S, work: Work) -> Result<Vec<S::File>> {
    (0..work.processes).map(|n| stage.create(&format!("process-{n}"))).collect()
}

/// Serves all writes, with the files open throughout; returns MB of data a second.
///
/// # Errors
/// The file system fails.
pub fn serve<S: Stage>(stage: &S, files: &[S::File], work: Work) -> Result<f64> {
    let open: Vec<S::Open> = files.iter().map(|file| stage.open(file, Durability::EachWrite)).collect::<Result<_>>()?;
    let (start, next) = (stage.now(), AtomicU64::new(0));
    let bodies = (0..IO_THREADS).map(|_| {
        let (open, next) = (&open[..], &next);
        Box::new(move || thread(stage, open, next, work)) as Body<'_, Result<()>>
    });
    stage.run(bodies.collect())?;
    Ok(float(work.writes * WRITE) / 1e6 / (stage.now() - start).as_secs_f64())
}

/// One thread of the server: the next process' next write, and what makes it durable.
fn thread<S: Stage>(stage: &S, files: &[S::Open], next: &AtomicU64, work: Work) -> Result<()> {
    let processes = files.len() as u64;
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= work.writes {
            return Ok(());
        }
        let (process, at) = (n % processes, n / processes * WRITE);
        let data = content(process, at, usize::try_from(WRITE)?);
        stage.sleep_until(stage.now() + work.beside);
        stage.write(&files[usize::try_from(process)?], at, &data)?;
    }
}

/// Figures 5c and 5d.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let counts: &[u64] = effort.pick(&[52, 520], &[52, 260, 520], &[52, 104, 208, 312, 416, 520]);
    let writes = effort.pick(5_200, 26_000, 65_000);
    let title = |what: &str| format!("{what}: {writes} synchronous writes of 1,024 B");
    let series = || SERIES[..APPLICATIONS].iter().map(|(name, _)| name);
    let mut rate =
        Figure::lines("okeanos-5c", "figure 5c", title("Data server"), "processes", "MB/s").of_series(series());
    let mut journal =
        Figure::lines("okeanos-5d-journal", "figure 5d", title("Bytes to the journal"), "processes", "MB")
            .of_series(series());
    let mut home = Figure::lines(
        "okeanos-5d-final",
        "figure 5d",
        title("Bytes to the file system until all is home"),
        "processes",
        "MB",
    )
    .of_series(series());
    let mut last = Vec::new();
    for count in counts {
        let work = Work { processes: *count, writes, beside: CALL };
        let row: Vec<Outcome> = SERIES[..APPLICATIONS].iter().map(|(_, c)| run(*c, work)).collect::<Result<_>>()?;
        rate.place(count, row.iter().map(|o| o.rate));
        journal.place(count, row.iter().map(|o| float(o.traffic.journal) / 1e6));
        home.place(count, row.iter().map(|o| float(o.traffic.fs) / 1e6));
        last = row;
    }
    let (by_beside, swept) = by_what_is_beside(effort, counts[counts.len() - 1])?;
    let mut f = Findings { figures: vec![rate, journal, home], ..Findings::default() };
    f.figures.extend(by_beside);
    assume_disks(&mut f, Journal::Inside);
    f.assume(format!(
        "the server's {IO_THREADS} I/O threads (PVFS2's default) take the processes' {writes} writes in turn (the \
         paper: 65000, which is read as of all together); data and journal on one disk, as the paper's; metadata \
         (BerkeleyDB) on another, which is not here; a write takes {CALL:?} of a \
         processor, the network nothing"
    ));
    f.assume("\"almost doubles\": 1.8 to 2 times; claims are of the most processes");
    f.claims = claims(&last, &swept);
    Ok(f)
}

/// What wasteless writes less to the journal than data journaling, in per cent, and in parts.
pub(in super::super) const LESS: (f64, &str) = (-42.0, "0.58");
/// The parts as a number.
pub(in super::super) const LESS_PRINTED: f64 = 0.58;

/// What the caption says of both.
pub(in super::super) const LESS_THAN_OTHERS: &str = "selective and wasteless incur less traffic than the others";

/// What a write may take beside the disk, in milliseconds.
pub(in super::super) const BESIDE: [u64; 5] = [0, 5, 10, 20, 40];

/// How many times as fast wasteless is, and what it writes to the journal, by what a write takes beside the disk; and
/// what all modes came to with each of [`BESIDE`].
fn by_what_is_beside(effort: Effort, processes: u64) -> Result<([Figure; 2], Vec<Vec<Outcome>>)> {
    let of = |what: &str| format!("{what} by what a write takes beside the disk, {processes} processes (calibration)");
    let (series, shares) = ("wasteless / ext4-ordered", "journal bytes, wasteless / ext4-journal");
    let figure = |id: &str, of: &str, title: String, series: &str| {
        Figure::lines(id, of, title, "beside, ms", "times").of_series([series])
    };
    let mut rates = figure("okeanos-5c-beside", "figure 5c", of("Data server"), series);
    let mut bytes = figure("okeanos-5d-beside", "figure 5d", of("Bytes to the journal"), shares);
    let mut swept = Vec::new();
    for ms in BESIDE {
        let beside = CALL + Duration::from_millis(ms);
        let work = Work { processes, writes: effort.pick(2_600, 5_200, 13_000), beside };
        let row: Vec<Outcome> = SERIES[..APPLICATIONS].iter().map(|(_, c)| run(*c, work)).collect::<Result<_>>()?;
        rates.place(ms, [row[WASTELESS].rate / row[ORDERED].rate]);
        rates.printed(ms, series, 2.0);
        bytes.place(ms, [journal_share(&row)]);
        bytes.printed(ms, shares, LESS_PRINTED);
        swept.push(row);
    }
    Ok(([rates, bytes], swept))
}

/// Why selective is as wasteless here.
pub(in super::super) const BELOW_THRESHOLD: &str = "a write of 1,024 B is below the write threshold of a page, so \
     selective logs what wasteless logs, by the paper's sections 3 and 4";

/// Why the factor of wasteless and ordered is larger here, and that of bytes to the journal smaller.
pub(in super::super) const BESIDE_THE_DISK: &str = "the network and the server's metadata (BerkeleyDB, synchronous, on \
     another disk) take no time here; what both modes wait for alike brings their rates nearer, and fewer writers share \
     a commit when each waits elsewhere, so wasteless logs metadata more often";

/// All bytes.
fn of_all(of: &Outcome) -> f64 {
    float(of.traffic.journal + of.traffic.fs)
}

/// The caption of figure 5d.
fn least_traffic(of: &[Outcome]) -> Claim {
    let written = |n: usize| of_all(&of[n]);
    Claim::below(
        "figure 5d, caption",
        LESS_THAN_OTHERS,
        "all bytes, the more of both / the fewer of ext4-ordered, ext4-journal",
        written(SELECTIVE).max(written(WASTELESS)) / written(ORDERED).min(written(JOURNAL)),
        1.0,
    )
}

/// What wasteless writes to the journal, in parts of what data journaling does.
fn journal_share(of: &[Outcome]) -> f64 {
    float(of[WASTELESS].traffic.journal) / float(of[JOURNAL].traffic.journal)
}

/// What the claims that have a cause beside the disk are of.
fn figures(of: &[Outcome]) -> [f64; 6] {
    let rate = |n: usize| of[n].rate;
    let written = |n: usize| of_all(&of[n]);
    [
        rate(WASTELESS) / rate(ORDERED),
        rate(JOURNAL).min(rate(SELECTIVE)) / rate(ORDERED),
        rate(JOURNAL) / rate(WASTELESS),
        rate(SELECTIVE) / rate(WASTELESS),
        journal_share(of),
        written(SELECTIVE) / written(WASTELESS),
    ]
}

/// Of the most processes, with what came of other times beside the disk.
fn claims(last: &[Outcome], swept: &[Vec<Outcome>]) -> Vec<Claim> {
    let (rates, bytes) = ("figure 5c", "figure 5d");
    let [of_ordered, above, below, selective, less, all] = figures(last);
    let claims = [
        Claim::between(
            rates,
            "wasteless almost doubles ordered's throughput",
            "wasteless / ext4-ordered",
            of_ordered,
            (1.8, 2.0),
        ),
        Claim::above(
            rates,
            "data journaling and selective lie above ordered",
            "the slower of both / ext4-ordered",
            above,
            1.0,
        ),
        Claim::below(rates, "data journaling lies below wasteless", "ext4-journal / wasteless", below, 1.0),
        Claim::below(rates, "selective lies below wasteless", "selective / wasteless", selective, 1.0)
            .because_within(1.0..=1.0, BELOW_THRESHOLD),
        Claim::by_percent(
            bytes,
            "wasteless writes 42 % less to the journal than data journaling",
            "journal bytes, wasteless / ext4-journal",
            less,
            LESS,
        ),
        Claim::below(bytes, "selective writes less than wasteless", "all bytes, selective / wasteless", all, 1.0)
            .because_within(1.0..=1.0, BELOW_THRESHOLD),
    ];
    let with: Vec<[f64; 6]> = swept.iter().map(|of| figures(of)).collect();
    let values = BESIDE.map(|ms| format!("{ms} ms beside the disk"));
    let mut claims = with_one_row(BESIDE_THE_DISK, &values, claims, &with);
    claims.push(least_traffic(last));
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Directory;
    use quire_fs::Profile;

    #[test]
    fn processes_write_to_files_of_their_own_one_part_behind_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let stage = Directory::make(dir.path().join("server")).unwrap();
        let work = Work { processes: 3, writes: 7, beside: CALL };
        let files = prepare(&stage, work).unwrap();
        assert!(serve(&stage, &files, work).unwrap() > 0.0);
        for (process, writes) in [(0, 3), (1, 2), (2, 2)] {
            let bytes = std::fs::read(stage.path().join(format!("process-{process}"))).unwrap();
            assert_eq!(bytes, content(process, 0, writes * usize::try_from(WRITE).unwrap()), "process {process}");
        }
    }

    #[test]
    fn what_a_write_takes_beside_the_disk_is_a_cause_only_if_the_other_claims_stay() {
        use crate::results::Verdict::{self, Differs, Held, NotHeld};
        let traffic = |journal| crate::rig::Traffic { journal, fs: 50, ..crate::rig::Traffic::default() };
        let row = |rates: [f64; 4]| -> Vec<Outcome> {
            let of = [(ORDERED, 60), (JOURNAL, 100), (WASTELESS, 58), (SELECTIVE, 40)];
            let mut all = vec![Outcome { rate: 0.0, traffic: traffic(0) }; APPLICATIONS];
            of.into_iter().zip(rates).for_each(|((n, log), rate)| all[n] = Outcome { rate, traffic: traffic(log) });
            all
        };
        let verdicts = |with| -> Vec<Verdict> {
            let claims = claims(&row([1.0, 2.0, 3.0, 2.5]), &[row(with)]);
            claims.iter().map(|claim| claim.verdict).collect()
        };
        assert_eq!(verdicts([1.0, 1.2, 1.9, 1.5]), [Differs, Held, Held, Held, Held, Held, Held]);
        assert_eq!(verdicts([1.0, 0.9, 1.9, 1.5])[0], NotHeld, "data journaling is below ordered with it");
        let mut more = row([1.0, 2.0, 3.0, 2.5]);
        more[WASTELESS].traffic.journal = 70;
        assert_eq!(claims(&more, &[]).last().unwrap().verdict, NotHeld, "wasteless writes more than ordered");
    }

    #[test]
    fn every_write_is_served_and_parts_of_blocks_are_fewer_bytes_than_blocks() {
        let work = Work { processes: 20, writes: 200, beside: CALL };
        let wasteless = run(Profile::Wasteless.choices(), work).unwrap();
        let journal = run(SERIES[JOURNAL].1, work).unwrap();
        assert!(wasteless.traffic.journal < journal.traffic.journal, "{wasteless:?} {journal:?}");
        assert_eq!(run(Profile::Wasteless.choices(), work).unwrap().traffic, wasteless.traffic);
    }
}
