//! Postmark as Okeanos ran it (USENIX ATC '11, figure 5a): many small files as a mail server has them, 100 threads, and
//! every write synchronous; on the modelled 15,000 rpm disks, in virtual time.
//!
//! A transaction is Katcher's (NetApp TR3022): a file is read whole or appended to, then one is created or deleted,
//! each with even chances. Debian's `postmark` is 1.53, which has one thread and no synchronous writes; the paper ran
//! 1.5 with both added.

use std::time::Duration;

use anyhow::Result;
use quire_device::Clock;
use quire_device::sync::{Mutex, lock};
use quire_fs::{Choices, WriteFlags};
use quire_layout::Ino;
use quire_testkit::rng::{Rng, content};

use super::series::{
    APPLICATIONS, CALL, JOURNAL, Journal, ORDERED, SELECTIVE, SERIES, WASTELESS, assume_disks, server,
};
use crate::results::{Claim, Effort, Figure, Findings};
use crate::rig::{Body, Rig};
use crate::stats::float;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// That are there at the beginning.
    pub files: u64,
    pub threads: u64,
    pub transactions: u64,
    /// Bytes of a write at most.
    pub request: usize,
}

/// Sizes of a file that is created, and the most that it grows to: Postmark's default.
const SMALLEST: u64 = 500;
const LARGEST: u64 = 10_000;
const MIB: u64 = 256;

#[derive(Clone, Debug)]
struct Mail {
    name: String,
    ino: Ino,
    size: u64,
}

/// Runs it; returns transactions a second.
///
/// # Errors
/// The file system fails.
pub fn run(choices: Choices, work: Work) -> Result<f64> {
    let rig = server(choices, MIB, Journal::Apart, true)?;
    let mut rng = Rng::from_parts(&[5, 0xA]);
    let first = (0..work.files).map(|n| create(&rig, format!("first-{n}"), &mut rng, work, WriteFlags::default()));
    let set = Mutex::new(first.collect::<Result<Vec<_>>>()?);
    rig.volume.sync()?;
    rig.volume.maintenance().checkpoint()?;
    let start = rig.world.monotonic();
    let bodies = (0..work.threads).map(|n| {
        let (rig, set) = (&rig, &set);
        let count = work.transactions / work.threads + u64::from(n < work.transactions % work.threads);
        Box::new(move || thread(rig, set, n, count, work)) as Body<'_, Result<()>>
    });
    rig.run(bodies.collect()).into_iter().collect::<Result<()>>()?;
    let took: Duration = rig.world.monotonic() - start;
    rig.close()?;
    Ok(float(work.transactions) / took.as_secs_f64())
}

/// One thread's part of the transactions.
fn thread(rig: &Rig, set: &Mutex<Vec<Mail>>, n: u64, transactions: u64, work: Work) -> Result<()> {
    let synced = WriteFlags { sync: true, ..WriteFlags::default() };
    let mut rng = Rng::from_parts(&[5, 0xB, n]);
    for round in 0..transactions {
        if let Some(mut mail) = take(set, &mut rng) {
            if rng.one_in(2) {
                let mut bytes = vec![0; usize::try_from(mail.size)?];
                let read = rig.volume.read(mail.ino, 0, &mut bytes)?;
                anyhow::ensure!(read == bytes.len(), "{}: {read} bytes of {}", mail.name, bytes.len());
            } else if mail.size < LARGEST {
                let len = 1 + rng.below(LARGEST - mail.size);
                append(rig, &mut mail, len, work, synced)?;
            }
            lock(set).push(mail);
        }
        if rng.one_in(2) {
            let mail = create(rig, format!("mail-{n}-{round}"), &mut rng, work, synced)?;
            lock(set).push(mail);
        } else if let Some(mail) = take(set, &mut rng) {
            rig.volume.unlink(Ino::ROOT, mail.name.as_bytes())?;
            rig.volume.forget(mail.ino, 1);
        }
    }
    Ok(())
}

/// Takes a file for itself, if there is one.
fn take(set: &Mutex<Vec<Mail>>, rng: &mut Rng) -> Option<Mail> {
    let mut set = lock(set);
    if set.is_empty() {
        return None;
    }
    let n = rng.index(set.len());
    Some(set.swap_remove(n))
}

fn create(rig: &Rig, name: String, rng: &mut Rng, work: Work, flags: WriteFlags) -> Result<Mail> {
    let ino = rig.create(Ino::ROOT, &name)?;
    let mut mail = Mail { name, ino, size: 0 };
    append(rig, &mut mail, SMALLEST + rng.below(LARGEST - SMALLEST + 1), work, flags)?;
    Ok(mail)
}

