//! JoJ's figures on models whose flush, scattered write or byte takes another time: what is assumed of the paper's
//! devices.

use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::cases::{Case, PROTECTIONS, cases, of_paper, ratio};
use super::claims::{insert_to_best, of_sizes, small_update};
use super::logs::large_log;
use super::on_library;
use super::plan::{Plan, STOCK_JOURNAL, STOCK_ORDERED, Series};
use super::ratios::{Ratios, worst};
use super::sets::{self, Counts, Times, per_kib};
use crate::mounter::Mounter;
use crate::results::{Figure, shown};
use crate::served::Kind;
use crate::stats::{float, mean};
use crate::work::sqlite::{PAGE, PAGE_OF_2013};

/// Rows of the cases, half of the study's but at most so many: ratios are all that is wanted.
const SMALL: u64 = 500;
const LARGE: u64 = 5000;
/// What a flush may take.
const FLUSHES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_micros(20),
    Duration::from_micros(50),
    Duration::from_micros(200),
    Duration::from_micros(500),
];
/// Parts and multiples of what is assumed.
const SCATTERED: [f64; 4] = [0.0, 0.25, 2.0, 4.0];
const BYTES: [f64; 3] = [0.5, 2.0, 4.0];
const WRITES: [f64; 2] = [0.5, 2.0];
/// What the figures of a device show.
const SERIES: [&str; 8] = [
    "large inserts with a rollback journal / best, joj",
    "worst case, stock ordered",
    "worst case, stock journal",
    "worst case, single-io",
    "worst case, joj",
    "small updates with a rollback journal, joj",
    "mean, joj",
    "large with a write-ahead log, joj / single-io",
];
/// The ratios of a device of which something else is assumed.
#[derive(Clone)]
pub(super) struct Other {
    /// What, in words.
    pub name: String,
    /// Bytes of SQLite's pages, which are the same on all devices.
    pub page: u32,
    pub ratios: Ratios,
}

/// What an operation may compute on the paper's machines beside what it does here, in ms.
pub(super) const COMPUTING: [f64; 6] = [0.0, 0.01, 0.03, 0.1, 0.3, 1.0];

/// The figures of a device by what its operations take, and the ratios on those models that may be the device.
///
/// # Errors
/// A file system failed.
pub(super) fn of_device(plan: &Plan, kind: &Kind, model: Model) -> Result<(Vec<Figure>, Vec<Other>)> {
    let less = Plan {
        rounds: 1,
        small: plan.small.div_ceil(2).min(SMALL),
        large: plan.large.div_ceil(2).min(LARGE),
        ..plan.without_mounters()
    };
    let flushes: Vec<Model> =
        FLUSHES.into_iter().filter(|f| *f != model.flush).map(|flush| Model { flush, ..model }).collect();
    let scattered = SCATTERED.map(|part| Model { scattered: model.scattered.mul_f64(part), ..model });
    let writes = WRITES.map(|part| Model { write: model.write.mul_f64(part), ..model });
    let bytes = BYTES.map(|part| Model { write_ns_per_kib: per_kib(model.write_ns_per_kib, part), ..model });
    let unscattered = bytes.map(|other| Model { scattered: Duration::ZERO, ..other });
    let milliseconds = |time: Duration| shown(time.as_secs_f64() * 1e3);
    let mut swept = Vec::new();
    let mut figures = Vec::new();
    let mut measured = Vec::new();
    let sweeps: [(&str, &str, &[Model]); 5] = [
        ("write", "a write takes, ms", &writes),
        ("flush", "a flush takes, ms", &flushes),
        ("scattered", "a scattered write takes besides, ms", &scattered),
        ("bytes", "a KiB takes, ms", &bytes),
        ("unscattered", "a KiB takes where a scattered write takes nothing besides, ms", &unscattered),
    ];
    for (by, x, models) in sweeps {
        let title = format!("{kind}: by what {} (calibration)", x.trim_end_matches(", ms"));
        let id = format!("joj-{kind}-by-{by}");
        let mut figure = Figure::lines(&id, of_paper(kind), title, x, "times ext4-none").of_series(SERIES);
        for other in models {
            let times = times(&less, *other)?;
            let ratios = ratios(&times);
            measured.push((*other, times));
            let place = match by {
                "write" => milliseconds(other.write),
                "flush" => milliseconds(other.flush),
                "scattered" => milliseconds(other.scattered),
                _ => milliseconds(Duration::from_nanos(other.write_ns_per_kib)),
            };
            figure.place(&place, drawn(&ratios));
            let name = format!("{} {place} ms", x.trim_end_matches(", ms"));
            if sets::may_be_bytes(kind, &model, other) {
                swept.push(Other { name, page: plan.page, ratios });
            }
        }
        figures.push(figure);
    }
    let (figure, of_pages) = by_page(&less, kind, model)?;
    figures.push(figure);
    swept.extend(of_pages);
    let sets = sets::judged(kind, model, &FLUSHES, &Counts::of(&measured), ratios);
    figures.push(sets.figure);
    // The study's own set has run already.
    if sets.best != model {
        let name = format!("the best of {} sets of costs that lose no claim, {}", sets.sets, in_words(&sets.best));
        swept.push(Other { name, page: plan.page, ratios: ratios(&times(&less, sets.best)?) });
    }
    Ok((figures, swept))
}

