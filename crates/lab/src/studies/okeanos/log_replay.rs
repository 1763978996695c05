//! Okeanos, figure 5b (USENIX ATC '11): what InnoDB does to its transaction log, by each of its three ways to flush it,
//! replayed by many instances at once; on the modelled 15,000 rpm disks, in virtual time.
//!
//! The traces beside this file are of MariaDB, recorded by `scripts/innodb-trace.sh`. An instance issues each call when
//! the trace did, or at once if it is late by then. The time of a flush is from when it was due to its end (an open
//! loop), so with a file system that cannot keep up it grows with the length of the run. The time of the call alone is
//! drawn beside it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use quire_fs::Choices;
use quire_testkit::rng::content;

use super::series::{Journal, ORDERED, SERIES, WASTELESS, assume_disks, server};
use crate::results::{Claim, Effort, Figure, Findings, Swept, with_one_value};
use crate::rig::Body;
use crate::stage::{Durability, Stage};
use crate::stats::Spread;

/// `innodb_flush_log_at_trx_commit`, the paper's name for it, and the calls to the log.
pub(in super::super) const METHODS: [(u8, &str, &str); 3] = [
    (1, "Cmt/Disk", include_str!("innodb-log-1.trace")),
    (0, "Prd/Disk", include_str!("innodb-log-0.trace")),
    (2, "Cmt/Cache", include_str!("innodb-log-2.trace")),
];

/// A call to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write { offset: u64, len: usize },
    Flush,
}

/// Calls and when they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    calls: Vec<(Duration, Call)>,
    length: Duration,
    /// End of the furthest write.
    size: u64,
}

impl Trace {
    /// Of lines `MICROSECONDS write OFFSET LENGTH`, `MICROSECONDS flush`, and last `MICROSECONDS end`; `#` begins a
    /// comment.
    pub(in super::super) fn parse(text: &str) -> Result<Self> {
        let mut trace = Trace { calls: Vec::new(), length: Duration::ZERO, size: 0 };
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let at = Duration::from_micros(words[0].parse().with_context(|| line.to_owned())?);
            match words[1..] {
                ["write", offset, len] => {
                    let (offset, len): (u64, usize) = (offset.parse()?, len.parse()?);
                    trace.size = trace.size.max(offset + len as u64);
                    trace.calls.push((at, Call::Write { offset, len }));
                }
                ["flush"] => trace.calls.push((at, Call::Flush)),
                ["end"] => trace.length = at,
                _ => bail!("no call to a log: {line}"),
            }
        }
        anyhow::ensure!(!trace.length.is_zero() && !trace.calls.is_empty(), "an empty trace");
        Ok(trace)
    }
}

impl Trace {
    /// Of the method that flushes at each commit.
    ///
    /// # Errors
    /// It is no trace.
    pub fn of_each_commit() -> Result<Self> {
        Trace::parse(METHODS[0].2)
    }

    /// The same calls in a part of the time: a server that writes so many times as much.
    #[must_use]
    pub fn faster(&self, times: u32) -> Self {
        let calls = self.calls.iter().map(|(at, call)| (*at / times, *call)).collect();
        Trace { calls, length: self.length / times, size: self.size }
    }

    /// The same calls to a log of at most so many bytes, whose end goes on at its beginning as InnoDB's does.
    #[must_use]
    pub fn within(&self, size: u64) -> Self {
        let place = |call: Call| match call {
            Call::Write { offset, len } => {
                let end = offset % size + len as u64;
                Call::Write { offset: if end <= size { offset % size } else { 0 }, len }
            }
            Call::Flush => Call::Flush,
        };
        let calls = self.calls.iter().map(|(at, call)| (*at, place(*call))).collect();
        Trace { calls, length: self.length, size: self.size.min(size) }
    }

    /// The same calls from this moment on, those before it last.
    fn from(&self, moment: Duration) -> Self {
        let first = self.calls.partition_point(|(at, _)| *at < moment);
        let (last, calls) = self.calls.split_at(first);
        let calls = calls.iter().map(|(at, call)| (*at - moment, *call));
        let last = last.iter().map(|(at, call)| (*at + self.length - moment, *call));
        Trace { calls: calls.chain(last).collect(), length: self.length, size: self.size }
    }
}

