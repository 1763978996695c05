//! DJFS, figure 9: TPC-C on SQLite with PERSIST by the latency of NVRAM.
//!
//! The paper says by how much a write to NVRAM takes longer than one to DRAM, and not how large a write is. Here it is
//! a cache line; [`STORES`] are other sizes.

use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::super::ways::{self, Way};
use super::calibration::{Common, DJFS_TO_JOURNAL, DJFS_TO_NVJ, NVJ_TO_JOURNAL, SLOWEST, WITHIN};
use super::loaded::{Loaded, Machine, Plan};
use crate::results::{Claim, Figure, Findings, with_one_row};
use crate::stats::{Spread, left_by_line};
use crate::turns::turns;
use crate::work::tpcc::Journal;

/// What a cache line takes longer than in DRAM, in nanoseconds.
pub(in crate::studies) const LATENCIES: [u64; 5] = [0, 10, 20, 30, 40];
/// Bytes that the caches write at once.
pub(in crate::studies) const LINE: u64 = 64;
/// Bytes of a store of which each takes the latency (calibration): a store past the caches writes 16 (SSE) or 8.
const STORES: [u64; 3] = [32, 16, 8];
/// Of [`LATENCIES`], those of the calibration, at even distances.
const OF_STORES: [u64; 3] = [0, 20, 40];

/// "Negligible": what is left of the throughput.
const LEFT: f64 = 0.9;
/// "Rapidly": what is left.
pub(in crate::studies) const HALF: f64 = 0.5;
/// "Slightly when compared to": a part of what that loses.
pub(in crate::studies) const SLIGHT: f64 = 0.25;

/// A run: the way, the drive, and what a line takes longer.
type Point = (Way, Model, u64);

/// What was measured, in times external journaling.
struct Measured {
    /// Full journaling on the disk.
    journal: f64,
    /// Without a journal, on a drive that takes no time.
    cap: Spread,
    /// DJFS by NVJ on drives that take no time.
    computing: f64,
    /// NVJ and DJFS at each of [`LATENCIES`].
    by_latency: [Vec<Spread>; 2],
    /// The same by the bytes of a store, at each of [`OF_STORES`].
    by_store: Vec<(u64, [Vec<f64>; 2])>,
}

/// Figure 9.
pub(super) fn study(loaded: &Loaded, plan: &Plan, common: &Common) -> Result<Findings> {
    let measured = measure(loaded, plan)?;
    let title = format!("TPC-C on SQLite (PERSIST) by the latency of NVRAM, {}", plan.of_figures());
    let mut figure = Figure::bars("djfs-9", "figure 9", title, "ns more than DRAM", "times external journaling")
        .of_series(["nvj", "djfs", "no device"]);
    let [nvj, djfs] = &measured.by_latency;
    for ((ns, nvj), djfs) in LATENCIES.iter().zip(nvj).zip(djfs) {
        figure.place(ns, [nvj, djfs, &measured.cap]);
    }
    let mut f = Findings { figures: vec![figure, measured.stores()], ..Findings::default() };
    f.assume(
        "\"rapidly\": at most half is left with the highest latency; \"slightly when compared to\" NVJ: at most a quarter of \
         what NVJ loses",
    );
    f.assume("\"negligible\": deltas cost at most a tenth of the throughput, on drives that take no time");
    f.assume(format!("figure 9: a write to NVRAM is a cache line of {LINE} bytes"));
    f.claims = measured.claims(common);
    Ok(f)
}

