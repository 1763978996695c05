//! Postmark as Okeanos ran it (USENIX ATC '11, figure 5a): many small files as a mail server has them, 100 threads, and
//! every write synchronous; on the modelled 15,000 rpm disks, in virtual time.
//!
//! A transaction is Katcher's (NetApp TR3022): a file is read whole or appended to, then one is created or deleted,
//! each with even chances. Debian's `postmark` is 1.53, which has one thread and no synchronous writes; the paper ran
//! 1.5 with both added.

use anyhow::Result;
use quire_device::sync::{Mutex, lock};
use quire_fs::Choices;
use quire_testkit::rng::{Rng, content};

use super::series::{
    APPLICATIONS, CALL, JOURNAL, Journal, ORDERED, SELECTIVE, SERIES, WASTELESS, assume_disks, server,
};
use crate::results::{ABOUT, Claim, Effort, Figure, Findings, with_one_row};
use crate::rig::Body;
use crate::stage::{Durability, Stage};
use crate::stats::float;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// That are there at the beginning.
    pub files: u64,
    pub threads: u64,
    pub transactions: u64,
    /// Bytes of a request at most.
    pub request: usize,
    /// Requests go through a buffer of stdio of [`BUFFER`] bytes for each file that is open, as Postmark's do unless it
    /// is told otherwise; without it each request is a write.
    pub buffered: bool,
}

/// Bytes of a buffer of stdio: what the C library takes for a file of this block size.
pub const BUFFER: usize = 4096;

/// Sizes of a file that is created, and the most that it grows to: Postmark's default.
pub const SMALLEST: u64 = 500;
pub const LARGEST: u64 = 10_000;
const MIB: u64 = 256;

/// A file that is there.
#[derive(Clone, Debug)]
pub struct Mail<F> {
    file: F,
    size: u64,
}

/// Runs it in virtual time; returns transactions a second.
///
/// # Errors
/// The file system fails.
pub fn run(choices: Choices, work: Work) -> Result<f64> {
    let rig = server(choices, MIB, Journal::Apart, true)?;
    let first = prepare(&rig, work)?;
    rig.settle()?;
    let rate = transact(&rig, first, work)?;
    rig.close()?;
    Ok(rate)
}

/// Makes the files that are there at the beginning.
///
/// # Errors
/// The file system fails.
pub fn prepare<S: Stage>(stage: &S, work: Work) -> Result<Vec<Mail<S::File>>> {
    let mut rng = Rng::from_parts(&[5, 0xA]);
    let make = |n| create(stage, &format!("first-{n}"), &mut rng, work, Durability::AtFlush);
    (0..work.files).map(make).collect()
}

/// Runs the transactions on these files; returns how many there were a second.
///
/// # Errors
/// The file system fails.
pub fn transact<S: Stage>(stage: &S, first: Vec<Mail<S::File>>, work: Work) -> Result<f64> {
    let (set, start) = (Mutex::new(first), stage.now());
    let bodies = (0..work.threads).map(|n| {
        let set = &set;
        let count = work.transactions / work.threads + u64::from(n < work.transactions % work.threads);
        Box::new(move || thread(stage, set, n, count, work)) as Body<'_, Result<()>>
    });
    stage.run(bodies.collect())?;
    Ok(float(work.transactions) / (stage.now() - start).as_secs_f64())
}

/// One thread's part of the transactions.
fn thread<S: Stage>(stage: &S, set: &Mutex<Vec<Mail<S::File>>>, n: u64, transactions: u64, work: Work) -> Result<()> {
    let mut rng = Rng::from_parts(&[5, 0xB, n]);
    for round in 0..transactions {
        if let Some(mut mail) = take(set, &mut rng) {
            if rng.one_in(2) {
                let mut bytes = vec![0; usize::try_from(mail.size)?];
                let read = stage.read(&stage.open(&mail.file, Durability::AtFlush)?, 0, &mut bytes)?;
                anyhow::ensure!(read == bytes.len(), "{:?}: {read} bytes of {}", mail.file, bytes.len());
            } else if mail.size < LARGEST {
                let len = 1 + rng.below(LARGEST - mail.size);
                append(stage, &mut mail, len, work, Durability::EachWrite)?;
            }
            lock(set).push(mail);
        }
        if rng.one_in(2) {
            let mail = create(stage, &format!("mail-{n}-{round}"), &mut rng, work, Durability::EachWrite)?;
            lock(set).push(mail);
        } else if let Some(mail) = take(set, &mut rng) {
            stage.remove(mail.file)?;
        }
    }
    Ok(())
}

