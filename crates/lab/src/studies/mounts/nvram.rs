//! DJFS' figure 9 on mounts: TPC-C on SQLite with PERSIST, where a cache line of the simulated NVRAM takes longer.

use super::super::tpcc::latency::{HALF, LATENCIES, LINE, OF_STORE, SLIGHT};
use super::bed::{Measured, Rounds};
use super::{DJFS, EXTERNAL, JOURNAL, NVJ, SCATTER};
use crate::mounter::Mounter;
use crate::results::{ABOUT, Claim, Figure, with_one_row};
use crate::work::tpcc::Report;

/// The paper's highest latency beside DRAM's, in nanoseconds.
const SLOWEST: u64 = LATENCIES[LATENCIES.len() - 1];
/// Bytes of a write that takes the latency: a cache line; and what a store past the caches has (calibration).
const STORES: [u64; 2] = [LINE, 16];

/// What was measured: transactions a second.
pub(super) struct ByLatency {
    journal: f64,
    /// With the journal on a device of its own: the figure's unit.
    external: f64,
    /// NVJ and DJFS without the latency, then with it for each of [`STORES`].
    rates: Vec<[f64; 2]>,
}

/// What a cache line takes longer with each of [`STORES`].
pub(super) fn latencies() -> [u64; STORES.len()] {
    STORES.map(|store| SLOWEST * (LINE / store))
}

/// The mounters, where a cache line of NVRAM takes so much longer.
pub(super) fn slower(mounters: &[Mounter], ns: u64) -> Vec<Mounter> {
    mounters.iter().map(|mounter| mounter.with(&format!("nvram_latency_ns={ns}"))).collect()
}

/// Transactions a second, by the benchmark's own clock: without opening and closing the database.
pub(super) fn rate(m: &Measured<Report>) -> f64 {
    m.of.rate()
}

/// A figure which moves by less than rounds differ has not moved.
fn moved(from: f64, to: f64) -> f64 {
    if (to / from - 1.0).abs() < SCATTER { from } else { to }
}

impl ByLatency {
    /// Of runs on devices, and of NVJ and DJFS in NVRAM that is as fast as DRAM and slower; each first with PERSIST.
    pub(super) fn of(on_devices: &Rounds<Report>, fast: &Rounds<Report>, slow: &[Rounds<Report>]) -> Self {
        let both = |rounds: &Rounds<Report>| [NVJ, DJFS].map(|name| rounds.median(name, 0, rate));
        let rates = std::iter::once(fast).chain(slow).map(both).collect();
        let [journal, external] = [JOURNAL, EXTERNAL].map(|name| on_devices.median(name, 0, rate));
        ByLatency { journal, external, rates }
    }

    /// With the latency for this one of [`STORES`].
    fn row(&self, store: usize) -> [f64; 5] {
        let ([fast_nvj, fast_djfs], [nvj, djfs]) = (self.rates[0], self.rates[store + 1]);
        let (left_of_nvj, left_of_djfs) = (nvj / fast_nvj, djfs / fast_djfs);
        // In parts of a loss by which rounds differ themselves nothing is said.
        let lost = 1.0 - left_of_nvj;
        let slight = if lost < SCATTER { f64::NAN } else { (1.0 - left_of_djfs) / lost };
        [djfs / nvj, djfs / self.journal, nvj / self.journal, left_of_nvj, slight]
    }

    pub(super) fn figure(&self) -> Figure {
        let title = "TPC-C on SQLite (PERSIST) by the latency of NVRAM, mounts";
        let figure = Figure::bars("djfs-9-mounts", "figure 9", title, "ns more than DRAM", "times kernel external");
        let mut figure = figure.of_series([NVJ, DJFS]);
        let places = std::iter::once("0".to_owned()).chain(STORES.map(|store| format!("{SLOWEST} to {store} bytes")));
        for (place, rates) in places.zip(&self.rates) {
            figure.place(place, rates.map(|rate| rate / self.external));
        }
        figure
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        let (at, measured) = ("figure 9, on mounts", self.row(0));
        let about = |n: usize, says: &str, what: &str, printed: &str| {
            Claim::about(at, says, format!("+{SLOWEST} ns: {what}"), measured[n], (printed, ABOUT))
        };
        let falls = |n: usize, says: &str, what: String, limit: f64| Claim::at_most(at, says, what, measured[n], limit);
        let claims = [
            about(0, "DJFS is up to 3.52 times as fast as journaling in NVRAM alone", "quire djfs / quire nvj", "3.52"),
            about(
                1,
                "DJFS is at worst 38.89 times as fast as full journaling on the disk",
                "quire djfs / kernel journal",
                "38.89",
            ),
            about(2, "journaling in NVRAM alone at worst 11.06 times", "quire nvj / kernel journal", "11.06"),
            falls(
                3,
                "journaling in NVRAM alone falls rapidly with the latency",
                format!("quire nvj: +{SLOWEST} ns / 0"),
                HALF,
            ),
            falls(
                4,
                "DJFS falls slightly when compared to journaling in NVRAM alone",
                format!("what quire djfs loses / what quire nvj loses: +{SLOWEST} ns / 0"),
                SLIGHT,
            ),
        ];
        let values: Vec<String> = STORES[1..].iter().map(|store| format!("{store} bytes")).collect();
        let moved = |store: usize| {
            let row = self.row(store);
            std::array::from_fn::<f64, 5, _>(|n| moved(measured[n], row[n]))
        };
        let rows: Vec<_> = (1..self.rates.len() - 1).map(moved).collect();
        with_one_row(OF_STORE, &values[..rows.len()], claims, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::served::Asked;
    use Verdict::{Differs, Held, NotHeld};
    use std::time::Duration;

    fn rounds(of: &[(&str, u64)]) -> Rounds<Report> {
        let measured = |transactions: u64| {
            let report = Report { committed: [transactions, 0, 0, 0, 0], rolled_back: 0, took: Duration::from_secs(1) };
            vec![vec![Measured { of: report, asked: Asked::default(), seconds: 1.0 }]]
        };
        Rounds::of(of.iter().map(|(name, n)| ((*name).to_owned(), measured(*n))).collect())
    }

    #[test]
    fn claims_are_of_a_latency_to_each_line_and_a_store_of_sixteen_bytes_is_a_cause() {
        let of = |[nvj, djfs]: [u64; 2]| rounds(&[(NVJ, nvj), (DJFS, djfs)]);
        let verdicts = |slow: [[u64; 2]; 2]| {
            let all = ByLatency::of(&rounds(&[(JOURNAL, 100), (EXTERNAL, 200)]), &of([3000, 4000]), &slow.map(of));
            let figure = all.figure();
            assert_eq!((figure.places.len(), figure.count()), (3, 6));
            assert_eq!(figure.series[1].points[0].map(|point| point.value), Some(20.0), "times external journaling");
            all.claims().into_iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts([[1106, 3889], [900, 3000]]), [Held; 5]);
        assert_eq!(verdicts([[2500, 3950], [1106, 3889]]), [Differs, Held, Differs, Differs, Held]);
        assert_eq!(verdicts([[2500, 3950], [1106, 1500]]), [NotHeld, Held, NotHeld, NotHeld, Held]);
        assert_eq!(verdicts([[1106, 4390], [1106, 4270]])[1], NotHeld, "rounds differ by more");
    }

    #[test]
    fn the_latency_is_an_option_of_the_mount() {
        let mounters = ["quire:profile=djfs".parse().unwrap()];
        assert_eq!(
            latencies().map(|ns| slower(&mounters, ns)[0].to_string())[1],
            "quire:profile=djfs,nvram_latency_ns=160"
        );
    }
}
