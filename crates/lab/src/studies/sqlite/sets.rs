//! Which costs of a device serve the most of JoJ's claims. The time of a case is linear in what a write, a byte, a
//! write elsewhere and a flush take, beside what is computed: one thread waits for each of them in turn. So a few
//! models tell how many of each a case has, and hundreds of sets of costs are judged without a run.
//!
//! *Guarantees*: [`Counts::of`] is the least-squares solution of relative errors; a set is chosen by the claims that
//! hold with it, and loses none that holds with the study's costs.

use std::time::Duration;

use quire_testkit::Model;

use super::cases::{Case, PROTECTIONS, cases, of_paper};
use super::claims::ByRatios;
use super::logs;
use super::plan::On;
use super::ratios::Ratios;
use crate::results::Figure;
use crate::served::Kind;
use crate::stats::float;

/// Milliseconds of a transaction: of each series, each case.
pub(super) type Times = Vec<Vec<f64>>;
/// Milliseconds that a write, a MiB, a write elsewhere and a flush take; the last is 1, of which a case has what it
/// computes.
type Costs = [f64; 5];

/// Parts and multiples of what is assumed of a write, and of a write elsewhere.
const PARTS: [f64; 7] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
/// The same of a byte of a memory whose data sheet is not known: eMMC of 2011 writes 7 to 30 MB/s.
const PARTS_OF_BYTE: [f64; 3] = [0.5, 1.0, 2.0];
/// The device whose data sheet tells what a byte takes: the Intel 311 writes 105 MB/s.
const OF_KNOWN_BYTE: &str = "intel311";
const SCATTERED: [f64; 8] = [0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// The parts and multiples of what a byte takes that may be so.
fn parts_of_byte(kind: &Kind) -> &'static [f64] {
    if kind.to_string() == OF_KNOWN_BYTE { &[1.0] } else { &PARTS_OF_BYTE }
}

