//! Okeanos (USENIX ATC '11): what small synchronous writes cost in the journal, on the modelled 15,000 rpm disk, in
//! virtual time, the journal on a disk of its own. Figure 1, by the size of the requests, is here; figures 4a and 4b
//! and the time to recover are in `slow`, figure 4c in `fast`, writes without `O_SYNC` in `asynchronous`. Applications
//! are in [`postmark`], [`log_replay`] and [`server`], reads in [`readback`].

mod asynchronous;
pub mod calibration;
mod fast;
pub mod log_replay;
pub mod postmark;
pub mod readback;
pub(super) mod recovery;
mod runs;
pub mod series;
pub mod server;
mod slow;

use std::time::Duration;

use anyhow::Result;
use quire_fs::Profile;

pub use self::asynchronous::asynchronous;
pub use self::fast::fast;
use self::runs::{each, megabytes, of_modes};
use self::series::{JOURNAL, ORDERED, WRITEBACK, assumed, names};
pub use self::slow::slow;
use super::streams::{BLOCK, KBIT, Streams, run};
use crate::results::{ABOUT, Claim, Effort, Figure, Findings, with_one_value};
use crate::stats::float;

/// A figure by the number of streams, with the series of all modes.
fn by_streams(id: &str, of: &str, title: String, y: &str) -> Figure {
    Figure::lines(id, of, title, "streams", y).of_series(names())
}

/// Figure 1: bytes to the journal by the size of the requests.
///
/// # Errors
/// A file system failed.
pub fn requests(effort: Effort) -> Result<Findings> {
    let time = Duration::from_secs(effort.pick(20, 60, 300));
    let sizes: &[usize] =
        effort.pick(&[64, 1024, 4096], &[64, 256, 1024, 4096], &[64, 128, 256, 512, 1024, 2048, 4096]);
    let title = format!("Bytes to the journal, 100 threads, {} s", time.as_secs());
    let series = names().into_iter().chain([WRITEBACK.0]);
    let mut figure = Figure::lines("okeanos-1", "figure 1", title, "request, B", "MB").of_series(series);
    let mut written: Vec<Vec<f64>> = Vec::new();
    for bytes in sizes {
        let streams = Streams::new(100, *bytes, time);
        let mut outcomes = each(streams)?;
        outcomes.push(run(WRITEBACK.1, streams)?);
        let row: Vec<f64> = outcomes.iter().map(|o| megabytes(o.traffic.journal)).collect();
        figure.place(bytes, row.iter().copied());
        written.push(row);
    }
    let (by_run, side_by_side) = side_by_side(sizes, time)?;
    let mut f = Findings { figures: vec![figure, by_run], ..Findings::default() };
    assumed(&mut f);
    f.assume("\"almost linearly\": a straight line leaves a twentieth of the variance at most");
    let paper: Vec<[f64; 3]> =
        written.iter().map(|row| [ORDERED, JOURNAL, row.len() - 1].map(|mode| row[mode])).collect();
    let claims = |rows: &[[f64; 3]]| request_claims("figure 1", OF_REQUESTS, sizes, rows);
    let others = claims(&side_by_side).into_iter().map(|claim| claim.measured);
    let swept = claims(&paper).into_iter().zip(others).map(|(claim, other)| claim.swept(other));
    f.claims = with_one_value(LEAVES, &["blocks of a file that lie side by side".into()], swept.collect());
    Ok(f)
}

/// Whose bytes figure 1's claims are of.
const OF_REQUESTS: [&str; 3] = ["ext4-ordered", "ext4-journal", WRITEBACK.0];

/// Why a request of a new block has more to log.
const LEAVES: &str = "a hundred files that grow at once lie among each other, so each has a leaf of extents of its own, \
     which each new block changes and each commit logs (okeanos-1-run has files whose blocks lie side by side), as it \
     does ext3's indirect blocks; what ordered's traffic grows by is this metadata alone, and data journaling logs it, too";

/// The same with files whose blocks lie side by side, so that an extent or two map all of one (calibration): the figure
/// by how they lie, and what [`OF_REQUESTS`] write by the size of the requests.
fn side_by_side(sizes: &[usize], time: Duration) -> Result<(Figure, Vec<[f64; 3]>)> {
    let title = "Bytes to the journal where a file's blocks lie side by side (calibration)";
    let mut figure = Figure::lines("okeanos-1-run", "figure 1", title, "request, B", "MB").of_series(OF_REQUESTS);
    let mut rows = Vec::new();
    for bytes in sizes {
        let run_of_all = (*bytes as u64 * time.as_secs()).div_ceil(BLOCK);
        let streams = Streams { run: Some(run_of_all), ..Streams::new(100, *bytes, time) };
        let mut outcomes = of_modes([ORDERED, JOURNAL], streams)?;
        outcomes.push(run(WRITEBACK.1, streams)?);
        let row = [0, 1, 2].map(|n| megabytes(outcomes[n].traffic.journal));
        figure.place(bytes, row);
        rows.push(row);
    }
    Ok((figure, rows))
}