/// Appends in requests of the wanted size.
fn append(rig: &Rig, mail: &mut Mail, len: u64, work: Work, flags: WriteFlags) -> Result<()> {
    let data = content(u64::from(mail.ino.0), mail.size, usize::try_from(len)?);
    for request in data.chunks(work.request) {
        rig.world.sleep(CALL);
        rig.volume.write(mail.ino, mail.size, request, flags)?;
        mail.size += request.len() as u64;
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
    for request in sizes {
        let work = Work { files: 500, threads: 100, transactions, request: *request };
        let row: Vec<f64> = SERIES[..APPLICATIONS].iter().map(|(_, c)| run(*c, work)).collect::<Result<_>>()?;
        eprintln!("requests of {request} B: {row:.0?} transactions/s");
        figure.place(request, row.iter().copied());
        rates.push(row);
    }
    let mut f = Findings { figures: vec![figure], ..Findings::default() };
    assume_disks(&mut f);
    f.assume(format!(
        "files of {SMALLEST} to {LARGEST} bytes, Postmark's default; a write is O_SYNC, creates and deletes are not; \
         reads come from the page cache; a write takes {CALL:?} of a processor; time is virtual"
    ));
    f.claims = claims(sizes, &rates);
    Ok(f)
}

/// The write threshold of selective journaling: a page.
const THRESHOLD: usize = 4096;

fn claims(sizes: &[usize], rates: &[Vec<f64>]) -> Vec<Claim> {
    let at = "figure 5a";
    let parts = |of: &dyn Fn(&[f64]) -> f64, from: usize, to: usize| -> Vec<f64> {
        let rows = sizes.iter().zip(rates).filter(|(size, _)| (from..to).contains(*size));
        rows.map(|(_, row)| of(row)).collect()
    };
    let least = |of: &dyn Fn(&[f64]) -> f64| parts(of, 0, usize::MAX).into_iter().fold(f64::INFINITY, f64::min);
    let most = |of: Vec<f64>| of.into_iter().fold(f64::NEG_INFINITY, f64::max);
    // Below the threshold selective is wasteless, and is above data journaling by as much as that one.
    let as_wasteless = most(parts(&|row| row[WASTELESS] / row[JOURNAL], 0, THRESHOLD));
    let of_journal = |row: &[f64]| row[SELECTIVE] / row[JOURNAL];
    vec![
        Claim::at_least(
            at,
            "wasteless journaling reaches 738 transactions a second",
            "wasteless, the highest of all request sizes",
            most(rates.iter().map(|row| row[WASTELESS]).collect()),
            "738",
        ),
        Claim::above(
            at,
            "across request sizes wasteless is faster than ordered and data journaling",
            "the least of wasteless / the faster of ordered, journal",
            least(&|row| row[WASTELESS] / row[ORDERED].max(row[JOURNAL])),
            1.0,
        ),
        Claim::above(
            at,
            "across request sizes wasteless is faster than selective",
            "the least of wasteless / selective",
            least(&|row| row[WASTELESS] / row[SELECTIVE]),
            1.0,
        )
        .because_within(1.0..=1.0, BELOW_THRESHOLD),
        Claim::above(
            at,
            "selective lies above ordered",
            "the least of selective / ext4-ordered",
            least(&|row| row[SELECTIVE] / row[ORDERED]),
            1.0,
        ),
        Claim::below(
            at,
            "selective lies below data journaling: requests of a page and more",
            "the highest of selective / ext4-journal",
            most(parts(&of_journal, THRESHOLD, usize::MAX)),
            1.0,
        ),
        Claim::below(
            at,
            "selective lies below data journaling: requests of less than a page",
            "the highest of selective / ext4-journal",
            most(parts(&of_journal, 0, THRESHOLD)),
            1.0,
        )
        .because_within(1.0..=as_wasteless, BELOW_THRESHOLD),
    ]
}

/// Why selective is as fast as wasteless with small requests.
const BELOW_THRESHOLD: &str = "a request below the write threshold of a page has selective log what wasteless logs, by \
     the paper's sections 3 and 4, so it is as fast";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use quire_fs::Profile;

    #[test]
    fn runs_are_alike_and_small_synchronous_writes_are_faster_through_the_log() {
        let work = Work { files: 20, threads: 10, transactions: 100, request: 512 };
        let wasteless = run(Profile::Wasteless.choices(), work).unwrap();
        assert_eq!(wasteless.to_bits(), run(Profile::Wasteless.choices(), work).unwrap().to_bits());
        let ordered = run(SERIES[ORDERED].1, work).unwrap();
        assert!(wasteless > ordered, "wasteless {wasteless}, ordered {ordered}");
    }

    #[test]
    fn a_tie_of_wasteless_and_selective_is_not_faster_and_a_slower_selective_is_not_its_cause() {
        // Ordered, journal, wasteless, selective.
        let of = |small: f64| claims(&[128, 4096], &[vec![1.0, 2.0, 4.0, small], vec![1.0, 3.0, 4.0, 2.0]]);
        let verdict = |claims: &[Claim], says: &str| claims.iter().find(|c| c.says.contains(says)).unwrap().verdict;
        assert_eq!(verdict(&of(4.0), "faster than selective"), Verdict::Differs);
        assert_eq!(verdict(&of(3.0), "faster than selective"), Verdict::Held);
        assert_eq!(verdict(&of(5.0), "faster than selective"), Verdict::NotHeld);
        assert_eq!(verdict(&of(4.0), "less than a page"), Verdict::Differs);
        assert_eq!(verdict(&of(5.0), "less than a page"), Verdict::NotHeld, "faster than wasteless has no cause");
        assert_eq!(verdict(&of(4.0), "a page and more"), Verdict::Held);
    }
}