/// So many times a time in nanoseconds.
pub(super) fn per_kib(ns: u64, times: f64) -> u64 {
    u64::try_from(Duration::from_nanos(ns).mul_f64(times).as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a byte of this device may take what it takes on another model: no other may be a cause.
pub(super) fn may_be_bytes(kind: &Kind, model: &Model, other: &Model) -> bool {
    parts_of_byte(kind).iter().any(|part| per_kib(model.write_ns_per_kib, *part) == other.write_ns_per_kib)
}

fn costs(model: &Model) -> Costs {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    [ms(model.write), float(model.write_ns_per_kib) * 1024.0 / 1e6, ms(model.scattered), ms(model.flush), 1.0]
}

/// What each series has of each cost in each case.
pub(super) struct Counts(Vec<Vec<Costs>>);

impl Counts {
    /// Of the times on these models.
    pub(super) fn of(measured: &[(Model, Times)]) -> Self {
        let (series, cases) = measured.first().map_or((0, 0), |(_, times)| (times.len(), times[0].len()));
        let of_case = |s: usize, c: usize| {
            let rows = measured.iter().map(|(model, times)| costs(model).map(|cost| cost / times[s][c]));
            solved(&rows.collect::<Vec<_>>())
        };
        Counts((0..series).map(|s| (0..cases).map(|c| of_case(s, c)).collect()).collect())
    }

    /// The times with these costs.
    fn times(&self, with: &Costs) -> Times {
        let time = |counts: &Costs| counts.iter().zip(with).map(|(count, cost)| count * cost).sum();
        self.0.iter().map(|cases| cases.iter().map(time).collect()).collect()
    }
}

/// The counts that make each row 1, by the normal equations. Each column is scaled by its largest; a cost that is
/// nowhere has no count.
fn solved(rows: &[Costs]) -> Costs {
    let mut scale = [0.0_f64; 5];
    rows.iter().for_each(|row| (0..5).for_each(|n| scale[n] = scale[n].max(row[n])));
    let scaled = |row: &Costs, n: usize| if scale[n] > 0.0 { row[n] / scale[n] } else { 0.0 };
    let mut equations = [[0.0_f64; 6]; 5];
    for (n, equation) in equations.iter_mut().enumerate() {
        for row in rows {
            (0..5).for_each(|k| equation[k] += scaled(row, n) * scaled(row, k));
            equation[5] += scaled(row, n);
        }
        // So little that a column of zeros has a solution.
        equation[n] += 1e-9;
    }
    for pivot in 0..5 {
        let by = equations[pivot];
        for (n, equation) in equations.iter_mut().enumerate().filter(|(n, _)| *n != pivot) {
            let times = equation[pivot] / by[pivot];
            debug_assert!(times.is_finite(), "equation {n}");
            (pivot..6).for_each(|k| equation[k] -= times * by[k]);
        }
    }
    std::array::from_fn(|n| if scale[n] > 0.0 { equations[n][5] / equations[n][n] / scale[n] } else { 0.0 })
}

/// How the claims of a device fare with all sets.
pub(super) struct Judged {
    /// How many sets have so many claims hold at once.
    pub figure: Figure,
    /// The set with which the most hold of those that lose none, the study's own if there is no better; and how many
    /// sets were judged.
    pub best: Model,
    pub sets: usize,
}

/// Judges all sets of costs by the claims of one device, which has these ratios with the study's.
pub(super) fn judged(
    kind: &Kind,
    model: Model,
    flushes: &[Duration],
    counts: &Counts,
    ratios: impl Fn(&Times) -> Ratios,
) -> Judged {
    let cases: Vec<Case> = cases(&PROTECTIONS);
    let here = ratios(&counts.times(&costs(&model)));
    let of_device: Vec<ByRatios> = logs::of_device(kind, &cases, &here, On::Models);
    let hold = |of: &Ratios| -> Vec<bool> {
        of_device.iter().map(|ByRatios { claim, figure, .. }| claim.would_hold(figure(of))).collect()
    };
    let kept = hold(&here);
    let count = |held: &[bool]| held.iter().filter(|held| **held).count();
    let mut at_once = vec![0; of_device.len() + 1];
    let mut best = (count(&kept), model);
    for set in sets(kind, model, flushes) {
        let held = hold(&ratios(&counts.times(&costs(&set))));
        at_once[count(&held)] += 1;
        if loses_none(&kept, &held) && count(&held) > best.0 {
            best = (count(&held), set);
        }
    }
    let all = at_once.iter().sum();
    let title =
        format!("{kind}: of {all} sets of costs, how many have so many of its claims hold at once (calibration)");
    let id = format!("joj-{kind}-sets");
    let mut figure = Figure::bars(&id, of_paper(kind), title, "claims that hold", "sets").of_series(["sets"]);
    at_once.iter().enumerate().for_each(|(held, sets)| figure.place(held, [float(*sets as u64)]));
    Judged { figure, best: best.1, sets: all }
}

/// Whether all that hold with the study's costs hold with others.
fn loses_none(here: &[bool], with: &[bool]) -> bool {
    here.iter().zip(with).all(|(here, with)| *with || !here)
}

fn sets(kind: &Kind, model: Model, flushes: &[Duration]) -> Vec<Model> {
    let mut all = Vec::new();
    for write in PARTS {
        for byte in parts_of_byte(kind) {
            for scattered in SCATTERED {
                all.extend(flushes.iter().map(|flush| Model {
                    write: model.write.mul_f64(write),
                    write_ns_per_kib: per_kib(model.write_ns_per_kib, *byte),
                    scattered: model.scattered.mul_f64(scattered),
                    flush: *flush,
                    ..model
                }));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(write: u64, kib: u64, scattered: u64, flush: u64) -> Model {
        let us = Duration::from_micros;
        Model {
            write: us(write),
            write_ns_per_kib: kib,
            scattered: us(scattered),
            flush: us(flush),
            ..Model::default()
        }
    }

    const MODELS: [[u64; 4]; 6] = [
        [300, 68_000, 100, 0],
        [600, 68_000, 100, 0],
        [300, 136_000, 100, 0],
        [300, 68_000, 400, 0],
        [300, 68_000, 100, 200],
        [60, 9_750, 80, 20],
    ];

    /// Times of a case that has so many of each.
    fn times(of: &Model, counts: Costs) -> f64 {
        costs(of).iter().zip(counts).map(|(cost, count)| cost * count).sum()
    }

    #[test]
    fn counts_of_a_case_are_found_from_times_on_other_models() {
        let counts = [4.0, 0.01, 9.0, 3.0, 0.05];
        let measured = MODELS.map(|[w, k, s, f]| {
            let model = model(w, k, s, f);
            (model, vec![vec![times(&model, counts)]])
        });
        let found = Counts::of(&measured);
        let close = found.0[0][0].iter().zip(counts).all(|(found, count)| (found / count - 1.0).abs() < 1e-3);
        assert!(close, "{:?}", found.0[0][0]);
        let other = model(100, 20_000, 0, 1000);
        assert!((found.times(&costs(&other))[0][0] / times(&other, counts) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_cost_that_no_model_has_has_no_count() {
        let measured = MODELS.map(|[w, k, s, _]| {
            let model = model(w, k, s, 0);
            (model, vec![vec![times(&model, [2.0, 0.01, 1.0, 0.0, 0.1])]])
        });
        let found = Counts::of(&measured).0[0][0];
        assert!(found[3].abs() < 1e-9 && (found[0] - 2.0).abs() < 1e-2, "{found:?}");
    }

    #[test]
    fn a_byte_takes_what_the_data_sheet_says_where_there_is_one() {
        let [emmc, intel311] = ["emmc", "intel311"].map(|name| name.parse::<Kind>().unwrap());
        let base = model(60, 9_750, 80, 20);
        let bytes = |kind: &Kind| {
            let all = sets(kind, base, &[Duration::ZERO]);
            (all.len(), all.iter().all(|set| set.write_ns_per_kib == 9_750))
        };
        assert_eq!((bytes(&emmc), bytes(&intel311)), ((168, false), (56, true)));
        let may_be = |kind, times| {
            may_be_bytes(kind, &base, &Model { write_ns_per_kib: per_kib(base.write_ns_per_kib, times), ..base })
        };
        assert_eq!([0.5, 1.0, 2.0, 4.0].map(|times| may_be(&emmc, times)), [true, true, true, false]);
        assert_eq!([0.5, 1.0, 2.0, 4.0].map(|times| may_be(&intel311, times)), [false, true, false, false]);
    }

    #[test]
    fn a_set_that_loses_a_claim_is_not_chosen_however_many_it_wins() {
        assert!(loses_none(&[true, false, false], &[true, true, false]));
        assert!(!loses_none(&[true, false, false], &[false, true, true]));
    }

    /// Data journaling with so many MiB beside one without a journal: 1.73 times with the study's costs, or not.
    #[test]
    fn the_set_with_which_more_claims_hold_is_chosen() {
        let kind: Kind = "emmc".parse().unwrap();
        let base = model(300, 68_000, 100, 0);
        let all = |counts: Costs| vec![counts; 12];
        // Series: none, ordered, journal, single-I/O, joj.
        let none = [1.0, 0.004, 1.0, 0.0, 0.0];
        let series = |journal: f64| {
            // In the same parts with all costs: its claims do not tell the sets apart.
            let joj = [0.9, 0.0036, 0.9, 0.0, 0.0];
            Counts(vec![all(none), all(none), all([1.0, journal, 1.0, 0.0, 0.0]), all(none), all(joj)])
        };
        let ratios = |times: &Times| {
            let of = |n: usize| super::super::cases::ratio(&times[n], &times[0]);
            Ratios { ordered: of(1), journal: of(2), single: of(3), joj: of(4) }
        };
        let flushes = [Duration::ZERO];
        let judged = |journal| judged(&kind, base, &flushes, &series(journal), ratios);
        let worst =
            |with: &Judged, journal: f64| times(&with.best, [1.0, journal, 1.0, 0.0, 0.0]) / times(&with.best, none);
        let far = judged(0.012);
        assert_eq!((far.sets, far.figure.count()), (168, far.figure.places.len()));
        assert!((worst(&far, 0.012) / 1.73 - 1.0).abs() <= 0.05, "{:?}", far.best);
        // 1.73 times already: other claims do not take that away.
        let right = judged(0.0111);
        assert!((worst(&right, 0.0111) / 1.73 - 1.0).abs() <= 0.05, "{:?}", right.best);
    }
}
