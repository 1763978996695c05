//! JoJ's figure 4: what protection costs, by the database and the file system, by the database alone, not at all. On
//! mounts what the paper has on ext4 without a journal is measured on the kernel's as well.

use std::path::Path;

use anyhow::Result;

use super::calibration::{self, FullAndNone};
use super::cases::{Case, cases};
use super::joint::Figure4;
use super::plan::{self, Plan, Series};
use super::rounds::{Disk, Measured, means, rounds};
use crate::mounter::Mounter;
use crate::results::{Figure, Findings, Point};
use crate::served::Kind;
use crate::stats::Spread;
use crate::work::sqlite::{Protection, STEPS};

/// Full protection, the database's and none.
const QUIRE: [(&str, &str, Protection); 3] = [
    ("full: WAL on joj", "profile=joj", Protection::Wal),
    ("application: WAL on ext4-none", "profile=ext4-none", Protection::Wal),
    ("none: no journal at all", "profile=ext4-none", Protection::None),
];
/// The latter two, on the kernel's ext4.
const KERNEL: [(&str, Protection); 2] =
    [("application: WAL on kernel none", Protection::Wal), ("none: on kernel none", Protection::None)];

/// Measures it on one device, with its figures.
///
/// # Errors
/// A file system failed.
pub(super) fn measured(plan: &Plan, kind: &Kind, disk: &Disk, dir: &Path, f: &mut Findings) -> Result<Figure4> {
    let one = |mounter: &Mounter, protection| Series { mounter: mounter.clone(), protections: vec![protection] };
    let quire = QUIRE.map(|(name, profile, protection)| (name, one(&Mounter::quire(profile), protection)));
    let kernel = if plan.on_library { Vec::new() } else { plan::available(&["kernel:none".parse()?])? };
    let beside = kernel.iter().flat_map(|none| KERNEL.map(|(name, protection)| (name, one(none, protection))));
    let (names, series): (Vec<&str>, Vec<Series>) = quire.into_iter().chain(beside).unzip();
    let measured = rounds(plan, &series, disk, dir)?;
    let of_log = cases(&[Protection::Wal]);
    f.figures.extend(figures(kind, &names, &of_log, &measured));
    let mut times: Vec<Vec<f64>> = (0..series.len()).map(|who| means(&measured.times, who)).collect();
    let kernels = times.split_off(QUIRE.len());
    let beside_kernel = match &kernels[..] {
        [application, none] => Some(vec![times[0].clone(), application.clone(), none.clone()]),
        _ => None,
    };
    let pair = |name: String, full: &[f64], none: &[f64]| FullAndNone { name, full: full.into(), none: none.into() };
    let mut by_computing = vec![pair(String::new(), &times[0], &times[2])];
    if let Disk::Library(model) = disk {
        let (name, full) = calibration::on_short_flush(plan, &series[0], *model)?;
        by_computing.push(pair(name, &full, &times[2]));
    }
    by_computing.extend(beside_kernel.iter().map(|of| pair(", beside the kernel".into(), &of[0], &of[2])));
    f.figures.push(calibration::of_figure4(kind, &of_log, &by_computing));
    Ok(Figure4 { times, beside_kernel })
}

/// One for each size of a transaction.
fn figures(kind: &Kind, names: &[&str], cases: &[Case], measured: &Measured) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        if case.step == 0 {
            let title = format!("{kind}: what protection costs, {} operations a transaction", case.operations);
            let id = format!("joj-4-{kind}-{}", case.operations);
            let new = Figure::bars(&id, "figure 4", title, "step", "ms a transaction").of_series(names.iter().copied());
            figures.push(if case.operations == 1 { new.logarithmic() } else { new });
        }
        let points = measured.times.iter().map(|of| Point::from(&Spread::of(of[n].clone())));
        figures.last_mut().expect("begun above").place(STEPS[case.step], points);
    }
    figures
}
