//! Okeanos, section 6: the same streams without `O_SYNC`.

use std::time::Duration;

use anyhow::Result;

use super::super::streams::{KBIT, MBIT, Outcome, Streams};
use super::runs::each;
use super::series::{JOURNAL, ORDERED, SELECTIVE, WASTELESS, assumed, names};
use crate::results::{Claim, Effort, Figure, Findings, with_one_value};

/// What a call of write(2) takes beside what it waits for, in microseconds: assumed, and swept.
const CALL: f64 = 5.0;
/// The other values of it.
const CALLS: [f64; 2] = [1.0, 20.0];
/// The modes that wasteless and selective are compared with.
const BASELINES: [usize; 2] = [ORDERED, JOURNAL];
/// What is drawn of both.
const SHARES: [&str; 2] = ["the longer of both / ext4-ordered", "the longer of both / ext4-journal"];
/// "Two orders of magnitude": a hundred times, up to where the next one begins.
const TWO_ORDERS: (f64, f64) = (0.001, 0.01);

/// The longer latency of wasteless and selective in parts of a mode's, where a call takes `call` microseconds; NaN
/// where none of the three waits for anything, because then nothing is measured.
fn shorter(outcomes: &[Outcome], than: usize, call: f64) -> f64 {
    let mean = |n: usize| outcomes[n].latency.mean;
    part(mean(WASTELESS).max(mean(SELECTIVE)), mean(than), call)
}

fn part(longer: f64, other: f64, call: f64) -> f64 {
    if longer + other > 0.0 { (longer + call) / (other + call) } else { f64::NAN }
}

/// Streams without `O_SYNC`.
///
/// # Errors
/// A file system failed.
pub fn asynchronous(effort: Effort) -> Result<Findings> {
    let time = Duration::from_secs(effort.pick(10, 10, 30));
    let title = format!("Mean latency of asynchronous writes beside the call, {} s", time.as_secs());
    let mut latency = Figure::bars("okeanos-async", "section 6", title, "streams", "ms").of_series(names());
    let mut least = [f64::INFINITY; 2];
    let mut swept = Swept::default();
    for (name, count, bytes) in [("1000 of 1 Kbit/s", 1000, KBIT), ("40 of 1 Mbit/s", 40, MBIT)] {
        let outcomes = each(Streams { synchronous: false, ..Streams::new(count, bytes, time) })?;
        latency.place(name, outcomes.iter().map(|o| o.latency.mean / 1e3));
        let parts = BASELINES.map(|than| shorter(&outcomes, than, CALL));
        lower(&mut least, parts);
        swept.by_call(name, &outcomes);
    }
    let of_calls = swept.figure();
    let (figure, with_less) = by_memory(effort, &mut swept)?;
    let mut f = Findings { figures: vec![latency, of_calls, figure], ..Findings::default() };
    assumed(&mut f);
    f.assume(format!(
        "1 GiB of memory for data (the paper's server has 3 GB in all); the calibration has less; a call takes \
         {CALL} us beside what it waits for (calibration: {CALLS:?} us); a ratio of modes that wait for nothing is not \
         measured"
    ));
    f.assume(
        "not modelled, and the known difference: in jbd of Linux 2.6.18 a writer to a block that the committing \
         transaction is writing waits until that block is written, in place with ordered and in the journal with data \
         journaling; wasteless has copied the bytes and need not wait; here no writer waits for a commit",
    );
    f.claims = claims(least, with_less, &swept);
    Ok(f)
}

/// The less of both, where one is measured: `f64::min` passes over what is not.
fn lower(least: &mut [f64; 2], parts: [f64; 2]) {
    least.iter_mut().zip(parts).for_each(|(least, part)| *least = least.min(part));
}

/// The parts of ordered's and of data journaling's latency with other values of what is assumed.
#[derive(Default)]
struct Swept(Vec<(String, [f64; 2])>);

