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
use crate::work::tpcc::{Grain, Journal, Scale};
use calibration::{Common, DJFS_TO_JOURNAL, DJFS_TO_NVJ, FIGURE_8, NVJ_TO_JOURNAL, SLOWEST, WITHIN};
pub use loaded::Plan;
pub(super) use loaded::{CACHE, Loaded, Machine, Outcome};

const WAYS: [Way; 6] = [ways::ORDERED, ways::JOURNAL, ways::EXTERNAL, ways::NVJ, ways::DJFS, ways::DJFS4];

/// Figures 8 and 9, which have one calibration.
///
/// # Errors
/// A file system or SQLite failed.
pub fn study(plan: &Plan, in_memory: bool) -> Result<Findings> {
    let loaded = Loaded::new(plan)?;
    let mut f = plan.assumed();
    let common = Common::measured(&loaded, plan)?;
    f.add(figure8(&loaded, plan, &common, in_memory)?);
    f.add(figure9(&loaded, plan, &common)?);
    f.figures.push(common.figure);
    Ok(f)
}

fn figure8(loaded: &Loaded, plan: &Plan, common: &Common, in_memory: bool) -> Result<Findings> {
    let mut f = Findings::default();
    let mut factors = Vec::new();
    for journal in plan.journals.iter().copied() {
        let mode = journal.name();
        let printed = if journal == Journal::Wal { "26.5" } else { "64.2" };
        let tpm_c = |way, on| Ok::<_, anyhow::Error>(loaded.run(way, on, journal, plan)?.report.tpm_c());
        let drive = Machine::with(Model::samsung_840());
        let mut each = vec![Vec::new(); WAYS.len()];
        for (_, n) in turns(plan.rounds, WAYS.len()) {
            each[n].push(tpm_c(WAYS[n], drive)?);
        }
        let each: Vec<Spread> = each.into_iter().map(Spread::of).collect();
        let title = format!("{mode}: TPC-C on SQLite, {}", plan.of_figures());
        let id = format!("djfs-8-{}", mode.to_lowercase());
        let mut figure = Figure::bars(&id, "figure 8", title, "journal", "tpmC").of_series(["tpmC"]).logarithmic();
        for (way, rounds) in WAYS.iter().zip(&each) {
            figure.place(way.name, [rounds]);
        }
        figure.place("no device", [tpm_c(ways::NONE, Machine::with(Model::default()))?]);
        if in_memory {
            let [tmpfs, fuse] = loaded.in_memory(journal, plan)?;
            figure.place("tmpfs", [tmpfs]);
            figure.place("FUSE", [fuse]);
        }
        f.figures.extend([figure, loaded.by_flush(journal, plan, printed)?]);
        let factor = each[4].median / each[..3].iter().map(|rounds| rounds.median).fold(f64::INFINITY, f64::min);
        let says = format!("DJFS is up to {printed} times as fast as ext4 with its journal on a device");
        let what = format!("{mode}: djfs / the slowest of three");
        let claim = Claim::about("figure 8", &says, what, factor, (printed, WITHIN));
        f.claims.push(if journal == Journal::Persist {
            common.judged(claim, FIGURE_8)
        } else {
            let with_guess = common.factor_of(loaded, journal, plan)?;
            f.figures.push(with_common(common, mode, printed, [factor, with_guess]));
            common.judged_with(claim, with_guess)
        });
        factors.push((journal, factor));
    }
    f.claims.extend(more_in_rollback(&factors));
    f.assume(format!(
        "bars of figure 8 are means of {} rounds, because what is computed is measured; claims are of medians",
        plan.rounds
    ));
    if in_memory {
        f.assume("tmpfs, FUSE: the same in real time, everything in memory; no device: what computing alone allows");
    }
    Ok(f)
}

/// The factor here, and with the guess that comes nearest to the paper's numbers with PERSIST.
fn with_common(common: &Common, mode: &str, printed: &str, factors: [f64; 2]) -> Figure {
    let id = format!("djfs-8-{}-common", mode.to_lowercase());
    let title = format!("{mode}: djfs with the guess that suits PERSIST best (calibration)");
    let series = "djfs / the slowest";
    let mut figure =
        Figure::bars(&id, "figure 8", title, "computing, a store of a cache line", "times as fast").of_series([series]);
    for (place, factor) in ["as in figure 8".to_owned(), common.place()].into_iter().zip(factors) {
        figure.place(&place, [factor]);
        figure.printed(&place, series, printed.parse().expect("a printed number"));
    }
    figure
}