/// Figure 1, at this place, by the size of the requests: what ordered, data journaling and writeback write to the
/// journal, by these names.
pub(in crate::studies) fn request_claims(
    at: &str,
    names: [&str; 3],
    sizes: &[usize],
    written: &[[f64; 3]],
) -> Vec<Claim> {
    let (small, large) = (written[0], written[written.len() - 1]);
    let [ordered, journal, writeback] = names;
    let mut claims = vec![
        Claim::at_least(
            at,
            "with small requests data journaling writes far more than it is given (several times ordered's)",
            format!("64 B: {journal} / {ordered}"),
            small[1] / small[0],
            3.0,
        ),
        Claim::about(
            at,
            "data journaling's traffic remains almost unchanged as the request grows to 4 KB",
            format!("{journal}: 4096 B / 64 B"),
            large[1] / small[1],
            (1.0, ABOUT),
        ),
    ];
    for (mode, name, n) in [("ordered", ordered, 0), ("writeback", writeback, 2)] {
        let points = sizes.iter().zip(written).map(|(bytes, row)| (float(*bytes as u64), row[n]));
        claims.push(Claim::at_least(
            at,
            &format!("{mode}'s traffic grows almost linearly with the request"),
            format!("{name}: part of the variance that a straight line explains"),
            fit_by_line(&points.collect::<Vec<_>>()),
            0.95,
        ));
        claims.push(Claim::above(
            at,
            &format!("{mode}'s traffic grows with the request"),
            format!("{name}: 4096 B / 64 B"),
            large[n] / small[n],
            1.0,
        ));
    }
    claims
}

/// The part of the variance of the second values that a straight line through all explains (R squared).
fn fit_by_line(points: &[(f64, f64)]) -> f64 {
    let n = float(points.len() as u64);
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let both = sum(&|p| (p.0 - x) * (p.1 - y));
    both * both / sum(&|p| (p.0 - x).powi(2)) / sum(&|p| (p.1 - y).powi(2))
}

/// A few streams on one profile, for tests.
///
/// # Errors
/// A file system failed.
pub fn small() -> Result<Findings> {
    let work = Streams::new(5, KBIT, Duration::from_secs(2));
    let outcome = run(Profile::Wasteless.choices(), work)?;
    let mut figure = Figure::bars("small", "none", "Mean latency, recovery", "what", "us").of_series(["wasteless"]);
    figure.place("latency", [outcome.latency.mean]);
    figure.place("recovery", [outcome.recovery.as_secs_f64() * 1e6]);
    figure.place("journal", [float(outcome.traffic.journal)]);
    Ok(Findings { figures: vec![figure], ..Findings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_explains_what_is_on_it_and_little_of_a_step() {
        assert!((fit_by_line(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)]) - 1.0).abs() < 1e-9);
        assert!(fit_by_line(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (10.0, 0.1), (11.0, 9.0)]) < 0.95);
    }

    /// Prints figures and claims of quick runs of the studies that `STUDIES` names:
    /// `STUDIES='slow fast' cargo test -p quire-lab --lib okeanos::tests::quick -- --ignored --nocapture`.
    #[test]
    #[ignore = "takes minutes and judges nothing"]
    fn quick_runs_are_printed() {
        type Study = fn(Effort) -> Result<Findings>;
        let all: [(&str, Study); 7] = [
            ("requests", requests),
            ("slow", slow),
            ("fast", fast),
            ("asynchronous", asynchronous),
            ("postmark", postmark::study),
            ("innodb", log_replay::study),
            ("server", server::study),
        ];
        let wanted = std::env::var("STUDIES").unwrap_or_default();
        for (name, study) in all.into_iter().filter(|(name, _)| wanted.split(' ').any(|w| w == *name)) {
            let found = study(Effort::Quick).unwrap();
            println!("# {name}");
            found.figures.iter().for_each(|figure| println!("{}: {}\n{}", figure.id, figure.title, figure.csv()));
            found.claims.iter().for_each(|claim| println!("{claim}"));
        }
    }
}
