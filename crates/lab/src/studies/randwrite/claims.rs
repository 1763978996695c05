//! What DJFS' figures 2, 3 and 7 show of the random writes, and the paper's sentences about them.

use super::super::ways::{self, Way};
use crate::results::{ABOUT, Claim, Figure};
use crate::rig::Traffic;
use crate::stats::float;

/// The journals that are compared.
pub(super) const COLUMNS: [Way; 7] =
    [ways::NONE, ways::ORDERED, ways::JOURNAL, ways::EXTERNAL, ways::NVJ, ways::DJFS, ways::DJFS4];

/// What a column did with one frequency of fsyncs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) writes: u64,
    pub(super) fsyncs: u64,
    pub(super) traffic: Traffic,
    pub(super) seconds: f64,
}

impl Outcome {
    pub(super) fn iops(&self) -> f64 {
        float(self.writes) / self.seconds
    }
}

/// The paper's numbers that a drive decides, and what they are of.
pub(super) const NUMBERS: [(&str, &str); 7] = [
    ("ext4-none: lost with ext4-journal, %", "43.6"),
    ("external: gain without fsyncs, %", "46.1"),
    ("nvj / external", "2.2"),
    ("djfs / ext4-journal, without fsyncs", "1.7"),
    ("djfs / the slower of ext4-ordered and ext4-journal", "5.1"),
    ("djfs / external", "4.0"),
    ("djfs / nvj", "1.8"),
];
/// Their places.
const LOST: usize = 0;
const GAIN: usize = 1;
const NVJ_TO_EXTERNAL: usize = 2;
const NEVER: usize = 3;
pub(super) const TO_DEVICE: usize = 4;
pub(super) const TO_EXTERNAL: usize = 5;
pub(super) const TO_NVJ: usize = 6;

/// What was measured on one drive, by column and frequency.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    every: Vec<u64>,
    /// In the order of [`COLUMNS`].
    pub(super) of: Vec<Vec<Outcome>>,
}

impl Cells {
    pub(super) fn new(every: &[u64]) -> Self {
        Cells { every: every.to_vec(), of: vec![Vec::new(); COLUMNS.len()] }
    }

    /// [`NUMBERS`], of the frequencies that the paper has. "Up to" is the most of them.
    pub(super) fn numbers(&self, paper: usize) -> [f64; NUMBERS.len()] {
        let djfs = |other| self.up_to(ways::DJFS.name, other, paper);
        [
            100.0 - 100.0 / self.up_to("ext4-none", "ext4-journal", paper),
            (self.ratio("external", "ext4-journal", 0) - 1.0) * 100.0,
            self.up_to("nvj", "external", paper),
            self.ratio("djfs", "ext4-journal", 0),
            djfs("ext4-ordered").max(djfs("ext4-journal")),
            djfs("external"),
            djfs("nvj"),
        ]
    }

    fn cell(&self, name: &str, row: usize) -> &Outcome {
        let column = COLUMNS.iter().position(|c| c.name == name).expect("a column");
        &self.of[column][row]
    }

    pub(super) fn ratio(&self, a: &str, b: &str, row: usize) -> f64 {
        self.cell(a, row).iops() / self.cell(b, row).iops()
    }