/// Takes a file for itself, if there is one.
fn take<F>(set: &Mutex<Vec<Mail<F>>>, rng: &mut Rng) -> Option<Mail<F>> {
    let mut set = lock(set);
    if set.is_empty() {
        return None;
    }
    let n = rng.index(set.len());
    Some(set.swap_remove(n))
}

fn create<S: Stage>(stage: &S, name: &str, rng: &mut Rng, work: Work, durability: Durability) -> Result<Mail<S::File>> {
    let mut mail = Mail { file: stage.create(name)?, size: 0 };
    append(stage, &mut mail, SMALLEST + rng.below(LARGEST - SMALLEST + 1), work, durability)?;
    Ok(mail)
}

/// What write(2) gets of requests of at most so many bytes that go through a buffer of stdio, as the GNU C library
/// empties it: when the next request finds it full, and at the end. Whole buffers of a request go past an empty one.
fn through_buffer(len: usize, request: usize) -> Vec<usize> {
    let (mut writes, mut held, mut left) = (Vec::new(), 0, len);
    while left > 0 {
        let mut bytes = request.min(left);
        left -= bytes;
        if held > 0 {
            let fits = bytes.min(BUFFER - held);
            (held, bytes) = (held + fits, bytes - fits);
            if bytes > 0 {
                writes.push(held);
                held = 0;
            }
        }
        let past = bytes / BUFFER * BUFFER;
        writes.extend((past > 0).then_some(past));
        held += bytes - past;
    }
    writes.extend((held > 0).then_some(held));
    writes
}

/// The bytes of each write of so many in requests.
fn writes(len: usize, work: Work) -> Vec<usize> {
    if work.buffered {
        return through_buffer(len, work.request);
    }
    (0..len).step_by(work.request).map(|at| work.request.min(len - at)).collect()
}

/// Appends in requests of the wanted size.
fn append<S: Stage>(stage: &S, mail: &mut Mail<S::File>, len: u64, work: Work, durability: Durability) -> Result<()> {
    let open = stage.open(&mail.file, durability)?;
    let data = content(0x5A, mail.size, usize::try_from(len)?);
    let mut left = &data[..];
    for bytes in writes(data.len(), work) {
        let (now, then) = left.split_at(bytes);
        stage.compute(CALL);
        stage.write(&open, mail.size, now)?;
        mail.size += bytes as u64;
        left = then;
    }
    Ok(())
}

/// Figure 5a.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let sizes: &[usize] = effort.pick(
        &[128, 4096],
        &[128, 1024, 4096, 16 << 10, 128 << 10],
        &[128, 512, 1024, 4096, 16 << 10, 64 << 10, 128 << 10],
    );
    let transactions = effort.pick(1000, 5000, 10_000);
    let title = format!("Postmark: {transactions} transactions, 500 files, 100 threads, synchronous writes");
    let mut figure = Figure::lines("okeanos-5a", "figure 5a", title, "request, B", "transactions/s")
        .of_series(SERIES[..APPLICATIONS].iter().map(|(name, _)| name));
    let mut rates: Vec<Vec<f64>> = Vec::new();
    let work = Work { files: 500, threads: 100, transactions, request: 0, buffered: false };
    for request in sizes {
        let row = of_modes(Work { request: *request, ..work })?;
        figure.place(request, row.iter().copied());
        rates.push(row);
    }
    let (of_buffer, buffered) = by_buffer(Work { buffered: true, ..work })?;
    let mut f = Findings { figures: vec![figure, of_buffer], ..Findings::default() };
    assume_disks(&mut f, Journal::Apart);
    f.assume(format!(
        "files of {SMALLEST} to {LARGEST} bytes, Postmark's default; a write is O_SYNC, creates and deletes are not; \
         reads come from the page cache; a write takes {CALL:?} of a processor; time is virtual"
    ));
    f.assume(format!(
        "each request is a write; Postmark's default is stdio, whose buffer hands on {BUFFER} B and a tail of smaller \
         requests (calibration: okeanos-5a-buffer); the paper does not say which of both it used"
    ));
    f.assume(format!("{NO_MORE}; the claims that compare modes are of ratios"));
    f.claims = claims(sizes, &rates, &buffered);
    Ok(f)
}

