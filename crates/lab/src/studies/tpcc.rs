//! DJFS, figures 8 and 9: TPC-C on SQLite, on the library on the modelled Samsung 840. Time is what the devices take
//! (virtual) and what the database's thread computes, SQLite and the file system (measured, and charged as it is used);
//! the background thread has a processor of its own.
//!
//! Where computing bounds the factor, the cap is shown: the same run on devices that take no time and without a
//! journal; on tmpfs; and on a mount whose disk and NVRAM are files in memory, both in real time.

mod calibration;
pub(in crate::studies) mod latency;
mod loaded;

use anyhow::Result;
use quire_testkit::Model;

use super::ways::{self, Way};
use crate::results::{Claim, Figure, Findings};
use crate::stats::Spread;
use crate::turns::turns;
use crate::work::tpcc::{Grain, Journal, Scale};
use crate::work::vfs::computing_is_fixed;
use calibration::{Common, FIGURE_8, WITHIN};
pub use loaded::Plan;
pub(super) use loaded::{CACHE, Loaded, Machine, Outcome};

const WAYS: [Way; 6] = [ways::ORDERED, ways::JOURNAL, ways::EXTERNAL, ways::NVJ, ways::DJFS, ways::DJFS4];

/// Figures 8 and 9, which have one calibration.
///
/// # Errors
/// A file system or SQLite failed.
pub fn study(plan: &Plan, in_memory: bool) -> Result<Findings> {
    let loaded = Loaded::new(plan)?;
    // Times in memory are real.
    let in_memory = in_memory && !computing_is_fixed();
    let mut f = plan.assumed();
    let common = Common::measured(&loaded, plan)?;
    f.add(figure8(&loaded, plan, &common, in_memory)?);
    f.add(latency::study(&loaded, plan, &common)?);
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
             KiB; 130 MB/s is the data sheet's of the paper's 120 GB, the rest is assumed); journals of {} MiB; {} \
             transactions in NVRAM, {} on devices",
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