    pub(super) fn figures(&self, paper: usize) -> Vec<Figure> {
        let per = |o: &Outcome, n: u64| float(n) / float(o.writes.max(1)) * 1000.0;
        let all = 0..self.every.len();
        let few = ["ext4-none", "ext4-ordered", "ext4-journal"];
        let journals = ["ext4-journal", "external", "nvj"];
        let every = COLUMNS.map(|c| c.name);
        let mut figures = vec![
            self.figure("djfs-2a", "figure 2a", "Random writes", "writes/s", &few, 0..paper, |o| o.iops()),
            self.figure("djfs-2b", "figure 2b", "Flushes", "of 1000 writes", &few, 0..paper, |o| {
                per(o, o.traffic.flushes)
            }),
            self.figure("djfs-2c", "figure 2c", "FUA writes", "of 1000 writes", &few, 0..paper, |o| {
                per(o, o.traffic.fua)
            }),
            self.figure("djfs-2d", "figure 2d", "Bytes to the journal", "MB of 1000 writes", &few, 0..paper, |o| {
                per(o, o.traffic.journal) / 1e6
            }),
            self.figure("djfs-3a", "figure 3a", "Random writes", "writes/s", &journals, 0..paper, |o| o.iops()),
            self.figure("djfs-3b", "figure 3b", "Flushes", "of 1000 writes", &journals, 0..paper, |o| {
                per(o, o.traffic.flushes)
            }),
            self.figure("djfs-7", "figure 7", "Random writes", "writes/s", &every, 0..paper, |o| o.iops()),
        ];
        if all.len() > paper {
            let title = "Random writes with more fsyncs than in the paper";
            figures.push(
                self.figure("djfs-7-more", "figure 7", title, "writes/s", &every, paper..all.len(), |o| o.iops())
                    .logarithmic(),
            );
        }
        figures
    }

    #[expect(clippy::too_many_arguments, reason = "one line to a figure")]
    fn figure(
        &self,
        id: &str,
        of: &str,
        title: &str,
        y: &str,
        names: &[&str],
        rows: std::ops::Range<usize>,
        value: impl Fn(&Outcome) -> f64,
    ) -> Figure {
        let mut figure = Figure::bars(id, of, title, "fsync every so many writes", y).of_series(names);
        for row in rows {
            let place = if self.every[row] == 0 { "never".into() } else { self.every[row].to_string() };
            figure.place(place, names.iter().map(|name| value(self.cell(name, row))));
        }
        figure
    }

    /// Of the frequencies that the paper has: the last of them is its highest, an fsync every 64 writes.
    pub(super) fn claims(&self, paper: usize) -> Vec<Claim> {
        let numbers = self.numbers(paper);
        let mut claims = self.of_motivation(paper, numbers[LOST]);
        claims.extend(self.of_places(paper, &numbers));
        claims.extend(self.of_djfs(&numbers));
        claims
    }

    /// The highest of the paper's frequencies: "up to".
    fn up_to(&self, a: &str, b: &str, paper: usize) -> f64 {
        (0..paper).map(|row| self.ratio(a, b, row)).fold(0.0, f64::max)
    }

    /// Figure 2: what the journals of ext4 cost.
    fn of_motivation(&self, paper: usize, lost: f64) -> Vec<Claim> {
        let grown = |name: &str, of: fn(&Traffic) -> u64| {
            let to_a_write = |row: usize| {
                let o = self.cell(name, row);
                float(of(&o.traffic)) / float(o.writes.max(1))
            };
            to_a_write(paper - 1) / to_a_write(1)
        };
        let of_both = |of: fn(&Traffic) -> u64| grown("ext4-ordered", of).min(grown("ext4-journal", of));
        let left = |name: &str| self.cell(name, paper - 1).iops() / self.cell(name, 0).iops();
        let none = self.cell("ext4-none", paper - 1);
        vec![
            Claim::about(
                "figure 2",
                "full journaling loses up to 43.6 % of the writes of no journal",
                "the most of all frequencies: what ext4-journal loses of ext4-none's writes, %",
                lost,
                (NUMBERS[LOST].1, ABOUT),
            ),
            Claim::at_least(
                "figure 2",
                "flushes and FUA writes grow dramatically with the fsyncs, with ordered and full journaling",
                "every 64 / the rarest, to a write: the least of flushes and FUA writes of both",
                of_both(|t| t.flushes).min(of_both(|t| t.fua)),
                3.0,
            ),
            Claim::at_least(
                "figure 2, section III",
                "with the fsyncs journaling of metadata and of descriptors and commit blocks grows seriously",
                "ext4-ordered, which logs nothing else: every 64 / the rarest, bytes to the journal to a write",
                grown("ext4-ordered", |t| t.journal),
                3.0,
            ),
            Claim::at_most(
                "figure 2, section III",
                "fsyncs degrade ordered and full journaling drastically",
                "every 64 / never: the most of ext4-ordered and ext4-journal",
                left("ext4-ordered").max(left("ext4-journal")),
                0.5,
            ),
            Claim::at_most(
                "figure 2, section III",
                "fsyncs affect no journal seriously, too",
                "every 64 / never: ext4-none",
                left("ext4-none"),
                0.5,
            ),
            Claim::about(
                "figure 2",
                "without a journal each fsync is a flush",
                "ext4-none: flushes to an fsync",
                float(none.traffic.flushes) / float(none.fsyncs.max(1)),
                (1.0, 0.01),
            ),
        ]
    }