impl Swept {
    fn by_call(&mut self, streams: &str, outcomes: &[Outcome]) {
        let parts = |call| BASELINES.map(|than| shorter(outcomes, than, call));
        self.0.extend(CALLS.map(|call| (format!("a call of {call} us, {streams}"), parts(call))));
    }

    /// What has been tried so far: other times of a call.
    fn figure(&self) -> Figure {
        let title = "Latency of asynchronous writes by what a call takes (calibration)";
        let figure = Figure::bars("okeanos-async-call", "section 6", title, "with", "times");
        let mut figure = figure.of_series(SHARES).logarithmic();
        self.0.iter().for_each(|(with, parts)| figure.place(with, *parts));
        figure
    }
}

/// Asynchronous streams of 1 Mbit/s by the memory for data, and the least parts of all of it.
fn by_memory(effort: Effort, swept: &mut Swept) -> Result<(Figure, [f64; 2])> {
    let title = "Latency of asynchronous writes by memory, 40 streams of 1 Mbit/s (calibration)";
    let mut figure =
        Figure::lines("okeanos-async-memory", "section 6", title, "memory, MiB", "times").of_series(SHARES);
    let mut least = [f64::INFINITY; 2];
    let sizes: &[u64] = effort.pick(&[16, 64], &[16, 32, 64, 128, 256], &[16, 32, 64, 128, 256, 512]);
    for mib in sizes {
        let streams = Streams::new(40, MBIT, Duration::from_secs(effort.pick(10, 10, 30)));
        let outcomes = each(Streams { synchronous: false, memory: mib << 20, ..streams })?;
        let parts = BASELINES.map(|than| shorter(&outcomes, than, CALL));
        figure.place(mib, parts);
        lower(&mut least, parts);
        swept.0.push((format!("{mib} MiB"), parts));
    }
    Ok((figure, least))
}

/// Of the least parts with the study's memory or, where no mode waits with that, with less.
fn claims(least: [f64; 2], with_less: [f64; 2], Swept(swept): &Swept) -> Vec<Claim> {
    let says = "asynchronously, selective and wasteless shorten the latency by up to two orders of magnitude";
    let why = "here a write waits for memory alone, and for no commit; how much memory there is and what a call takes is \
         assumed";
    let claim = |n: usize, baseline: &str| {
        let what = format!("the longer of both / {baseline}, at best");
        let (what, least) = if least[n].is_finite() {
            (what, least[n])
        } else {
            (format!("{what}, with less memory: with the study's none of them waits"), with_less[n])
        };
        Claim::between("section 6, asynchronous", says, what, least, TWO_ORDERS)
            .swept(swept.iter().map(|(_, parts)| parts[n]))
    };
    let values: Vec<String> = swept.iter().map(|(value, _)| value.clone()).collect();
    with_one_value(why, &values, vec![claim(0, "ext4-ordered"), claim(1, "ext4-journal")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    #[test]
    fn modes_that_wait_for_nothing_are_not_measured_and_a_call_takes_its_time() {
        assert!(part(0.0, 0.0, CALL).is_nan());
        assert!((part(0.0, 495.0, 5.0) - 0.01).abs() < 1e-9 && (part(3.0, 0.0, 1.0) - 4.0).abs() < 1e-9);
        let swept = [("16 MiB", [0.005, f64::NAN]), ("32 MiB", [0.4, 2.0])].map(|(value, of)| (value.to_owned(), of));
        let none = f64::INFINITY;
        let claims = super::claims([0.3, none], [0.005, 2.0], &Swept(swept.clone().into()));
        assert_eq!((claims[0].verdict, claims[1].verdict), (Verdict::Differs, Verdict::NotHeld));
        assert_eq!(
            (claims[0].measured, claims[1].measured),
            (Some(0.3), Some(2.0)),
            "one waits with less memory alone"
        );
        assert_eq!(super::claims([0.3, none], [0.4, none], &Swept(swept.into()))[1].measured, None);
        assert!(claims[0].cause().unwrap().contains("with 16 MiB 1 of the 2"), "{}", claims[0]);
    }
}