/// Section VI.2 beside figure 8.
fn more_in_rollback(factors: &[(Journal, f64)]) -> Option<Claim> {
    let of = |journal| factors.iter().find(|(other, _)| *other == journal).map(|(_, factor)| *factor);
    Some(Claim::above(
        "figure 8, section VI.2",
        "fsyncs cost a journal on a device more in Rollback mode than in WAL mode",
        "djfs / the slowest of three: PERSIST / WAL",
        of(Journal::Persist)? / of(Journal::Wal)?,
        1.0,
    ))
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
        f.assume("\"up to\" and \"at worst\" in figures 8 and 9: a tenth more or less");
        f.assume(
            "time is what devices take (virtual) and what the database's thread computes (measured): not \
             the same to the byte in two runs",
        );
        f
    }

    /// What a figure's title says of them.
    fn of_figures(&self) -> String {
        let Scale { customers, items, .. } = self.scale;
        let memory = CACHE >> 30;
        format!("{customers} customers to a district, {items} items, {memory} GiB of memory, {}", grain(self.grain))
    }

    /// What they take for granted whatever the drive.
    pub(super) fn assumed_of_mix(&self) -> Findings {
        let mut f = Findings::default();
        let s = &self.scale;
        f.assume(format!(
            "TPC-C with {} warehouses (the paper: 10), {} customers to a district and {} items (the specification: \
             3000 and 100000; the paper does not say)",
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

/// With PERSIST.
fn figure9(loaded: &Loaded, plan: &Plan, common: &Common) -> Result<Findings> {
    let model = Model::samsung_840();
    let tpm_c = |(way, model, ns): (Way, Model, u64)| {
        let on = Machine { line: Duration::from_nanos(ns), ..Machine::with(model) };
        Ok::<_, anyhow::Error>(loaded.run(way, on, Journal::Persist, plan)?.report.tpm_c())
    };
    let external = tpm_c((ways::EXTERNAL, model, 0))?;
    let journal = tpm_c((ways::JOURNAL, model, 0))?;
    // The cap first, then both on drives that take no time, then NVJ and DJFS at each latency.
    let mut points = [ways::NONE, ways::NVJ, ways::DJFS].map(|way| (way, Model::default(), 0)).to_vec();
    points.extend(LATENCIES.iter().flat_map(|ns| [(ways::NVJ, model, *ns), (ways::DJFS, model, *ns)]));
    let mut measured = vec![Vec::new(); points.len()];
    for (_, n) in turns(plan.rounds, points.len()) {
        measured[n].push(tpm_c(points[n])? / external);
    }
    let spread: Vec<Spread> = measured.into_iter().map(Spread::of).collect();
    let title = format!("TPC-C on SQLite (PERSIST) by the latency of NVRAM, {}", plan.of_figures());
    let mut figure = Figure::bars("djfs-9", "figure 9", title, "ns more than DRAM", "times external journaling")
        .of_series(["nvj", "djfs", "no device"]);
    for (n, ns) in LATENCIES.iter().enumerate() {
        figure.place(ns, [&spread[3 + 2 * n], &spread[4 + 2 * n], &spread[0]]);
    }
    let medians: Vec<f64> = spread.iter().map(|s| s.median).collect();
    let (of_computing, medians) = (medians[2] / medians[1], &medians[3..]);
    let mut f = Findings::default();
    f.assume("\"rapidly\": at most half is left with the highest latency; \"slightly\": at least nine tenths");
    f.assume("\"negligible\": deltas cost at most a tenth of the throughput, on drives that take no time");
    f.claims = figure9_claims(journal / external, medians, common);
    f.claims.push(Claim::at_least(
        "section V.2",
        "what deltas cost to compute is negligible beside journaling of whole blocks",
        "djfs / nvj on drives that take no time, +0 ns",
        of_computing,
        LEFT,
    ));
    f.figures.push(figure);
    f.skipped.push(
        "figure 9 on mounts: what a store to NVRAM takes longer is modelled in virtual time alone; the kernel's journals \
         on devices are in djfs-table1-mounts"
            .into(),
    );
    Ok(f)
}

/// "Slightly" and "negligible": what is left of the throughput.
const LEFT: f64 = 0.9;
/// "Rapidly".
const HALF: f64 = 0.5;

/// Of full journaling on the disk, and of NVJ and DJFS in turn at each latency: times external journaling.
fn figure9_claims(journal: f64, medians: &[f64], common: &Common) -> Vec<Claim> {
    let (last_nvj, last_djfs) = (medians[medians.len() - 2], medians[medians.len() - 1]);
    let of = |first: usize| -> Vec<f64> { medians[first..].iter().step_by(2).copied().collect() };
    let (left_of_nvj, left_of_djfs) = (left_by_line(&of(0)), left_by_line(&of(1)));
    let (at, slowest) = ("figure 9", format!("+{} ns", SLOWEST.as_nanos()));
    let about = |n: usize, says: &str, what: &str, measured: f64, printed: &str| {
        let claim = Claim::about(at, says, format!("{slowest}: {what}"), measured, (printed, WITHIN));
        common.judged(claim, n)
    };
    let to_nvj = "DJFS is up to 3.52 times as fast as journaling in NVRAM alone";
    let to_journal = "DJFS is at worst 38.89 times as fast as full journaling on the disk";
    let nvj_to_journal = "journaling in NVRAM alone at worst 11.06 times";
    vec![
        about(DJFS_TO_NVJ, to_nvj, "djfs / nvj", last_djfs / last_nvj, "3.52"),
        about(DJFS_TO_JOURNAL, to_journal, "djfs / ext4-journal", last_djfs / journal, "38.89"),
        about(NVJ_TO_JOURNAL, nvj_to_journal, "nvj / ext4-journal", last_nvj / journal, "11.06"),
        Claim::at_most(
            at,
            "journaling in NVRAM alone falls rapidly with the latency",
            "nvj: +40 ns / 0, by the line through all",
            left_of_nvj,
            HALF,
        ),
        Claim::at_least(
            "figure 9, section VI.3",
            "DJFS falls slightly",
            "djfs: +40 ns / 0, by the line through all",
            left_of_djfs,
            LEFT,
        ),
        Claim::above(
            at,
            "DJFS falls less than journaling in NVRAM alone",
            "what is left of djfs / of nvj, by the lines through all",
            left_of_djfs / left_of_nvj,
            1.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tpc_c_runs_on_the_library_and_nvram_spares_every_flush() {
        let scale = Scale { warehouses: 1, customers: 30, items: 200, page: 1024 };
        let plan = Plan {
            scale,
            grain: Grain::Statement,
            transactions: 40,
            on_devices: 20,
            rounds: 1,
            journal_mib: 16,
            journals: vec![],
        };
        let loaded = Loaded::new(&plan).unwrap();
        for journal in [Journal::Persist, Journal::Wal, Journal::Delete] {
            let run = |way| loaded.run(way, Machine::with(Model::samsung_840()), journal, &plan).unwrap();
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