/// An instance: what it does, and from when on.
struct Instance {
    trace: Trace,
    start: Duration,
}

/// What flushes of the log took, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flushes {
    /// From when each was due to its end.
    pub late: Spread,
    /// From when it was called to its end.
    pub call: Spread,
}

/// Replays a trace in virtual time, over and over, by so many instances for so long.
fn run(choices: Choices, trace: &Trace, instances: u64, time: Duration) -> Result<Flushes> {
    let mib = 256 + ((instances * trace.size) >> 20) * 5 / 4;
    let rig = server(choices, mib, Journal::Apart, true)?;
    let files = prepare(&rig, trace, instances)?;
    rig.settle()?;
    let start = rig.now();
    // They do not begin together: servers do not.
    let begins = parts(trace.length, files.len()).map(|own| Instance { trace: trace.clone(), start: start + own });
    let flushes = replayed(&rig, &files, begins.collect(), start + time)?;
    rig.close()?;
    Ok(flushes)
}

/// The beginning of each of so many equal parts of a time.
fn parts(time: Duration, count: usize) -> impl Iterator<Item = Duration> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    (0..count).map(move |n| time * n / count)
}

/// Makes the instances' logs, each whole before it is used, as InnoDB makes its log.
///
/// # Errors
/// The file system fails.
pub fn prepare<S: Stage>(stage: &S, trace: &Trace, instances: u64) -> Result<Vec<S::File>> {
    let make = |n| {
        let file = stage.create(&format!("log-{n}"))?;
        stage.write(&stage.open(&file, Durability::AtFlush)?, 0, &vec![0; usize::try_from(trace.size)?])?;
        Ok(file)
    };
    (0..instances).map(make).collect()
}

/// Replays a trace by an instance for each of these logs, which all begin now, each at another moment of the trace.
///
/// # Errors
/// The file system fails.
pub fn replay_at_once<S: Stage>(stage: &S, files: &[S::File], trace: &Trace, time: Duration) -> Result<Flushes> {
    let start = stage.now();
    let instances = parts(trace.length, files.len()).map(|own| Instance { trace: trace.from(own), start });
    replayed(stage, files, instances.collect(), start + time)
}

/// Has the instances replay their traces, each with a log of its own.
fn replayed<S: Stage>(stage: &S, files: &[S::File], instances: Vec<Instance>, end: Duration) -> Result<Flushes> {
    let bodies = files.iter().zip(instances).map(|(file, instance)| {
        Box::new(move || replay(stage, file, &instance, end)) as Body<'_, Result<Vec<(f64, f64)>>>
    });
    let (late, call) = stage.run(bodies.collect())?.concat().into_iter().unzip();
    Ok(Flushes { late: Spread::of(late), call: Spread::of(call) })
}

/// One instance; returns how late each flush ended, and what its call took, in seconds.
fn replay<S: Stage>(stage: &S, file: &S::File, instance: &Instance, end: Duration) -> Result<Vec<(f64, f64)>> {
    let (open, trace) = (stage.open(file, Durability::AtFlush)?, &instance.trace);
    let mut flushes = Vec::new();
    for turn in 0u32.. {
        for (at, call) in &trace.calls {
            let due = instance.start + trace.length * turn + *at;
            if due >= end {
                return Ok(flushes);
            }
            stage.sleep_until(due);
            match *call {
                Call::Write { offset, len } => {
                    stage.write(&open, offset, &content(u64::from(turn), offset, len))?;
                }
                Call::Flush => {
                    let called = stage.now();
                    stage.flush(&open)?;
                    let ended = stage.now();
                    flushes.push(((ended - due).as_secs_f64(), (ended - called).as_secs_f64()));
                }
            }
        }
    }
    unreachable!("it ends with its time")
}

