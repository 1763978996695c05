//! DJFS, figures 8 and 9: TPC-C on SQLite, on the library on the modelled Samsung 840. Time is what the devices take
//! (virtual) and what the database's thread computes, SQLite and the file system (measured, and charged as it is used);
//! the background thread has a processor of its own.
//!
//! Where computing bounds the factor, the cap is shown: the same run on devices that take no time and without a
//! journal; on tmpfs; and on a mount whose disk and NVRAM are files in memory, both in real time.

mod calibration;
mod loaded;

use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::ways::{self, Way};
use crate::results::{Claim, Figure, Findings};
use crate::stats::{Spread, left_by_line};
use crate::turns::turns;
use crate::work::tpcc::{Grain, Journal};
pub use loaded::Plan;
pub(super) use loaded::{CACHE, Loaded, Outcome};

/// Why all that has NVRAM is faster beside the disks than in the paper.
const COMPUTED: &str = "a transaction computes by calls of a library in one process here, and by system calls on a machine \
     of 2012 in the paper: how long that took is not known";

const WAYS: [Way; 6] = [ways::ORDERED, ways::JOURNAL, ways::EXTERNAL, ways::NVJ, ways::DJFS, ways::DJFS4];

/// Figure 8.
///
/// # Errors
/// A file system or SQLite failed.
pub fn figure8(plan: &Plan, in_memory: bool) -> Result<Findings> {
    let loaded = Loaded::new(plan)?;
    let mut f = plan.assumed();
    for journal in plan.journals.iter().copied() {
        let mode = journal.name();
        let printed = if journal == Journal::Wal { "26.5" } else { "64.2" };
        let tpm_c =
            |way, model| Ok::<_, anyhow::Error>(loaded.run(way, model, Duration::ZERO, journal, plan)?.report.tpm_c());
        let each: Vec<f64> = WAYS.iter().map(|way| tpm_c(*way, Model::samsung_840())).collect::<Result<_>>()?;
        let free = loaded.run(ways::NONE, Model::default(), Duration::ZERO, journal, plan)?.report;
        let cap = free.tpm_c();
        let title = format!("{mode}: TPC-C on SQLite, {}", grain(plan.grain));
        let id = format!("djfs-8-{}", mode.to_lowercase());
        let mut figure = Figure::bars(&id, "figure 8", title, "journal", "tpmC").of_series(["tpmC"]).logarithmic();
        for (way, tpm_c) in WAYS.iter().zip(&each) {
            figure.place(way.name, [*tpm_c]);
        }
        figure.place("no device", [cap]);
        if in_memory {
            let [tmpfs, fuse] = loaded.in_memory(journal, plan)?;
            figure.place("tmpfs", [tmpfs]);
            figure.place("FUSE", [fuse]);
        }
        f.figures.push(figure);
        f.figures.push(loaded.by_flush(journal, plan, printed)?);
        let (figure, swept) = loaded.by_computing(journal, plan, free.rate(), printed)?;
        f.figures.push(figure);
        let slowest = each[..3].iter().copied().fold(f64::INFINITY, f64::min);
        let says = format!("DJFS is up to {printed} times as fast as ext4 with its journal on a device");
        let what = format!("{mode}: djfs / the slowest of three");
        f.claims
            .push(Claim::at_least("figure 8", &says, what, each[4] / slowest, printed).calibrated(&swept, COMPUTED));
    }
    if in_memory {
        f.assume("tmpfs, FUSE: the same in real time, everything in memory; no device: what computing alone allows");
    }
    Ok(f)
}

pub(super) fn grain(grain: Grain) -> &'static str {
    match grain {
        Grain::Transaction => "a commit for each transaction",
        Grain::Statement => "a commit for each statement",
    }
}

impl Plan {
    /// What the studies of TPC-C on the modelled drive take for granted.
    pub(super) fn assumed(&self) -> Findings {
        let mut f = self.assumed_of_mix();
        f.assume(format!(
            "drive: model samsung840 (write 50 us, 130 MB/s, flush 2 ms and 1 us to each dirty \
             KiB; all of it assumed); journals of {} MiB; {} transactions in NVRAM, {} on \
             devices",
            self.journal_mib, self.transactions, self.on_devices
        ));
        f.assume(format!("{} GiB of memory for pages and blocks (the paper's machine: 8 GB)", CACHE >> 30));
        f.assume(ways::ASSUMED);
        f.assume(
            "time is what devices take (virtual) and what the database's thread computes (measured): not \
             the same to the byte in two runs",
        );
        f
    }

    /// What they take for granted whatever the drive.
    pub(super) fn assumed_of_mix(&self) -> Findings {
        let mut f = Findings::default();
        let s = &self.scale;
        f.assume(format!(
            "TPC-C with {} warehouses, {} customers and {} items to each (the paper: 10, 3000, 100000)",
            s.warehouses, s.customers, s.items
        ));
        f.assume(format!(
            "SQLite's pages of {} bytes, its default then; {}, which is assumed: table 1 shows which multiple of \
             ordered's data ext4-journal then writes to the journal, beside the paper's",
            s.page,
            grain(self.grain)
        ));
        f
    }
}

/// What a cache line takes longer than in DRAM, in nanoseconds.
const LATENCIES: [u64; 5] = [0, 10, 20, 30, 40];
/// Rounds of what the processor bounds: how fast that is changes while other programs run.
const ROUNDS: usize = 3;