fn measure(loaded: &Loaded, plan: &Plan) -> Result<Measured> {
    let model = Model::samsung_840();
    let tpm_c = |(way, model, ns): Point| {
        let on = Machine { line: Duration::from_nanos(ns), ..Machine::with(model) };
        Ok::<_, anyhow::Error>(loaded.run(way, on, Journal::Persist, plan)?.report.tpm_c())
    };
    let external = tpm_c((ways::EXTERNAL, model, 0))?;
    let journal = tpm_c((ways::JOURNAL, model, 0))? / external;
    let both = |ns: u64| [ways::NVJ, ways::DJFS].map(|way| (way, model, ns));
    let stores = || STORES.iter().flat_map(|store| OF_STORES[1..].iter().map(move |ns| (*store, *ns)));
    // The cap first, then both on drives that take no time, then NVJ and DJFS by what a line takes.
    let mut points: Vec<Point> = [ways::NONE, ways::NVJ, ways::DJFS].map(|way| (way, Model::default(), 0)).into();
    points.extend(LATENCIES.into_iter().flat_map(both));
    points.extend(stores().flat_map(|(store, ns)| both(ns * (LINE / store))));
    let mut measured = vec![Vec::new(); points.len()];
    for (_, n) in turns(plan.rounds, points.len()) {
        measured[n].push(tpm_c(points[n])? / external);
    }
    let mut spread = measured.into_iter().map(Spread::of);
    let mut next = || spread.next().expect("a point");
    let [cap, nvj, djfs] = [(); 3].map(|()| next());
    let mut by_latency = [Vec::new(), Vec::new()];
    LATENCIES.iter().for_each(|_| by_latency.iter_mut().for_each(|of| of.push(next())));
    let mut by_store = Vec::new();
    for store in STORES {
        let mut of = by_latency.each_ref().map(|spread| vec![spread[0].median]);
        OF_STORES[1..].iter().for_each(|_| of.iter_mut().for_each(|of| of.push(next().median)));
        by_store.push((store, of));
    }
    Ok(Measured { journal, cap, computing: djfs.median / nvj.median, by_latency, by_store })
}

impl Measured {
    fn medians(&self) -> [Vec<f64>; 2] {
        self.by_latency.each_ref().map(|spread| spread.iter().map(|s| s.median).collect())
    }

    /// What is left at the highest latency, by the bytes of a store.
    fn stores(&self) -> Figure {
        let title = "by the bytes of a store that takes the latency (calibration)";
        let series = ["nvj: +40 ns / 0", "djfs: +40 ns / 0"];
        let mut figure = Figure::bars("djfs-9-store", "figure 9", title, "bytes", "what is left").of_series(series);
        figure.place(LINE, self.medians().map(|of| left_by_line(&of)));
        for (store, of) in &self.by_store {
            figure.place(store, of.each_ref().map(|of| left_by_line(of)));
        }
        figure
    }

    fn claims(&self, common: &Common) -> Vec<Claim> {
        let [nvj, djfs] = self.medians().map(|of| of[of.len() - 1]);
        let (at, slowest) = ("figure 9", format!("+{} ns", SLOWEST.as_nanos()));
        let about = |n: usize, says: &str, what: &str, measured: f64, printed: &str| {
            let claim = Claim::about(at, says, format!("{slowest}: {what}"), measured, (printed, WITHIN));
            common.judged(claim, n)
        };
        let to_nvj = "DJFS is up to 3.52 times as fast as journaling in NVRAM alone";
        let to_journal = "DJFS is at worst 38.89 times as fast as full journaling on the disk";
        let nvj_to_journal = "journaling in NVRAM alone at worst 11.06 times";
        let mut claims = self.of_store(about(DJFS_TO_NVJ, to_nvj, "djfs / nvj", djfs / nvj, "3.52"));
        claims.extend([
            about(DJFS_TO_JOURNAL, to_journal, "djfs / ext4-journal", djfs / self.journal, "38.89"),
            about(NVJ_TO_JOURNAL, nvj_to_journal, "nvj / ext4-journal", nvj / self.journal, "11.06"),
        ]);
        claims.push(Claim::at_least(
            "section V.2",
            "what deltas cost to compute is negligible beside journaling of whole blocks",
            "djfs / nvj on drives that take no time, +0 ns",
            self.computing,
            LEFT,
        ));
        claims
    }