/// Figure 5b.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let counts: &[u64] = effort.pick(&[16, 64], &[1, 16, 64, 128], &[1, 4, 16, 32, 64, 128]);
    let time = Duration::from_secs(effort.pick(10, 250, 500));
    let mut f = Findings::default();
    let mut means: Vec<(&str, Vec<Row>)> = Vec::new();
    let mut swept = Vec::new();
    for (method, name, text) in METHODS {
        let trace = Trace::parse(text)?;
        let figure = |id: &str, what: &str| {
            let title = format!("{name} (method {method}): mean time to flush the log, {what}, {} s", time.as_secs());
            let id = format!("okeanos-5b-{method}{id}");
            Figure::lines(&id, "figure 5b", title, "instances", "s").logarithmic().of_series(OF.map(|n| SERIES[n].0))
        };
        let (mut late, mut call) = (figure("", "from when it is due"), figure("-call", "the call alone"));
        let mut rows = Vec::new();
        for count in counts {
            let flushes = both(&trace, *count, time)?;
            let row = flushes.map(|f| f.late.mean);
            late.place(count, row);
            call.place(count, flushes.map(|f| f.call.mean));
            rows.push((*count, row));
        }
        f.figures.extend([late, call]);
        let (figure, of_method) = by_load(effort, method, name, &trace, counts)?;
        f.figures.push(figure);
        swept.push(of_method);
        means.push((name, rows));
    }
    let mut group = vec![most_of_wasteless(&means, &swept)];
    group.extend(means.iter().zip(&swept).flat_map(|((name, rows), swept)| claims(name, rows, swept)));
    let values: Vec<String> = loads(effort).iter().map(|times| format!("{times} times the writes")).collect();
    f.claims = with_one_value(LOAD, &values, group);
    assume_disks(&mut f, Journal::Apart);
    f.assume(format!(
        "the log's calls are of MariaDB 10.11 under 10 transactions a second of 20 connections, each of 25 changed \
         rows, 20 s of each method, over and over (the paper: MySQL under TPC-C with 20 warehouses, 500 s); {} s of \
         virtual time; instances begin one after the other",
        time.as_secs()
    ));
    f.assume(
        "the time of a flush is from the moment at which it is due in the trace to its end, in an open loop: where a \
         mode falls behind, it grows with the length of the run; the paper does not say whether its time is this or \
         the call's own, which okeanos-5b-1-call, -0-call and -2-call have",
    );
    f.assume(
        "times are means; \"up to tens of seconds\": the longest of all is 10 to 100 s; \"hundreds\": at least 100; \
         \"as the instances approach or exceed 64\": with 64 and with more",
    );
    Ok(f)
}

/// A number of instances, and the mean time of a flush with ordered and with wasteless, in seconds.
type Row = (u64, [f64; 2]);

/// The series of the figure.
const OF: [usize; 2] = [ORDERED, WASTELESS];

/// Flushes with ordered and with wasteless.
fn both(trace: &Trace, instances: u64, time: Duration) -> Result<[Flushes; 2]> {
    let [ordered, wasteless] = OF.map(|n| run(SERIES[n].1, trace, instances, time));
    Ok([ordered?, wasteless?])
}

/// The instances from which on the paper has ordered take hundreds of seconds.
const MANY: u64 = 64;

/// Times of a flush by how much a server writes: of each load, and each of the instances from [`MANY`] on, ordered's
/// and wasteless's.
type ByLoad = Vec<Vec<[f64; 2]>>;

/// Measures them and draws them. The load is one server's, so it is the same for all methods.
fn by_load(effort: Effort, method: u8, name: &str, trace: &Trace, counts: &[u64]) -> Result<(Figure, ByLoad)> {
    let title = format!("{name}: mean time to flush by how much the server writes (calibration)");
    let id = format!("okeanos-5b-{method}-load");
    let x = "times what the trace has";
    let many = || counts.iter().copied().filter(|count| *count >= MANY);
    let series = many().flat_map(|count| OF.map(|n| format!("{}, {count} instances", SERIES[n].0)));
    let mut figure = Figure::lines(&id, "figure 5b", title, x, "s").logarithmic().of_series(series);
    let time = Duration::from_secs(effort.pick(10, 60, 250));
    let mut swept = ByLoad::new();
    for times in loads(effort) {
        let faster = trace.faster(*times);
        let row = many().map(|count| Ok(both(&faster, count, time)?.map(|flushes| flushes.late.mean)));
        let row = row.collect::<Result<Vec<_>>>()?;
        figure.place(times, row.iter().flatten().copied());
        swept.push(row);
    }
    Ok((figure, swept))
}

