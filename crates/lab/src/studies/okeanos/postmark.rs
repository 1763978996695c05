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
    f.claims = claims(&rates);
    Ok(f)
}

fn claims(rates: &[Vec<f64>]) -> Vec<Claim> {
    let at = "figure 5a";
    let least = |of: &dyn Fn(&[f64]) -> f64| rates.iter().map(|row| of(row)).fold(f64::INFINITY, f64::min);
    vec![
        Claim::at_least(
            at,
            "wasteless journaling reaches 738 transactions a second",
            "wasteless, the highest of all request sizes",
            -least(&|row| -row[WASTELESS]),
            738.0,
        )
        .as_printed()
        .because(SHARED),
        Claim::at_least(
            at,
            "across request sizes wasteless is faster than all other modes",
            "the least of wasteless / the fastest of ordered, journal, selective",
            least(&|row| row[WASTELESS] / row[ORDERED].max(row[JOURNAL]).max(row[SELECTIVE])),
            1.0,
        ),
        Claim::at_least(
            at,
            "selective lies above ordered",
            "the least of selective / ext4-ordered",
            least(&|row| row[SELECTIVE] / row[ORDERED]),
            1.0,
        ),
        Claim::at_most(
            at,
            "selective lies below data journaling",
            "the highest of selective / ext4-journal",
            -least(&|row| -row[SELECTIVE] / row[JOURNAL]),
            1.0,
        )
        .because(
            "with requests below a page selective logs what wasteless logs (section 3), so it is as fast; with larger ones \
             it is below data journaling",
        ),
    ]
}

/// Why the rate is another than the paper's.
const SHARED: &str = "one commit serves all threads that wait, so the rate follows how many share a turn of the disk";

#[cfg(test)]
mod tests {
    use super::*;
    use quire_fs::Profile;

    #[test]
    fn runs_are_alike_and_small_synchronous_writes_are_faster_through_the_log() {
        let work = Work { files: 20, threads: 10, transactions: 100, request: 512 };
        let wasteless = run(Profile::Wasteless.choices(), work).unwrap();
        assert_eq!(wasteless.to_bits(), run(Profile::Wasteless.choices(), work).unwrap().to_bits());
        let ordered = run(SERIES[ORDERED].1, work).unwrap();
        assert!(wasteless > ordered, "wasteless {wasteless}, ordered {ordered}");
    }
}
