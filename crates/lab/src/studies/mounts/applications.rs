//! Okeanos' applications on mounts (figure 5): Postmark with synchronous writes, what InnoDB does to its log, and the
//! data server of a parallel file system. They are those of [`postmark`], [`log_replay`] and [`server`], in a directory
//! in real time.
//!
//! *Guarantees*: each application has files of its own, which are durable before it is measured. The server comes
//! first, because its bytes are counted and blocks that an earlier application has logged go home later.

mod claims;
mod debian;
mod figures;
mod methods;
mod phases;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use self::claims::JOURNALS;
#[cfg(test)]
pub(crate) use self::claims::of_rates;
use self::figures::{bars, of_logs, of_postmark};
use self::phases::{INSTANCES, LOG, LOGS, POSTMARKS, REQUESTS, SERVERS, journal, of, written};
use super::super::okeanos::log_replay::{self, METHODS, Trace};
use super::super::okeanos::series::INODE;
use super::super::okeanos::{postmark, server};
use super::bed::{Bed, Rounds};
use super::{OF_OKEANOS, WASTELESS, assume, mounters, rounds_of};
use crate::results::{Effort, Figure, Findings};
use crate::stage::Directory;
use crate::stats::mib;

/// Processes of the server: half of the paper's most.
const PROCESSES: u64 = 260;
/// What is measured.
#[derive(Clone, Copy, Debug)]
enum Application {
    Server(server::Work),
    Postmark(postmark::Work),
    Log { instances: u64, time: Duration },
}

/// The calls of InnoDB's logs.
fn time_of_logs(effort: Effort) -> Duration {
    Duration::from_secs(effort.pick(1, 2, 20))
}

/// All of them, by effort.
fn applications(effort: Effort) -> Vec<Application> {
    let writes = effort.pick(78, 780, 5200);
    let transactions = effort.pick(50, 300, 2000);
    let time = time_of_logs(effort);
    let servers = server::BESIDE.map(|ms| {
        let beside = Duration::from_millis(ms);
        Application::Server(server::Work { processes: PROCESSES, writes, beside })
    });
    let postmarks = REQUESTS.map(|request| {
        Application::Postmark(postmark::Work { files: 500, threads: 100, transactions, request, buffered: false })
    });
    let logs = INSTANCES.map(|instances| Application::Log { instances, time });
    servers.into_iter().chain(postmarks).chain(logs).collect()
}

/// The files of an application.
enum Files {
    Mail(Vec<postmark::Mail<PathBuf>>),
    Others(Vec<PathBuf>),
}

/// An application's directory and what it has there.
type Ready = (Directory, Files);

/// Makes the files of an application.
fn ready(dir: &Path, number: usize, application: Application, trace: &Trace) -> Result<Ready> {
    let stage = Directory::make(dir.join(format!("application-{number}")))?;
    let files = match application {
        Application::Server(work) => Files::Others(server::prepare(&stage, work)?),
        Application::Postmark(work) => Files::Mail(postmark::prepare(&stage, work)?),
        Application::Log { instances, .. } => Files::Others(log_replay::prepare(&stage, trace, instances)?),
    };
    Ok((stage, files))
}

/// Runs it: MB/s of the server, transactions a second of Postmark, the mean time of a flush in seconds of the logs.
fn run(application: Application, (stage, files): Ready, trace: &Trace) -> Result<f64> {
    match (application, files) {
        (Application::Server(work), Files::Others(files)) => server::serve(&stage, &files, work),
        (Application::Postmark(work), Files::Mail(mail)) => postmark::transact(&stage, mail, work),
        (Application::Log { time, .. }, Files::Others(files)) => {
            Ok(log_replay::replay_at_once(&stage, &files, trace, time)?.late.mean)
        }
        (application, _) => unreachable!("other files than those of {application:?}"),
    }
}

/// Figures 5a to 5d.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let all = applications(effort);
    let trace = Trace::of_each_commit()?.within(LOG);
    let phases: Vec<usize> = (0..all.len()).collect();
    let (bed, mounters) = (Bed::new("hdd15k", 1024, 128)?.with_inodes_of(INODE), mounters(&OF_OKEANOS)?);
    let rounds = bed.rounds_of_ready(
        rounds_of(effort),
        &mounters,
        &phases,
        |dir, n| ready(dir, n, all[n], &trace),
        |n, ready| run(all[n], ready, &trace),
    )?;
    let mut f = Findings { figures: drawn(&rounds, &all), ..Findings::default() };
    f.claims.extend(claims::of_programs(&rounds));
    assume(&mut f, effort, "hdd15k");
    assume_applications(&mut f, &all);
    debian::add(&mut f, &bed, &mounters, effort)?;
    methods::add(&mut f, &bed, &mounters, effort, (&rounds, time_of_logs(effort)))?;
    Ok(f)
}

