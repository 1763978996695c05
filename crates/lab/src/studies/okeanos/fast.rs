//! Okeanos, figure 4c: the latency of streams of 1 Mbit/s by their number. The paper prints no number of streams, so
//! each claim is of the number at which it is strongest.

use std::time::Duration;

use anyhow::Result;

use super::super::NILFS;
use super::super::streams::{MBIT, PERIOD, Streams};
use super::by_streams;
use super::calibration::{ByRun, ORDERS, of_run, times_the_others};
use super::runs::{each, per_second};
use super::series::{ORDERED, SELECTIVE, SERIES, assumed};
use crate::results::{Claim, Effort, Findings};

/// Figure 4c: streams of 1 Mbit/s.
///
/// # Errors
/// A file system failed.
pub fn fast(effort: Effort) -> Result<Findings> {
    let counts: &[u64] = effort.pick(&[20, 150], &[20, 40, 60, 100, 150, 200], &[20, 40, 60, 80, 100, 130, 150, 200]);
    let time = Duration::from_secs(effort.pick(5, 10, 20));
    let title = |what: &str| format!("{what}, streams of 1 Mbit/s, {} s", time.as_secs());
    let mut latency =
        by_streams("okeanos-4c", "figure 4c", title("Mean latency of a synchronous write"), "ms").logarithmic();
    let mut home = by_streams("okeanos-4c-fs", "figure 4c", title("Bytes to the file system"), "MB/s");
    let mut parts = Vec::new();
    for count in counts {
        let outcomes = each(Streams { spread: PERIOD, ..Streams::new(*count, MBIT, time) })?;
        latency.place(count, outcomes.iter().map(|o| o.latency.mean / 1e3));
        home.place(count, outcomes.iter().map(|o| per_second(o.traffic.fs, o.time)));
        parts.push((*count, MODES.map(|mode| times_the_others(&outcomes, mode))));
    }
    let of_claims = [0, 1].map(|n| strongest(&parts, n).0);
    let by_run = of_run(effort, of_claims, time)?;
    let mut f = Findings { figures: vec![latency, home, by_run.figure.clone()], ..Findings::default() };
    assumed(&mut f);
    f.assume(format!(
        "the paper prints no number of streams of figure 4c: it is swept, and a claim is of the number at which it is \
         strongest; streams begin one after the other within a second; \"orders of magnitude\": {ORDERS} times"
    ));
    f.assume(format!(
        "an append gets its blocks side by side, as ext4 gives them to what is written back; in the calibration, of as \
         many streams as the claims ({} and {}), files have space before, so many blocks of each in turn, and are \
         appended to alike",
        of_claims[0], of_claims[1]
    ));
    f.claims = claims(&parts, &by_run);
    f.skipped.push(NILFS.into());
    Ok(f)
}

/// The modes of the claims.
const MODES: [usize; 2] = [ORDERED, SELECTIVE];

/// The number of streams at which the claim of a mode is strongest, with that number's parts.
fn strongest(parts: &[(u64, [f64; 2])], mode: usize) -> (u64, [f64; 2]) {
    *parts.iter().max_by(|a, b| a.1[mode].total_cmp(&b.1[mode])).expect("a number of streams")
}

/// Figure 4c, of each number of streams: ordered's and selective's latency in parts of the others'.
fn claims(parts: &[(u64, [f64; 2])], by_run: &ByRun) -> Vec<Claim> {
    let claim = |says, n: usize| {
        let (count, parts) = strongest(parts, n);
        let what = format!("{count} streams: {} / the higher of both", SERIES[MODES[n]].0);
        Claim::at_least("figure 4c", says, what, parts[n], ORDERS)
    };
    by_run.judged([
        claim("ordered's latency is orders of magnitude above data journaling's and wasteless's", 0),
        claim("selective's latency is orders of magnitude above theirs, too", 1),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    fn by_run(parts: &[[f64; 2]]) -> ByRun {
        let runs: Vec<u64> = (1..).take(parts.len()).collect();
        ByRun::new(by_streams("", "", String::new(), ""), &runs, parts.to_vec())
    }

    #[test]
    fn a_claim_is_of_the_number_of_streams_at_which_it_is_strongest() {
        let parts = [(20, [2.0, 1.2]), (150, [40.0, 0.5]), (200, [30.0, 0.4])];
        let claims = |of: &[[f64; 2]]| super::claims(&parts, &by_run(of));
        let verdicts = |of: &[[f64; 2]]| claims(of).iter().map(|c| c.verdict).collect::<Vec<_>>();
        let claims = claims(&[[120.0, 110.0], [30.0, 20.0]]);
        assert!(claims[0].what.starts_with("150 streams") && claims[1].what.starts_with("20 streams"));
        assert!(
            claims
                .iter()
                .all(|c| c.verdict == Verdict::Differs && c.cause().unwrap().contains("runs of 1 blocks 2 of"))
        );
        assert_eq!(verdicts(&[[120.0, 20.0], [30.0, 110.0]]), [Verdict::Differs, Verdict::NotHeld]);
        assert_eq!(verdicts(&[[90.0, 90.0]]), [Verdict::NotHeld; 2]);
    }
}