/// Milliseconds of a transaction in each case, with full protection and with none.
pub(super) struct FullAndNone {
    /// What tells them from the study's own, in words; of those nothing.
    pub name: String,
    pub full: Vec<f64>,
    pub none: Vec<f64>,
}

/// The times of the cases if an operation takes so many milliseconds more.
pub(super) fn computing(cases: &[Case], times: &[f64], ms: f64) -> Vec<f64> {
    cases.iter().zip(times).map(|(case, time)| time + ms * float(case.operations)).collect()
}

/// What full protection costs by what an operation computes besides: small transactions (their mean) and large ones
/// (the worst).
pub(super) fn of_figure4(kind: &Kind, cases: &[Case], measured: &[FullAndNone]) -> Figure {
    let title =
        format!("{kind}: what protection costs by what an operation computes besides (calibration, arithmetic)");
    let series =
        measured.iter().flat_map(|with| ["small, mean", "large, worst"].map(|of| format!("{of}{}", with.name)));
    let mut figure =
        Figure::lines(&format!("joj-4-{kind}-computing"), "figure 4", title, "ms an operation", "full / none")
            .of_series(series)
            .logarithmic();
    for ms in COMPUTING {
        let with = |times: &[f64]| computing(cases, times, ms);
        let values = measured.iter().map(|of| of_sizes(cases, &ratio(&with(&of.full), &with(&of.none))));
        figure.place(shown(ms), values.flatten());
    }
    figure
}

/// A series of figure 4 on the model with the shortest flush that is swept, and the device's name in figures.
pub(super) fn on_short_flush(plan: &Plan, series: &Series, model: Model) -> Result<(String, Vec<f64>)> {
    let model = Model { flush: FLUSHES[0], ..model };
    Ok((format!(", flush {:?}", model.flush), on_library::one(plan, series, model)?))
}

/// What a set of costs is.
fn in_words(model: &Model) -> String {
    let us = |time: Duration| time.as_micros();
    format!(
        "a write {} us, a KiB {} ns, elsewhere {} us more, a flush {} us",
        us(model.write),
        model.write_ns_per_kib,
        us(model.scattered),
        us(model.flush)
    )
}

/// What the paper's claims are of, without a journal first.
pub(super) fn mounters() -> [Mounter; 5] {
    ["profile=ext4-none", STOCK_ORDERED, STOCK_JOURNAL, "profile=single-io", "profile=joj"].map(Mounter::quire)
}

/// Their times on a model.
fn times(plan: &Plan, model: Model) -> Result<Times> {
    let of = |mounter| on_library::one(plan, &Series { mounter, protections: PROTECTIONS.to_vec() }, model);
    mounters().into_iter().map(of).collect()
}

fn ratios(times: &Times) -> Ratios {
    Ratios::of_mounters(&mounters(), times)
}

/// What the figures show of it.
fn drawn(of: &Ratios) -> [f64; SERIES.len()] {
    let cases = cases(&PROTECTIONS);
    [
        insert_to_best(&cases, &of.joj),
        worst(&of.ordered),
        worst(&of.journal),
        worst(&of.single),
        worst(&of.joj),
        small_update(&cases, &of.joj),
        mean(&of.joj),
        large_log(&cases, of),
    ]
}

/// The same by the size of SQLite's pages.
fn by_page(plan: &Plan, kind: &Kind, model: Model) -> Result<(Figure, Vec<Other>)> {
    let title = format!("{kind}: by the size of SQLite's pages (calibration)");
    let figure =
        Figure::lines(&format!("joj-{kind}-by-page"), of_paper(kind), title, "bytes of a page", "times ext4-none");
    let mut figure = figure.of_series(SERIES);
    let mut swept = Vec::new();
    for page in [PAGE_OF_2013, PAGE] {
        let ratios = ratios(&times(&Plan { page, ..plan.without_mounters() }, model)?);
        figure.place(page, drawn(&ratios));
        if page != plan.page {
            swept.push(Other { name: format!("pages of {page} B"), page, ratios });
        }
    }
    Ok((figure, swept))
}