/// How many times as much the server writes.
fn loads(effort: Effort) -> &'static [u32] {
    effort.pick(&[4], &[2, 4], &[2, 4, 8])
}

/// Why flushes take less time here.
pub(in super::super) const LOAD: &str = "how far a mode falls behind follows from how much the server writes; the trace is of another \
     server than the paper's";

/// "Hundreds of seconds", and "substantially".
const HUNDREDS: (f64, f64) = (100.0, 1000.0);
const HALF: f64 = 0.5;

/// What is said of a method: of 64 instances and of more.
fn claims(name: &str, rows: &[Row], swept: &ByLoad) -> Vec<Swept> {
    let mut claims = Vec::new();
    let many = rows.iter().filter(|(count, _)| *count >= MANY);
    for (n, (count, [of_ordered, of_wasteless])) in many.enumerate() {
        let says = "ordered takes hundreds of seconds as the instances approach or exceed 64";
        let what = format!("{name}, {count} instances: ext4-ordered, s");
        let claim = Claim::between("figure 5b", says, what, *of_ordered, HUNDREDS);
        claims.push(claim.swept(swept.iter().map(|load| load[n][0])));
        let says = "wasteless substantially reduces the time to flush the log (to a half at most)";
        let what = format!("{name}, {count} instances: wasteless / ext4-ordered");
        let claim = Claim::at_most("figure 5b", says, what, of_wasteless / of_ordered, HALF);
        claims.push(claim.swept(swept.iter().map(|load| load[n][1] / load[n][0])));
    }
    claims
}