/// Transactions a second of the paper's modes and ours.
fn of_modes(work: Work) -> Result<Vec<f64>> {
    let row: Vec<f64> = SERIES[..APPLICATIONS].iter().map(|(_, c)| run(*c, work)).collect::<Result<_>>()?;
    eprintln!("requests of {} B, buffered: {}: {row:.0?} transactions/s", work.request, work.buffered);
    Ok(row)
}

/// Requests through a buffer of stdio.
const BUFFERED: [usize; 4] = [128, 1024, BUFFER, 128 << 10];

/// The same through a buffer of stdio, of requests of less than a page, of a page and of the most (calibration).
fn by_buffer(work: Work) -> Result<(Figure, Vec<Vec<f64>>)> {
    let title = format!("Postmark by request through a stdio buffer of {BUFFER} B (calibration)");
    let mut figure = Figure::lines("okeanos-5a-buffer", "figure 5a", title, "request, B", "transactions/s")
        .of_series(SERIES[..APPLICATIONS].iter().map(|(name, _)| name));
    let mut rates = Vec::new();
    for request in BUFFERED {
        let row = of_modes(Work { request, ..work })?;
        figure.place(request, row.iter().copied());
        rates.push(row);
    }
    Ok((figure, rates))
}

/// The write threshold of selective journaling: a page.
const THRESHOLD: usize = 4096;

/// What the claims of figure 5a are of, from the modes' rates by the size of requests.
fn figures(sizes: &[usize], rates: &[Vec<f64>]) -> [f64; 6] {
    let parts = |of: fn(&[f64]) -> f64, from: usize, to: usize| {
        let rows = sizes.iter().zip(rates).filter(move |(size, _)| (from..to).contains(*size));
        rows.map(move |(_, row)| of(row))
    };
    let least = |of| parts(of, 0, usize::MAX).fold(f64::INFINITY, f64::min);
    let most = |of, from, to| parts(of, from, to).fold(f64::NEG_INFINITY, f64::max);
    let of_journal = |row: &[f64]| row[SELECTIVE] / row[JOURNAL];
    [
        most(|row| row[WASTELESS], 0, usize::MAX),
        least(|row| row[WASTELESS] / row[ORDERED].max(row[JOURNAL])),
        least(|row| row[WASTELESS] / row[SELECTIVE]),
        least(|row| row[SELECTIVE] / row[ORDERED]),
        most(of_journal, THRESHOLD, usize::MAX),
        most(of_journal, 0, THRESHOLD),
    ]
}

/// Figure 5a by the size of requests; `buffered` has the modes' rates by the sizes of [`BUFFERED`].
fn claims(sizes: &[usize], rates: &[Vec<f64>], buffered: &[Vec<f64>]) -> Vec<Claim> {
    let at = "figure 5a";
    let [highest, of_wasteless, of_selective, of_ordered, of_pages, of_less] = figures(sizes, rates);
    let of_journal = "the highest of selective / ext4-journal";
    let claims = [
        Claim::about(
            at,
            "wasteless journaling gets as high as 738 transactions a second",
            "wasteless, the highest of all request sizes",
            highest,
            ("738", ABOUT),
        )
        .supposedly(NO_MORE),
        Claim::above(
            at,
            "across request sizes wasteless is faster than ordered and data journaling",
            "the least of wasteless / the faster of ordered, journal",
            of_wasteless,
            1.0,
        ),
        Claim::above(
            at,
            "across request sizes wasteless is faster than selective",
            "the least of wasteless / selective",
            of_selective,
            1.0,
        ),
        Claim::above(at, "selective lies above ordered", "the least of selective / ext4-ordered", of_ordered, 1.0),
        Claim::below(
            at,
            "selective lies below data journaling: requests of a page and more",
            of_journal,
            of_pages,
            1.0,
        ),
        Claim::below(
            at,
            "selective lies below data journaling: requests of less than a page",
            of_journal,
            of_less,
            1.0,
        ),
    ];
    let [number, of_modes @ ..] = claims;
    let [_, through @ ..] = figures(&BUFFERED, buffered);
    let of_modes = with_one_row(BELOW_THRESHOLD, &["a buffer of stdio".into()], of_modes, &[through]);
    [vec![number], of_modes].concat()
}

/// Why all modes are faster than the paper's.
const NO_MORE: &str = "a transaction has no more than its writes and a processor's time for each: what Postmark computes, \
     the system calls beside write, the kernel's locks and the seeks of reads and of synchronous directories are not here";

