//! Okeanos, section 6, on mounts: the same streams without `O_SYNC`, and how long a write(2) takes them.

use std::time::Duration;

use anyhow::Result;

use super::super::super::streams::{KBIT, MBIT, PERIOD};
use super::super::appends::Appends;
use super::super::bed::{Fresh, Measured, Rounds, sync};
use super::super::{JOURNAL, NONE, ORDERED, SELECTIVE, WASTELESS};
use crate::results::{Claim, Effort, Figure, Findings, with_one_row};

/// "Two orders of magnitude": a hundred times, up to where the next one begins.
const TWO_ORDERS: (f64, f64) = (0.001, 0.01);

/// Streams and what figures call them.
pub(super) struct Kind {
    name: &'static str,
    streams: Appends,
}

/// Slow streams and fast ones, which begin one after the other: a thousand threads at once would wait for processors.
/// The kernel commits every five seconds, which the fast ones of normal runs outlast.
pub(super) fn kinds(effort: Effort) -> [Kind; 2] {
    let [slow, fast] = effort.pick([1, 1], [2, 6], [6, 12]).map(Duration::from_secs);
    let spread = effort.pick(PERIOD / 5, PERIOD, PERIOD);
    let of = |count, bytes, time| Appends { synchronous: false, spread, ..Appends::new(count, bytes, time) };
    [
        Kind { name: "1000 of 1 Kbit/s", streams: of(1000, KBIT, slow) },
        Kind { name: "40 of 1 Mbit/s", streams: of(40, MBIT, fast) },
    ]
}

/// The mean latency of a write of each kind, in milliseconds.
pub(super) fn once(fresh: &Fresh<'_>, kinds: &[Kind; 2]) -> Result<Vec<Measured<f64>>> {
    let mounted = fresh.mount()?;
    let each = kinds.iter().map(|kind| {
        kind.streams.create(mounted.dir())?;
        sync(mounted.dir())?;
        fresh.measured(|| Ok(kind.streams.run(mounted.dir())?.latency.mean))
    });
    let measured = each.collect::<Result<_>>()?;
    mounted.unmount()?;
    Ok(measured)
}

/// Adds the figure and the claims.
pub(super) fn add(f: &mut Findings, rounds: &Rounds<f64>, kinds: &[Kind; 2]) {
    let [slow, fast] = kinds.each_ref().map(|kind| kind.streams.time.as_secs());
    let title = format!("Mean latency of asynchronous writes, {slow} s and {fast} s, mounts");
    let figure = Figure::bars("okeanos-async-mounts", "section 6", title, "mount", "ms").logarithmic();
    let names = kinds.iter().map(|kind| kind.name);
    f.figures.push(rounds.drawn(figure.of_series(names), &[0, 1], |m| m.of));
    f.claims.extend(claims(rounds, kinds));
    f.assume(format!(
        "asynchronous: one round of streams without O_SYNC for {slow} s (1 Kbit/s) and {fast} s (1 Mbit/s), begun one \
         after the other within {:?}; a write into the page cache waits for the kernel's commit, every 5 s, only where \
         it finds its block in the journal's hands; on Quire's mounts it goes through FUSE; the paper's kernel (Linux \
         2.6.18) waits there for blocks in place, too",
        kinds[0].streams.spread
    ));
}

/// Why nothing can be shorter than the kernel's write by much.
const WAITS_FOR_NOTHING: &str = "no write waits for this mode's commit in today's kernel: it takes what one takes \
     without a journal, a copy into the page cache; Quire's is a request to a process";
/// A mode whose writes take at most so many times what they take without a journal waits for nothing.
const COPIES: f64 = 2.0;

/// What bounds how much shorter any write can be.
const REQUEST: &str = "a write of Quire's in these modes is a request to a process, and the kernel's without a journal \
     is a copy into the page cache, which nothing undercuts";

/// "Up to": of the streams with which it is shortest.
fn claims(rounds: &Rounds<f64>, kinds: &[Kind]) -> Vec<Claim> {
    let latency = |name: &str, n: usize| rounds.median(name, n, |m| m.of);
    let ours = |n| latency(WASTELESS, n).max(latency(SELECTIVE, n));
    let least = |of: &dyn Fn(usize) -> f64, than: &str| {
        (0..kinds.len()).map(|n| of(n) / latency(than, n)).fold(f64::INFINITY, f64::min)
    };
    let best = |than: &str| least(&ours, than);
    let copied = [ORDERED, JOURNAL].map(|baseline| least(&|n| latency(NONE, n), baseline));
    let claims = [ORDERED, JOURNAL].map(|baseline| {
        let waits = (0..kinds.len()).any(|n| latency(baseline, n) > COPIES * latency(NONE, n));
        let claim = Claim::between(
            "section 6, asynchronous, on mounts",
            "asynchronously, selective and wasteless shorten the latency by up to two orders of magnitude",
            format!("the longer of both / {baseline}, at best"),
            best(baseline),
            TWO_ORDERS,
        );
        if waits { claim } else { claim.because_within(TWO_ORDERS.1..=best(NONE), WAITS_FOR_NOTHING) }
    });
    with_one_row(REQUEST, &["writes that only copy".to_owned()], claims, &[copied])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::served::Asked;

    #[test]
    fn the_claims_are_of_the_streams_with_which_both_are_shortest() {
        let of = |ordered: [f64; 2], wasteless: [f64; 2]| {
            let measured = |of: f64| Measured { of, asked: Asked::default(), seconds: 1.0 };
            let kernel = [(NONE, [0.1; 2]), (ORDERED, ordered), (JOURNAL, [1.0; 2])];
            let all = kernel.into_iter().chain([(WASTELESS, wasteless), (SELECTIVE, [0.1, 0.5])]);
            let rounds = all.map(|(name, of)| (name.to_owned(), vec![of.map(measured).into()]));
            let claims = claims(&Rounds::of(rounds.collect()), &kinds(Effort::Quick));
            assert!(
                claims[1].verdict != Verdict::NotHeld || claims[1].why.as_deref().is_some_and(|w| w.contains("copy"))
            );
            <[_; 2]>::try_from(claims.into_iter().map(|c| (c.verdict, c.measured)).collect::<Vec<_>>()).unwrap()
        };
        let (held, not) = (Verdict::Held, Verdict::NotHeld);
        assert_eq!(of([20.0, 1.0], [0.2, 0.5]), [(held, Some(0.01)), (not, Some(0.2))]);
        assert_eq!(
            of([20.0, 1.0], [0.3, 0.5]),
            [(Verdict::Differs, Some(0.015)), (not, Some(0.3))],
            "a copy takes 0.005"
        );
        assert_eq!(of([0.2, 0.1], [0.3, 0.5])[0], (Verdict::Differs, Some(1.5)), "ordered only copies");
    }

    #[test]
    fn streams_are_not_synchronous_and_fast_ones_of_normal_runs_outlast_a_commit() {
        let [slow, fast] = kinds(Effort::Normal);
        assert!(!slow.streams.synchronous && !fast.streams.synchronous && fast.streams.time.as_secs() > 5);
    }
}
