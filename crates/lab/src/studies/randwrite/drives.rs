//! DJFS' random writes on other drives than the one that is assumed: the paper names a Samsung 840 of 120 GB, which
//! writes 130 MB/s by its data sheet, and not what a flush takes, or a write elsewhere ("the locality in the file
//! system area is random").

use std::fmt;
use std::time::Duration;

use quire_testkit::Model;

use super::claims::{Cells, NUMBERS, TO_DEVICE, TO_EXTERNAL, TO_NVJ};
use crate::results::{Claim, Effort, Figure, shown, with_one_row};

/// What is assumed of the drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Drive {
    /// What a write takes longer that does not go on where the last one ended.
    scattered: Duration,
    /// What a flush takes beside what is dirty.
    flush: Duration,
}

/// The microseconds of a write elsewhere, and those of a flush.
type Parameters = (u64, &'static [u64]);
const OTHERS: [Parameters; 3] =
    [(0, &[1000, 2500, 4000]), (10, &[1000, 2000, 2500, 4000]), (20, &[1000, 2000, 2500, 4000])];

impl Drive {
    pub(super) const ASSUMED: Drive = Drive { scattered: Duration::ZERO, flush: Duration::from_millis(2) };

    /// The drives of a calibration.
    pub(super) fn others(effort: Effort) -> Vec<Drive> {
        let with = |(scattered, flushes): &Parameters| {
            let scattered = Duration::from_micros(*scattered);
            flushes.iter().map(move |us| Drive { scattered, flush: Duration::from_micros(*us) })
        };
        OTHERS[..effort.pick(1, OTHERS.len(), OTHERS.len())].iter().flat_map(with).collect()
    }

    /// Only its flush is another.
    fn has_assumed_place(self) -> bool {
        self.scattered == Drive::ASSUMED.scattered
    }

    pub(super) fn of(self, model: Model) -> Model {
        Model { flush: self.flush, scattered: self.scattered, ..model }
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Drive { scattered, flush } = self;
        write!(f, "{scattered:?} more to a write elsewhere and a flush of {flush:?}")
    }
}

/// With what `djfs` is compared by the flush, and which of the paper's numbers is of that.
const COMPARED: [(&str, usize); 4] =
    [("ext4-ordered", TO_DEVICE), ("ext4-journal", TO_DEVICE), ("external", TO_EXTERNAL), ("nvj", TO_NVJ)];

/// One of [`NUMBERS`].
fn printed(number: usize) -> f64 {
    NUMBERS[number].1.parse().expect("a printed number")
}

/// How many times as fast `djfs` is by what a flush takes, with the paper's highest frequency of fsyncs.
pub(super) fn by_flush(drives: &[(Drive, &Cells)], paper: usize) -> Figure {
    let title = "djfs by what a flush takes, fsync every 64 writes (calibration)";
    let names = COMPARED.map(|(other, _)| format!("djfs / {other}"));
    let mut figure = Figure::lines("djfs-7-flush", "figure 7", title, "flush, ms", "times as fast").of_series(&names);
    let mut drives: Vec<_> = drives.iter().filter(|(drive, _)| drive.has_assumed_place()).collect();
    drives.sort_by_key(|(drive, _)| drive.flush);
    for (drive, cells) in drives {
        let times = COMPARED.map(|(other, _)| cells.ratio("djfs", other, paper - 1));
        figure.place(shown(drive.flush.as_secs_f64() * 1e3), times);
    }
    for (name, (_, number)) in names.iter().zip(COMPARED) {
        figure.printed(shown(2.0), name, printed(number));
    }
    figure
}

/// The paper's numbers with each drive, in parts of what is printed: a figure to what a write elsewhere takes.
pub(super) fn by_drive(drives: &[(Drive, &Cells)], paper: usize) -> Vec<Figure> {
    let names = NUMBERS.map(|(name, _)| name);
    let (x, y) = ("flush, ms", "parts of the paper's number");
    let figure = |of: &[(Drive, &Cells)]| {
        let us = of[0].0.scattered.as_micros();
        let title = format!("Random writes where a write elsewhere takes {us} us more (calibration)");
        let mut figure =
            Figure::bars(&format!("djfs-7-drives-{us}"), "figures 2, 3 and 7", title, x, y).of_series(names);
        for (Drive { flush, .. }, cells) in of {
            let parts = cells.numbers(paper).into_iter().enumerate().map(|(n, number)| number / printed(n));
            let place = shown(flush.as_secs_f64() * 1e3);
            figure.place(&place, parts);
            names.iter().for_each(|name| figure.printed(&place, name, 1.0));
        }
        figure
    };
    drives.chunk_by(|a, b| a.0.scattered == b.0.scattered).map(figure).collect()
}

/// The claims, of which one drive is the cause if all that hold here hold with it, too.
pub(super) fn with_one_drive(claims: Vec<Claim>, others: &[Drive], with: &[Cells], paper: usize) -> Vec<Claim> {
    let names: Vec<String> = others.iter().map(Drive::to_string).collect();
    let figures = |cells: &Cells| -> Vec<f64> {
        cells.claims(paper).iter().map(|claim| claim.measured.unwrap_or(f64::NAN)).collect()
    };
    let rows: Vec<Vec<f64>> = with.iter().map(figures).collect();
    with_one_row("what a flush of the paper's Samsung 840 and a write elsewhere take is assumed", &names, claims, &rows)
}

#[cfg(test)]
mod tests {
    use super::super::claims::{COLUMNS, Outcome};
    use super::*;

    #[test]
    fn each_drive_is_another_than_all_before_it() {
        let all = [vec![Drive::ASSUMED], Drive::others(Effort::Normal)].concat();
        assert!(all.iter().enumerate().all(|(n, drive)| !all[..n].contains(drive)));
        let (assumed, model) = (Drive::ASSUMED, Model::samsung_840());
        assert_eq!(assumed.of(model), model, "the first is the model's");
        let slow = Drive { flush: Duration::from_millis(4), ..assumed };
        assert_eq!(slow.of(model), Model { flush: slow.flush, ..model });
    }

    const ELSEWHERE: Drive = Drive { scattered: Duration::from_micros(10), ..Drive::ASSUMED };

    /// Writes a second of `ext4-none` and of all others, never synced and often.
    fn cells(none: u64, others: u64) -> Cells {
        let mut cells = Cells::new(&[0, 64]);
        for (column, of) in COLUMNS.iter().zip(&mut cells.of) {
            let writes = if column.name == "ext4-none" { none } else { others };
            *of = vec![Outcome { writes, fsyncs: 1, seconds: 1.0, ..Outcome::default() }; 2];
        }
        cells
    }

    #[test]
    fn a_drive_is_the_cause_of_what_it_brings_and_its_numbers_are_parts_of_the_papers() {
        let (here, there) = (cells(1000, 100), cells(1000, 564));
        let verdict = |with: Cells| {
            let drives = [ELSEWHERE];
            let claims = with_one_drive(here.claims(2), &drives, &[with], 2);
            claims.into_iter().find(|claim| claim.paper == Some(43.6)).unwrap()
        };
        assert_eq!(verdict(there.clone()).verdict, crate::results::Verdict::Differs);
        assert!(
            verdict(there.clone())
                .shared_cause()
                .unwrap()
                .contains("with 10µs more to a write elsewhere and a flush of 2ms")
        );
        assert_eq!(verdict(here.clone()).verdict, crate::results::Verdict::NotHeld);
        let figures = by_drive(&[(Drive::ASSUMED, &there), (ELSEWHERE, &here)], 2);
        assert_eq!(figures.iter().map(|f| &*f.id).collect::<Vec<_>>(), ["djfs-7-drives-0", "djfs-7-drives-10"]);
        let lost = figures[0].series[0].points[0].as_ref().map(|point| point.value);
        assert!(lost.is_some_and(|part| (part - 1.0).abs() < 1e-3), "{lost:?}");
    }
}
