//! JoJ's figures on models whose flush, scattered write or byte takes another time: what is assumed of the paper's
//! devices.

use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::cases::{PROTECTIONS, cases, of_paper};
use super::claims::{Swept, insert_to_best, ratio, small_update, worst};
use super::on_library;
use super::plan::{Plan, STOCK_JOURNAL, Series};
use crate::mounter::Mounter;
use crate::results::{Figure, shown};
use crate::served::Kind;

/// Rows of the cases, at most: ratios are all that is wanted.
const SMALL: u64 = 500;
const LARGE: u64 = 5000;
/// Parts and multiples of what is assumed.
const FLUSHES: [f64; 4] = [0.1, 0.25, 0.5, 2.0];
const SCATTERED: [f64; 3] = [0.0, 0.25, 2.0];
const BYTES: [f64; 3] = [0.5, 2.0, 4.0];

/// The figures of a device by its flush and by its scattered writes.
///
/// # Errors
/// A file system failed.
pub(super) fn of_device(plan: &Plan, kind: &Kind, model: Model) -> Result<(Vec<Figure>, Swept)> {
    let less = Plan {
        kinds: Vec::new(),
        mounters: Vec::new(),
        rounds: 1,
        small: plan.small.min(SMALL),
        large: plan.large.min(LARGE),
        figure4: false,
        on_library: true,
        work: plan.work.clone(),
    };
    let flushes = FLUSHES.map(|part| Model { flush: model.flush.mul_f64(part), ..model });
    let scattered = SCATTERED.map(|part| Model { scattered: model.scattered.mul_f64(part), ..model });
    let bytes = BYTES.map(|part| Model { write_ns_per_kib: per_kib(model.write_ns_per_kib, part), ..model });
    let milliseconds = |time: Duration| shown(time.as_secs_f64() * 1e3);
    let mut swept = Swept::default();
    let mut figures = Vec::new();
    let sweeps: [(&str, &str, &[Model]); 3] = [
        ("flush", "a flush takes, ms", &flushes),
        ("scattered", "a scattered write takes besides, ms", &scattered),
        ("bytes", "a KiB takes, ms", &bytes),
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
