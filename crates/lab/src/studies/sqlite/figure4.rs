//! JoJ's figure 4: what protection costs, by the database and the file system, by the database alone, not at all. On
//! mounts what the paper has on ext4 without a journal is measured on the kernel's as well.

use std::path::Path;

use anyhow::Result;

use super::cases::{Case, cases};
use super::joint::Figure4;
use super::plan::{self, Plan, Series};
use super::rounds::{Disk, Measured, means, rounds};
use super::{calibration, claims};
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

/// Measures it on one device, with its figures and the claims beside the kernel.
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
    if let [application, none] = &kernels[..] {
        let of = [times[0].clone(), application.clone(), none.clone()];
        let of_device = claims::of_figure4(kind, claims::figures4(&of_log, &of));
        f.claims.extend(of_device.into_iter().map(claims::of_kernel));
    }
    let mut full = vec![(String::new(), times[0].clone())];
    if let Disk::Library(model) = disk {
        full.push(calibration::on_short_flush(plan, &series[0], *model)?);
    }
    let (figure, computing) = calibration::of_figure4(kind, &of_log, &full, &times[2]);
    f.figures.push(figure);
    Ok(Figure4 { times, computing })
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