fn assume_applications(f: &mut Findings, all: &[Application]) {
    f.assume(
        "data and journal on one disk of the model hdd15k, without a write cache, so a barrier costs no flush but the \
         turn that the commit block waits; the paper's journal is on another disk, but for the data server; a journal \
         of 128 MiB, inodes of 128 B, ext3's default then",
    );
    f.assume(
        "the kernel's ext4 has no wasteless and no selective mode: these are Quire's, with commit_mode=barrier, the \
         kernel's way to commit",
    );
    f.assume("calibrations of data=journal are Quire's ext4-journal, which leaves blocks in memory at an fsync");
    for application in all {
        f.assume(match application {
            Application::Server(work) => format!(
                "server: {} I/O threads, {} writes of {} B by {} processes, each O_SYNC (the paper: 65000 writes, 52 \
                 to 520 processes; okeanos-server has both); a write takes {:?} beside the disk; bytes are \
                 those of the run, without what is still to go home",
                server::IO_THREADS,
                work.writes,
                server::WRITE,
                work.processes,
                work.beside
            ),
            Application::Postmark(work) => format!(
                "Postmark: {} files of {} to {} bytes, {} threads, {} transactions, requests of {} B, each O_SYNC \
                 (the paper: 10,000 transactions, requests of 128 B to 128 KiB; okeanos-postmark has both); each \
                 request is a write, and Postmark's default, a stdio buffer of {} B, hands smaller requests on as \
                 those of a page here; a file is opened and closed for each read and each append",
                work.files,
                postmark::SMALLEST,
                postmark::LARGEST,
                work.threads,
                work.transactions,
                work.request,
                postmark::BUFFER
            ),
            Application::Log { instances, time } => format!(
                "InnoDB: {instances} instances of method 1 (Cmt/Disk), the calls of {} s of the trace, which each \
                 begins at another moment, to a log of {:.1} MiB (the paper: a trace of 500 s, more instances; \
                 okeanos-innodb has both); the time of a flush is from when it is due, in an open loop",
                time.as_secs(),
                mib(LOG)
            ),
        });
    }
    f.assume(
        "a write of a part of a block waits for a read of that block from the device where Quire's own cache has not \
         got it, as with wasteless and selective in InnoDB's logs; the paper's file system has it in the page cache",
    );
    f.assume(
        "\"almost doubles\": 1.8 to 2 times; \"substantially\": to a half; wasteless and selective are as fast, and write \
         as much, within a tenth: rounds differ by as much",
    );
    f.skipped.push(
        "figure 5b: that a flush takes hundreds of seconds with ordered, and up to tens with wasteless, is said of \
         runs of 500 s, and a run of seconds cannot show it: okeanos-innodb judges both, in virtual time"
            .into(),
    );
}

fn drawn(rounds: &Rounds<f64>, all: &[Application]) -> Vec<Figure> {
    let beside = server::BESIDE.map(|ms| format!("{ms} ms beside the disk"));
    let title = format!("Data server, {PROCESSES} processes (beside the disk: calibration)");
    let rate = bars("5c", "figure 5c", &title, "MB/s", &beside);
    let Application::Server(work) = all[SERVERS[0]] else { unreachable!("the server is the first") };
    let title = format!("Data server: {} synchronous writes of {} B", work.writes, server::WRITE);
    let bytes = bars("5d", "figure 5d", &title, "MB", &["to the journal", "all"].map(String::from));
    vec![
        of_postmark("5a", "Postmark", rounds, POSTMARKS),
        of_logs(
            &METHODS[0],
            ("", ""),
            rounds,
            LOGS.into_iter().zip(INSTANCES.map(|count| format!("{count} instances"))),
        ),
        rounds.drawn(rate, &SERVERS, of).turned("computing"),
        rounds.drawn_by(bytes, SERVERS[0], &[journal, written]),
        bytes_by_beside(rounds),
    ]
}

/// What wasteless writes to the journal in parts of data journaling, by what a write takes beside the disk.
fn bytes_by_beside(rounds: &Rounds<f64>) -> Figure {
    let title = "Bytes to the journal by what a write takes beside the disk, mounts (calibration)";
    let series = JOURNALS.map(|name| format!("{WASTELESS} / {name}"));
    let figure = Figure::lines("okeanos-5d-beside-mounts", "figure 5d", title, "beside, ms", "times");
    let mut figure = figure.of_series(series.each_ref().map(|name| &**name));
    for (ms, phase) in server::BESIDE.into_iter().zip(SERVERS) {
        let bytes = |name| rounds.median(name, phase, journal);
        figure.place(ms, JOURNALS.map(|name| bytes(WASTELESS) / bytes(name)));
        series.iter().for_each(|name| figure.printed(ms, name, server::LESS_PRINTED));
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The applications stand where figures and claims look for them.
    #[test]
    fn applications_stand_at_their_places() {
        let all = applications(Effort::Quick);
        let beside = server::BESIDE.map(Duration::from_millis);
        let server = |n: usize| matches!(all[n], Application::Server(work) if work.beside == beside[n]);
        assert!(SERVERS.into_iter().all(server));
        let sizes = POSTMARKS.map(|n| if let Application::Postmark(work) = all[n] { work.request } else { 0 });
        assert_eq!(sizes, REQUESTS);
        let counts = LOGS.map(|n| if let Application::Log { instances, .. } = all[n] { instances } else { 0 });
        assert_eq!(counts, INSTANCES);
    }

    /// In a directory of the machine's own, small.
    #[test]
    fn every_application_runs_with_the_files_that_were_made_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let trace = Trace::of_each_commit().unwrap().within(LOG);
        let work = postmark::Work { files: 5, threads: 2, transactions: 4, request: 4096, buffered: false };
        let small = [
            Application::Server(server::Work { processes: 2, writes: 4, beside: Duration::ZERO }),
            Application::Postmark(work),
            Application::Log { instances: 2, time: Duration::from_secs(1) },
        ];
        for (n, application) in small.into_iter().enumerate() {
            let ready = ready(dir.path(), n, application, &trace).unwrap();
            assert!(run(application, ready, &trace).unwrap() > 0.0, "{application:?}");
        }
    }
}
