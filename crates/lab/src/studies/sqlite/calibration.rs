//! JoJ's figures on models whose flush, or whose scattered write, takes another time: the two that are assumed of the
//! paper's devices.

use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::PROTECTIONS;
use super::cases::{cases, of_paper};
use super::claims::{Swept, insert_to_best, ratio, small_update, worst};
use super::on_library;
use super::plan::{Plan, STOCK_JOURNAL, Series};
use crate::mounter::Mounter;
use crate::results::{Figure, shown};
use crate::served::Kind;

/// Rows of the cases, at most: ratios are all that is wanted.
const SMALL: u64 = 500;
const LARGE: u64 = 5000;
/// Of what is assumed.
const PARTS: [f64; 4] = [0.1, 0.25, 0.5, 2.0];

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
    let mut swept = Swept::default();
    let mut figures = Vec::new();
    for by in ["flush", "scattered"] {
        let title =
            format!("{kind}: by what a {} takes (calibration)", if by == "flush" { by } else { "scattered write" });
        let series = [
            "large inserts with a rollback journal / best, joj",
            "worst case, stock journal",
            "small updates \
             with a rollback journal, joj",
        ];
        let id = format!("joj-{kind}-by-{by}");
        let x = format!("{by}, ms");
        let mut figure = Figure::lines(&id, of_paper(kind), title, &x, "times ext4-none").of_series(series);
        for part in PARTS {
            let (flush, scattered) = if by == "flush" { (part, 1.0) } else { (1.0, part) };
            let flush = model.flush.mul_f64(flush);
            let other = Model { flush, scattered: model.scattered.mul_f64(scattered), ..model };
            let values = with(&less, other)?;
            let place: Duration = if by == "flush" { other.flush } else { other.scattered };
            figure.place(shown(place.as_secs_f64() * 1e3), values);
            swept.insert.push(values[0]);
            swept.journal.push(values[1]);
            swept.update.push(values[2]);
        }
        figures.push(figure);
    }
    Ok((figures, swept))
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