/// Figure 9.
///
/// # Errors
/// As [`figure8`].
pub fn figure9(plan: &Plan) -> Result<Findings> {
    let loaded = Loaded::new(plan)?;
    let model = Model::samsung_840();
    let tpm_c = |(way, model, ns): (Way, Model, u64)| {
        Ok::<_, anyhow::Error>(loaded.run(way, model, Duration::from_nanos(ns), Journal::Persist, plan)?.report.tpm_c())
    };
    let external = tpm_c((ways::EXTERNAL, model, 0))?;
    let journal = tpm_c((ways::JOURNAL, model, 0))?;
    // The cap first, then NVJ and DJFS at each latency.
    let mut points = vec![(ways::NONE, Model::default(), 0)];
    points.extend(LATENCIES.iter().flat_map(|ns| [(ways::NVJ, model, *ns), (ways::DJFS, model, *ns)]));
    let mut measured = vec![Vec::new(); points.len()];
    for (_, n) in turns(ROUNDS, points.len()) {
        measured[n].push(tpm_c(points[n])? / external);
    }
    let spread: Vec<Spread> = measured.into_iter().map(Spread::of).collect();
    let title = format!("TPC-C on SQLite (PERSIST) by the latency of NVRAM, {}", grain(plan.grain));
    let mut figure = Figure::bars("djfs-9", "figure 9", title, "ns more than DRAM", "times external journaling")
        .of_series(["nvj", "djfs", "no device"]);
    for (n, ns) in LATENCIES.iter().enumerate() {
        figure.place(ns, [&spread[1 + 2 * n], &spread[2 + 2 * n], &spread[0]]);
    }
    let medians: Vec<f64> = spread.iter().map(|s| s.median).collect();
    let free = loaded.run(ways::NONE, Model::default(), Duration::ZERO, Journal::Persist, plan)?.report;
    let (by_computing, computing) = loaded.figure9_by_computing(plan, free.rate())?;
    let (by_store, store) = loaded.by_store(plan)?;
    let mut f = plan.assumed();
    f.figures.extend([figure, by_computing, by_store]);
    f.claims = figure9_claims(journal / external, &medians, &computing, &store);
    Ok(f)
}

/// Of full journaling on the disk, and of the cap, NVJ and DJFS at each latency: times external journaling.
fn figure9_claims(journal: f64, medians: &[f64], [djfs, nvj]: &[Vec<f64>; 2], store: &[f64]) -> Vec<Claim> {
    let (last_nvj, last_djfs) = (medians[medians.len() - 2], medians[medians.len() - 1]);
    // The cap comes first, then NVJ and DJFS in turn.
    let of = |first: usize| -> Vec<f64> { medians[first..].iter().step_by(2).copied().collect() };
    let (left_of_nvj, left_of_djfs) = (left_by_line(&of(1)), left_by_line(&of(2)));
    let at = "figure 9";
    vec![
        Claim::at_least(
            at,
            "DJFS is up to 3.52 times as fast as journaling in NVRAM alone",
            "+40 ns: djfs / nvj",
            last_djfs / last_nvj,
            "3.52",
        )
        .calibrated(
            store,
            "a store is a cache line's latency here; the paper's flush each line and wait for a fence besides, and how long \
             that takes is not known",
        ),
        Claim::at_least(
            at,
            "DJFS is at worst 38.89 times as fast as full journaling on the disk",
            "+40 ns: djfs / ext4-journal",
            last_djfs / journal,
            "38.89",
        )
        .calibrated(djfs, COMPUTED),
        Claim::at_least(
            at,
            "journaling in NVRAM alone at worst 11.06 times",
            "+40 ns: nvj / ext4-journal",
            last_nvj / journal,
            "11.06",
        )
        .calibrated(nvj, COMPUTED),
        Claim::at_most(
            at,
            "journaling in NVRAM alone falls fast with the latency",
            "nvj: +40 ns / 0, by the line through all",
            left_of_nvj,
            0.9,
        ),
        Claim::above(
            at,
            "DJFS falls less than that",
            "what is left of djfs / of nvj, by the lines through all",
            left_of_djfs / left_of_nvj,
            1.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::tpcc::Scale;

    #[test]
    fn tpc_c_runs_on_the_library_and_nvram_spares_every_flush() {
        let scale = Scale { warehouses: 1, customers: 30, items: 200, page: 1024 };
        let plan = Plan {
            scale,
            grain: Grain::Statement,
            transactions: 40,
            on_devices: 20,
            journal_mib: 16,
            journals: vec![],
        };
        let loaded = Loaded::new(&plan).unwrap();
        for journal in [Journal::Persist, Journal::Wal, Journal::Delete] {
            let run = |way| loaded.run(way, Model::samsung_840(), Duration::ZERO, journal, &plan).unwrap();
            let (ordered, djfs) = (run(ways::ORDERED), run(ways::DJFS));
            assert_eq!((ordered.report.transactions(), djfs.report.transactions()), (20, 40));
            assert!(ordered.traffic.flushes > 20, "{ordered:?}");
            assert_eq!(
                (djfs.traffic.flushes, djfs.traffic.journal),
                (0, 0),
                "no region was filled: no device is touched"
            );
            assert!(djfs.report.tpm_c() > 5.0 * ordered.report.tpm_c());
        }
    }
}