    /// Figure 3: what another place for the journal brings.
    fn of_places(&self, paper: usize, numbers: &[f64]) -> Vec<Claim> {
        let often = |name: &str| self.cell(name, paper - 1);
        let flushes = |name: &str| float(often(name).traffic.flushes) / float(often(name).writes.max(1));
        vec![
            Claim::about(
                "figure 3",
                "without fsyncs an external journal improves the writes by 46.1 %",
                "never: external's gain on ext4-journal, %",
                numbers[GAIN],
                (NUMBERS[GAIN].1, ABOUT),
            ),
            Claim::about(
                "figure 3, section V.1",
                "with fsyncs an external journal gains nothing outstanding",
                "every 64: external / ext4-journal",
                self.ratio("external", "ext4-journal", paper - 1),
                (1.0, ABOUT),
            ),
            Claim::about(
                "figure 3",
                "a journal in NVRAM is up to 2.2 times as fast as an external one",
                "the most of all frequencies: nvj / external",
                numbers[NVJ_TO_EXTERNAL],
                (NUMBERS[NVJ_TO_EXTERNAL].1, ABOUT),
            ),
            Claim::above(
                "figure 3, section V.1",
                "a journal in NVRAM gains most with fsyncs",
                "nvj / external: every 64 / never",
                self.ratio("nvj", "external", paper - 1) / self.ratio("nvj", "external", 0),
                1.0,
            ),
            Claim::at_least(
                "figure 3, section V.1",
                "a journal of whole blocks in NVRAM checkpoints frequently",
                "every 64, flushes to a write: nvj / djfs",
                flushes("nvj") / flushes("djfs"),
                3.0,
            ),
        ]
    }

    /// Figure 7: DJFS beside all others.
    fn of_djfs(&self, numbers: &[f64]) -> Vec<Claim> {
        let up_to =
            |says: &str, what: &str, n: usize| Claim::about("figure 7", says, what, numbers[n], (NUMBERS[n].1, ABOUT));
        vec![
            up_to(
                "without fsyncs DJFS is up to 1.7 times as fast as full journaling",
                "never: djfs / ext4-journal",
                NEVER,
            ),
            Claim::about(
                "figure 7",
                "without fsyncs DJFS is close to ordered",
                "never: djfs / ext4-ordered",
                self.ratio("djfs", "ext4-ordered", 0),
                (1.0, ABOUT),
            ),
            up_to(
                "with fsyncs DJFS is up to 5.1 times as fast as ordered and full journaling",
                "the most of all frequencies: djfs / the slower of ext4-ordered and ext4-journal",
                TO_DEVICE,
            ),
            up_to(
                "with fsyncs it is up to 4.0 times as fast as external journaling",
                "the most of all frequencies: djfs / external",
                TO_EXTERNAL,
            ),
            up_to(
                "it is up to 1.8 times as fast as journaling in NVRAM alone",
                "the most of all frequencies: djfs / nvj",
                TO_NVJ,
            ),
        ]
    }
}
