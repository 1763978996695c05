//! DJFS, figures 8 and 9, with other values of what the studies assume: what a flush of the drive takes, how long a
//! transaction computes, how long a store to NVRAM takes.

use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::super::ways;
use super::loaded::{Loaded, Plan};
use crate::results::{Figure, shown};
use crate::work::tpcc::Journal;

/// What a flush of the modelled drive takes in a calibration, in microseconds.
const FLUSHES: [u64; 4] = [50, 250, 1000, 2000];
/// What a flush takes where figure 7 has the paper's factor: see its calibration.
const FLUSH_OF_FIGURE_7: Duration = Duration::from_micros(2500);
/// How many times as long computing takes in a calibration.
const COMPUTING: [u64; 5] = [1, 2, 5, 10, 20];

impl Plan {
    /// Enough for a ratio.
    fn for_calibration(&self) -> Plan {
        Plan { transactions: self.transactions.div_ceil(4), on_devices: self.on_devices.div_ceil(3), ..self.clone() }
    }
}

/// What a transaction takes beside its own time, so that it computes so many times as long as at this rate.
fn beside(times: u64, rate: f64) -> Duration {
    Duration::from_secs_f64(crate::stats::float(times - 1) / rate)
}

impl Loaded {
    /// How many times as fast `djfs` is by what a flush takes.
    pub(super) fn by_flush(&self, journal: Journal, plan: &Plan, printed: &str) -> Result<Figure> {
        let (mode, series) = (journal.name(), "djfs / external");
        let title = format!("{mode}: djfs by what a flush takes, computing as here (calibration)");
        let id = format!("djfs-8-{}-flush", mode.to_lowercase());
        let mut figure =
            Figure::lines(&id, "figure 8", title, "flush, ms", "times as fast").of_series([series]).logarithmic();
        let plan = plan.for_calibration();
        for us in FLUSHES {
            let flush_ns_per_dirty_kib = if us < 1000 { 0 } else { Model::samsung_840().flush_ns_per_dirty_kib };
            let model = Model { flush: Duration::from_micros(us), flush_ns_per_dirty_kib, ..Model::samsung_840() };
            let tpm_c =
                |way| Ok::<_, anyhow::Error>(self.run(way, model, Duration::ZERO, journal, &plan)?.report.tpm_c());
            let place = shown(Duration::from_micros(us).as_secs_f64() * 1e3);
            figure.place(&place, [tpm_c(ways::DJFS)? / tpm_c(ways::EXTERNAL)?]);
            figure.printed(&place, series, printed.parse()?);
        }
        Ok(figure)
    }

    /// How many times as fast `djfs` is by how long a transaction computes, without a device so many a second, on a
    /// drive whose flush is that of figure 7: the figure, and its values.
    pub(super) fn by_computing(
        &self,
        journal: Journal,
        plan: &Plan,
        rate: f64,
        printed: &str,
    ) -> Result<(Figure, Vec<f64>)> {
        let (mode, series) = (journal.name(), "djfs / external");
        let flush = FLUSH_OF_FIGURE_7;
        let title = format!("{mode}: djfs by how long a transaction computes, flush {flush:?} (calibration)");
        let id = format!("djfs-8-{}-computing", mode.to_lowercase());
        let x = "computing, times";
        let mut figure = Figure::lines(&id, "figure 8", title, x, "times as fast").of_series([series]).logarithmic();
        let plan = plan.for_calibration();
        let model = Model { flush, ..Model::samsung_840() };
        let mut swept = Vec::new();
        for times in COMPUTING {
            let tpm_c = |way| {
                let o = self.run_beside(way, model, Duration::ZERO, journal, &plan, beside(times, rate))?;
                Ok::<_, anyhow::Error>(o.report.tpm_c())
            };
            let factor = tpm_c(ways::DJFS)? / tpm_c(ways::EXTERNAL)?;
            figure.place(times, [factor]);
            figure.printed(times, series, printed.parse()?);
            swept.push(factor);
        }
        Ok((figure, swept))
    }

    /// Figure 9 at its highest latency by how long a transaction computes, as [`Loaded::by_computing`]: the figure, and
    /// how many times as fast as full journaling DJFS and NVJ are.
    pub(super) fn figure9_by_computing(&self, plan: &Plan, rate: f64) -> Result<(Figure, [Vec<f64>; 2])> {
        let series = ["djfs / ext4-journal", "nvj / ext4-journal"];
        let flush = FLUSH_OF_FIGURE_7;
        let title = format!("+40 ns, by how long a transaction computes, flush {flush:?} (calibration)");
        let mut figure = Figure::lines("djfs-9-computing", "figure 9", title, "computing, times", "times as fast")
            .of_series(series)
            .logarithmic();
        let plan = plan.for_calibration();
        let model = Model { flush, ..Model::samsung_840() };
        let mut swept = [vec![], vec![]];
        for times in COMPUTING {
            let tpm_c = |way, line| {
                let o = self.run_beside(way, model, line, Journal::Persist, &plan, beside(times, rate))?;
                Ok::<_, anyhow::Error>(o.report.tpm_c())
            };
            let journal = tpm_c(ways::JOURNAL, Duration::ZERO)?;
            let factors = [tpm_c(ways::DJFS, SLOWEST)? / journal, tpm_c(ways::NVJ, SLOWEST)? / journal];
            figure.place(times, factors);
            series.iter().zip([38.89, 11.06]).for_each(|(series, printed)| figure.printed(times, series, printed));
            swept.iter_mut().zip(factors).for_each(|(swept, factor)| swept.push(factor));
        }
        Ok((figure, swept))
    }

    /// How many times as fast DJFS is as NVJ on memory that is slower than the paper's: the figure, and its values.
    pub(super) fn by_store(&self, plan: &Plan) -> Result<(Figure, Vec<f64>)> {
        let (series, title) = ("djfs / nvj", "djfs by the latency of NVRAM beyond the paper's (calibration)");
        let mut figure =
            Figure::lines("djfs-9-store", "figure 9", title, "ns more than DRAM", "times as fast").of_series([series]);
        let plan = plan.for_calibration();
        let mut swept = Vec::new();
        for ns in [40, 80, 160] {
            let tpm_c = |way| {
                let line = Duration::from_nanos(ns);
                let o = self.run(way, Model::samsung_840(), line, Journal::Persist, &plan)?;
                Ok::<_, anyhow::Error>(o.report.tpm_c())
            };
            let factor = tpm_c(ways::DJFS)? / tpm_c(ways::NVJ)?;
            figure.place(ns, [factor]);
            figure.printed(ns, series, 3.52);
            swept.push(factor);
        }
        Ok((figure, swept))
    }
}

/// The highest latency of figure 9.
const SLOWEST: Duration = Duration::from_nanos(40);