/// Why selective is as fast as wasteless with small requests.
pub(in super::super) const BELOW_THRESHOLD: &str = "a write below the write threshold of a page has selective log what \
     wasteless logs, so it is as fast; Postmark's default buffers requests in stdio, so that smaller ones reach the \
     kernel as a page and a tail too (okeanos-5a-buffer)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::stage::Directory;
    use quire_fs::Profile;
    use quire_layout::Ino;

    /// The same transactions leave the same files in a directory and on the library.
    #[test]
    fn a_directory_and_a_rig_have_the_same_transactions() {
        let work = Work { files: 20, threads: 1, transactions: 50, request: 4096, buffered: false };
        let dir = tempfile::tempdir().unwrap();
        let stage = Directory::make(dir.path().join("postmark")).unwrap();
        assert!(transact(&stage, prepare(&stage, work).unwrap(), work).unwrap() > 0.0);
        let rig = server(SERIES[ORDERED].1, MIB, Journal::Apart, true).unwrap();
        transact(&rig, prepare(&rig, work).unwrap(), work).unwrap();
        let mut left = 0;
        for entry in std::fs::read_dir(stage.path()).unwrap().map(|e| e.unwrap()) {
            let name = entry.file_name().into_string().unwrap();
            let attr = rig.volume.lookup(Ino::ROOT, name.as_bytes()).unwrap();
            assert_eq!(attr.size, entry.metadata().unwrap().len(), "{name}");
            left += 1;
        }
        assert!(left > 0 && left != 20, "{left} files are left; seed 5 has another number of creates and of deletes");
    }

    #[test]
    fn a_buffer_of_stdio_hands_on_pages_and_a_tail() {
        for request in [1, 128, 1024, BUFFER] {
            assert_eq!(through_buffer(9000, request), [4096, 4096, 808], "{request}");
        }
        assert_eq!(through_buffer(9000, 5000), [4096, 4096, 808]);
        assert_eq!(through_buffer(9000, 128 << 10), [8192, 808], "whole buffers go past an empty one");
        assert_eq!((through_buffer(4096, 128), through_buffer(0, 128)), (vec![4096], vec![]));
        let work = Work { files: 0, threads: 0, transactions: 0, request: 4000, buffered: false };
        assert_eq!(writes(9000, work), [4000, 4000, 1000]);
    }

    #[test]
    fn runs_are_alike_and_small_synchronous_writes_are_faster_through_the_log() {
        let work = Work { files: 20, threads: 10, transactions: 100, request: 512, buffered: false };
        let wasteless = run(Profile::Wasteless.choices(), work).unwrap();
        assert_eq!(wasteless.to_bits(), run(Profile::Wasteless.choices(), work).unwrap().to_bits());
        let ordered = run(SERIES[ORDERED].1, work).unwrap();
        assert!(wasteless > ordered, "wasteless {wasteless}, ordered {ordered}");
    }

    #[test]
    fn a_tie_of_wasteless_and_selective_is_not_faster_and_has_a_cause_if_stdio_parts_them() {
        // Ordered, journal, wasteless, selective; with the buffer a small request is as one of a page.
        let page = vec![1.0, 3.0, 4.0, 2.0];
        let through = |small: f64, buffered: &[f64]| {
            claims(&[128, 4096], &[vec![1.0, 2.0, 4.0, small], page.clone()], &vec![buffered.to_vec(); BUFFERED.len()])
        };
        let of = |small: f64| through(small, &page);
        let verdict = |claims: &[Claim], says: &str| claims.iter().find(|c| c.says.contains(says)).unwrap().verdict;
        assert_eq!(verdict(&of(4.0), "faster than selective"), Verdict::Differs);
        assert_eq!(verdict(&of(3.0), "faster than selective"), Verdict::Held);
        assert_eq!(verdict(&of(5.0), "faster than selective"), Verdict::Differs, "with the buffer it is");
        assert_eq!(verdict(&of(4.0), "less than a page"), Verdict::Differs);
        let as_fast = through(4.0, &[1.0, 2.0, 4.0, 4.0]);
        for says in ["faster than selective", "less than a page"] {
            assert_eq!(verdict(&as_fast, says), Verdict::NotHeld, "a buffer with which they are alike is no cause");
        }
        assert_eq!(verdict(&of(4.0), "a page and more"), Verdict::Held);
    }
}