/// What is said of wasteless and all methods.
fn most_of_wasteless(means: &[(&str, Vec<Row>)], swept: &[ByLoad]) -> Swept {
    let all = means.iter().flat_map(|(_, rows)| rows.iter().map(|(_, [_, wasteless])| *wasteless));
    let loads = swept.first().map_or(0, Vec::len);
    let most = |load: usize| swept.iter().flat_map(|of| &of[load]).map(|[_, wasteless]| *wasteless).fold(0.0, f64::max);
    let says = "wasteless takes up to tens of seconds to flush the log, of all methods at high load";
    let what = "wasteless, the longest mean of all methods and instances, s";
    Claim::between("figure 5b", says, what, all.fold(0.0, f64::max), (10.0, 100.0)).swept((0..loads).map(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::stage::Directory;

    #[test]
    fn the_traces_are_calls_to_a_log_and_a_flush_at_each_commit_is_more_of_them() {
        let flushes = |n: usize| {
            let trace = Trace::parse(METHODS[n].2).unwrap();
            assert!(trace.calls.windows(2).all(|w| w[0].0 <= w[1].0) && trace.length >= trace.calls[0].0);
            trace.calls.iter().filter(|(_, call)| *call == Call::Flush).count()
        };
        assert!(flushes(0) > 3 * flushes(1) && flushes(0) > 3 * flushes(2));
        assert!(Trace::parse("1 read 2 3").is_err() && Trace::parse("").is_err());
    }

    #[test]
    fn figure_5b_is_judged_by_the_means_with_64_instances_and_with_more() {
        let rows = [(16, [0.01, 0.01]), (64, [5.0, 0.1]), (128, [500.0, 400.0])];
        let verdicts = |with: [[f64; 2]; 2]| -> Vec<Verdict> {
            let group = claims("method", &rows, &vec![with.to_vec()]);
            with_one_value(LOAD, &["4 times".into()], group).iter().map(|c| c.verdict).collect()
        };
        let (held, differs, not) = (Verdict::Held, Verdict::Differs, Verdict::NotHeld);
        assert_eq!(verdicts([[300.0, 1.0], [500.0, 1.0]]), [differs, held, held, differs]);
        assert_eq!(
            verdicts([[90.0, 1.0], [500.0, 1.0]]),
            [not, held, held, differs],
            "no load has hundreds of seconds"
        );
        assert_eq!(verdicts([[300.0, 299.0], [500.0, 1.0]]), [not, held, held, not], "it loses what holds without");
        let most = |mean| {
            let of = most_of_wasteless(&[("method", vec![(64, [0.0, mean])])], &[vec![vec![[0.0, 20.0]]]]);
            with_one_value(LOAD, &["4 times".into()], vec![of])[0].verdict
        };
        assert_eq!([most(5.0), most(50.0), most(500.0)], [differs, held, differs]);
    }

    #[test]
    fn a_trace_that_is_faster_has_the_same_calls_in_less_time() {
        let trace = Trace::parse("0 write 0 512\n100 flush\n1000 end\n").unwrap();
        let faster = trace.faster(4);
        assert_eq!((faster.calls[1].0.as_micros(), faster.length.as_micros(), faster.size), (25, 250, 512));
        assert_eq!(faster.calls[0].1, trace.calls[0].1);
    }

    #[test]
    fn a_trace_from_a_moment_on_has_the_calls_before_it_last() {
        let trace = Trace::parse("0 write 0 512\n100 flush\n700 write 512 512\n1000 end\n").unwrap();
        let from = trace.from(Duration::from_micros(100));
        let at: Vec<u128> = from.calls.iter().map(|(at, _)| at.as_micros()).collect();
        assert_eq!(at, [0, 600, 900]);
        assert_eq!(from.calls[0].1, Call::Flush);
        assert_eq!((from.length, trace.from(Duration::ZERO)), (trace.length, trace.clone()));
    }

    #[test]
    fn a_shorter_log_has_the_same_calls_inside_of_it() {
        let trace = Trace::parse("0 write 1024 512\n1 write 2048 512\n2 write 4000 200\n3 flush\n4 end\n").unwrap();
        let within = trace.within(2048);
        let places: Vec<Call> = within.calls.iter().map(|(_, call)| *call).collect();
        let write = |offset, len| Call::Write { offset, len };
        assert_eq!(places, [write(1024, 512), write(0, 512), write(0, 200), Call::Flush]);
        assert_eq!((within.size, trace.within(1 << 20)), (2048, trace));
    }

    #[test]
    fn instances_in_a_directory_flush_what_is_due_within_the_time() {
        let dir = tempfile::tempdir().unwrap();
        let stage = Directory::make(dir.path().join("logs")).unwrap();
        let trace = Trace::parse("0 write 0 512\n1 flush\n40000 write 512 512\n40001 flush\n80000 end\n").unwrap();
        let files = prepare(&stage, &trace, 2).unwrap();
        assert!(files.iter().all(|path| std::fs::metadata(path).unwrap().len() == trace.size));
        let instances = || parts(trace.length, 2).map(|own| Instance { trace: trace.from(own), start: stage.now() });
        let end = stage.now() + Duration::from_millis(60);
        let flushes = replay(&stage, &files[0], &instances().next().unwrap(), end).unwrap();
        assert_eq!(flushes.len(), 2);
        assert!(replay_at_once(&stage, &files, &trace, Duration::from_millis(60)).unwrap().late.mean > 0.0);
        assert_eq!(std::fs::read(&files[1]).unwrap()[..512], content(0, 0, 512));
    }

    #[test]
    fn flushes_are_later_the_more_instances_there_are_and_runs_are_alike() {
        let trace = Trace::parse("0 write 0 512\n1 flush\n5000 write 512 512\n5001 flush\n10000 end\n").unwrap();
        let late = |instances| run(SERIES[ORDERED].1, &trace, instances, Duration::from_millis(500)).unwrap();
        assert_eq!(late(4), late(4));
        assert!(late(16).late.mean > late(1).late.mean);
    }

    /// Flushes are due more often than the file system makes them.
    #[test]
    fn lateness_grows_with_the_run_and_the_time_of_a_call_does_not() {
        let trace = Trace::parse("0 write 0 512\n1 flush\n1000 write 512 512\n1001 flush\n2000 end\n").unwrap();
        let of = |ms| run(SERIES[WASTELESS].1, &trace, 4, Duration::from_millis(ms)).unwrap();
        let (short, long) = (of(200), of(400));
        assert!(long.late.mean > 1.5 * short.late.mean, "{short:?} {long:?}");
        assert!(long.call.mean < 1.2 * short.call.mean && long.call.mean < long.late.mean, "{short:?} {long:?}");
    }
}