    /// The claims about what the latency takes, with how many bytes a store has as their cause: this one, and how much
    /// of the throughput is left.
    fn of_store(&self, to_nvj: Claim) -> Vec<Claim> {
        let row = |of: &[Vec<f64>; 2]| {
            let [nvj, djfs] = of.each_ref().map(|of| left_by_line(of));
            let last = of.each_ref().map(|of| of[of.len() - 1]);
            [last[1] / last[0], nvj, (1.0 - djfs) / (1.0 - nvj), djfs / nvj]
        };
        let [_, nvj, slight, less] = row(&self.medians());
        let (at, through_all) = ("figure 9, section VI.3", "+40 ns / 0, by the lines through all");
        let claims = [
            to_nvj,
            Claim::at_most(
                at,
                "journaling in NVRAM alone falls rapidly with the latency",
                format!("nvj: {through_all}"),
                nvj,
                HALF,
            ),
            Claim::at_most(
                at,
                "DJFS falls slightly when compared to journaling in NVRAM alone",
                format!("what djfs loses / what nvj loses: {through_all}"),
                slight,
                SLIGHT,
            ),
            Claim::above(
                at,
                "DJFS falls less than journaling in NVRAM alone",
                format!("what is left of djfs / of nvj: {through_all}"),
                less,
                1.0,
            ),
        ];
        let values: Vec<String> = self.by_store.iter().map(|(store, _)| format!("{store} bytes")).collect();
        let rows: Vec<_> = self.by_store.iter().map(|(_, of)| row(of)).collect();
        with_one_row(OF_STORE, &values, claims, &rows)
    }
}

/// Why the latency may cost more than here.
pub(in crate::studies) const OF_STORE: &str =
    "how many bytes a write to NVRAM has, which takes the latency, is assumed to be a cache line";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use Verdict::{Differs, Held, NotHeld};

    /// Both fall by what 40 ns to each line take, in parts of what they take without.
    fn measured(parts: [f64; 2]) -> Measured {
        let at = |part: f64, ns: u64, store: u64| (1.0 + part * (ns * (LINE / store)) as f64 / 40.0).recip();
        let by_latency = parts.map(|part| LATENCIES.map(|ns| Spread::of(vec![at(part, ns, LINE)])).into());
        let of = |store| (store, parts.map(|part| OF_STORES.map(|ns| at(part, ns, store)).into()));
        let cap = Spread::of(vec![2.0]);
        Measured { journal: 1.0, cap, computing: 1.0, by_latency, by_store: STORES.map(of).into() }
    }

    #[test]
    fn a_smaller_store_is_the_cause_of_a_slow_fall_if_djfs_still_falls_slightly() {
        let of = |parts| {
            let claim = Claim::about("figure 9", "", "djfs / nvj", 1.0, ("3.52", WITHIN));
            measured(parts).of_store(claim).into_iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        // DJFS by NVJ, and the falls. 32 bytes: 4 / 1.2.
        assert_eq!(of([1.5, 0.1]), [Differs, Held, Held, Held]);
        assert_eq!(of([0.3, 0.02]), [NotHeld, Differs, Held, Held], "no store has the first number");
        assert_eq!(of([0.3, 0.06]), [NotHeld, NotHeld, Held, Held], "DJFS loses more than a quarter with 16 bytes");
        assert_eq!(of([0.01, 0.02]), [NotHeld; 4]);
    }

    #[test]
    fn the_figure_has_a_place_for_each_size_of_a_store() {
        let figure = measured([0.3, 0.02]).stores();
        assert_eq!(figure.places, ["64", "32", "16", "8"]);
        let left: Vec<f64> = figure.series[0].points.iter().map(|point| point.unwrap().value).collect();
        assert!(left.is_sorted_by(|a, b| a > b) && left[0] < 0.8, "{left:?}");
    }
}
