//! JoJ's figures on models whose flush, scattered write or byte takes another time: what is assumed of the paper's
//! devices.

use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::cases::{Case, PROTECTIONS, cases, of_paper};
use super::claims::{Swept, insert_to_best, of_sizes, ratio, small_update, worst};
use super::on_library;
use super::plan::{Plan, STOCK_JOURNAL, Series};
use crate::mounter::Mounter;
use crate::results::{Figure, shown};
use crate::served::Kind;
use crate::stats::float;

/// Rows of the cases, half of the study's but at most so many: ratios are all that is wanted.
const SMALL: u64 = 500;
const LARGE: u64 = 5000;
/// Parts and multiples of what is assumed.
const FLUSHES: [f64; 4] = [0.1, 0.25, 0.5, 2.0];
const SCATTERED: [f64; 3] = [0.0, 0.25, 2.0];
const BYTES: [f64; 3] = [0.5, 2.0, 4.0];
/// What an operation may compute on the paper's machines beside what it does here, in ms.
const COMPUTING: [f64; 6] = [0.0, 0.01, 0.03, 0.1, 0.3, 1.0];

/// The figures of a device by its flush and by its scattered writes.
///
/// # Errors
/// A file system failed.
pub(super) fn of_device(plan: &Plan, kind: &Kind, model: Model) -> Result<(Vec<Figure>, Swept)> {
    let less = Plan {
        kinds: Vec::new(),
        mounters: Vec::new(),
        rounds: 1,
        small: plan.small.div_ceil(2).min(SMALL),
        large: plan.large.div_ceil(2).min(LARGE),
        figure4: false,
        on_library: true,
        work: plan.work.clone(),
    };
    let flushes = FLUSHES.map(|part| Model { flush: model.flush.mul_f64(part), ..model });
    let scattered = SCATTERED.map(|part| Model { scattered: model.scattered.mul_f64(part), ..model });
    let bytes = BYTES.map(|part| Model { write_ns_per_kib: per_kib(model.write_ns_per_kib, part), ..model });
    let unscattered = bytes.map(|other| Model { scattered: Duration::ZERO, ..other });
    let milliseconds = |time: Duration| shown(time.as_secs_f64() * 1e3);
    let mut swept = Swept::default();
    let mut figures = Vec::new();
    let sweeps: [(&str, &str, &[Model]); 4] = [
        ("flush", "a flush takes, ms", &flushes),
        ("scattered", "a scattered write takes besides, ms", &scattered),
        ("bytes", "a KiB takes, ms", &bytes),
        ("unscattered", "a KiB takes where a scattered write takes nothing besides, ms", &unscattered),
    ];
    for (by, x, models) in sweeps {
        let title = format!("{kind}: by what {} (calibration)", x.trim_end_matches(", ms"));
        let id = format!("joj-{kind}-by-{by}");
        let series = [
            "large inserts with a rollback journal / best, joj",
            "worst case, stock journal",
            "small updates with a rollback journal, joj",
        ];
        let mut figure = Figure::lines(&id, of_paper(kind), title, x, "times ext4-none").of_series(series);
        for other in models {
            let values = with(&less, *other)?;
            let place = match by {
                "flush" => milliseconds(other.flush),
                "scattered" => milliseconds(other.scattered),
                _ => milliseconds(Duration::from_nanos(other.write_ns_per_kib)),
            };
            figure.place(place, values);
            swept.insert.push(values[0]);
            swept.journal.push(values[1]);
            swept.update.push(values[2]);
        }
        figures.push(figure);
    }
    Ok((figures, swept))
}

/// What full protection costs by what an operation computes besides: the figure, and its values for small transactions
/// (their mean) and large ones (the worst). `full` are the milliseconds of a transaction in each case, by the name of
/// the device; `none` those without protection.
pub(super) fn of_figure4(
    kind: &Kind,
    cases: &[Case],
    full: &[(String, Vec<f64>)],
    none: &[f64],
) -> (Figure, [Vec<f64>; 2]) {
    let title = format!("{kind}: what protection costs by what an operation computes besides (calibration)");
    let series = full.iter().flat_map(|(device, _)| ["small, mean", "large, worst"].map(|of| format!("{of}{device}")));
    let mut figure =
        Figure::lines(&format!("joj-4-{kind}-computing"), "figure 4", title, "ms an operation", "full / none")
            .of_series(series)
            .logarithmic();
    let mut swept = [Vec::new(), Vec::new()];
    for ms in COMPUTING {
        let with = |times: &[f64]| -> Vec<f64> {
            cases.iter().zip(times).map(|(case, time)| time + ms * float(case.operations)).collect()
        };
        let values = full.iter().map(|(_, full)| of_sizes(cases, &ratio(&with(full), &with(none))));
        let values: Vec<[f64; 2]> = values.collect();
        values.iter().for_each(|of| swept.iter_mut().zip(of).for_each(|(swept, value)| swept.push(*value)));
        figure.place(shown(ms), values.into_iter().flatten());
    }
    (figure, swept)
}

/// A series of figure 4 on the model with a tenth of its flush, and the device's name in figures.
pub(super) fn on_short_flush(plan: &Plan, series: &Series, model: Model) -> Result<(String, Vec<f64>)> {
    let model = Model { flush: model.flush.mul_f64(FLUSHES[0]), ..model };
    Ok((format!(", flush {:?}", model.flush), on_library::one(plan, series, model)?))
}

/// So many times a time in nanoseconds.
fn per_kib(ns: u64, times: f64) -> u64 {
    u64::try_from(Duration::from_nanos(ns).mul_f64(times).as_nanos()).unwrap_or(u64::MAX)
}

/// In the order of the series above.
fn with(plan: &Plan, model: Model) -> Result<[f64; 3]> {
    let times = |options: &str| {
        on_library::one(plan, &Series { mounter: Mounter::quire(options), protections: PROTECTIONS.to_vec() }, model)
    };
    let none = times("profile=ext4-none")?;
    let (joj, journal) = (ratio(&times("profile=joj")?, &none), ratio(&times(STOCK_JOURNAL)?, &none));
    let cases = cases(&PROTECTIONS);
    Ok([insert_to_best(&cases, &joj), worst(&journal), small_update(&cases, &joj)])
}
