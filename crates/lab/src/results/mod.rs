//! What a study found, as data: figures whose points stand beside the paper's, claims, and what the study assumes. Each
//! study writes one file of it with date, machine and command; the report ([`crate::report`]) is made of such files
//! alone.

mod claim;
mod host;
mod number;
mod run;
mod swept;

pub use claim::{ABOUT, Claim, Side, TIE, Verdict};
pub use host::Host;
pub use number::shown;
pub use run::{Effort, Program, Run, date};
pub use swept::{Swept, with_one_row, with_one_value};

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::stats::Spread;
use number::rounded;

/// What a study is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Paper {
    Joj,
    Djfs,
    Okeanos,
    Rfj,
    /// Not a paper's: what Quire adds.
    Quire,
}

impl Paper {
    pub const ALL: [Paper; 5] = [Paper::Joj, Paper::Djfs, Paper::Okeanos, Paper::Rfj, Paper::Quire];

    /// How it is called in texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Paper::Joj => "JoJ",
            Paper::Djfs => "DJFS",
            Paper::Okeanos => "Okeanos",
            Paper::Rfj => "RFJ",
            Paper::Quire => "Quire",
        }
    }
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    Bars,
    Lines,
}

/// One measured value and how far its repetitions are from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub value: f64,
    /// Standard deviation of the repetitions; none where there is one, or where all are alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
}

impl From<f64> for Point {
    fn from(value: f64) -> Self {
        Point { value: rounded(value), deviation: None }
    }
}

impl From<&Spread> for Point {
    fn from(s: &Spread) -> Self {
        Point { value: rounded(s.mean), deviation: (s.deviation > 0.0).then(|| rounded(s.deviation)) }
    }
}

/// Those of one name, one to each place on the x axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<Option<Point>>,
}

/// A number that the paper prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Printed {
    /// The place on the x axis.
    pub x: String,
    /// The series that it is to be compared with.
    pub series: String,
    pub value: f64,
}

/// One figure or table of a paper, as measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name in addresses and files.
    pub id: String,
    /// Which one of the paper's.
    pub of: String,
    pub title: String,
    pub shape: Shape,
    pub x: String,
    pub y: String,
    /// The y axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// The places on the x axis.
    pub places: Vec<String>,
    pub series: Vec<Series>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<Printed>,
}

impl Figure {
    #[must_use]
    pub fn bars(id: &str, of: &str, title: impl Into<String>, x: &str, y: &str) -> Self {
        Figure {
            id: id.into(),
            of: of.into(),
            title: title.into(),
            shape: Shape::Bars,
            x: x.into(),
            y: y.into(),
            log: false,
            places: Vec::new(),
            series: Vec::new(),
            printed: Vec::new(),
        }
    }

    #[must_use]
    pub fn lines(id: &str, of: &str, title: impl Into<String>, x: &str, y: &str) -> Self {
        Figure { shape: Shape::Lines, ..Figure::bars(id, of, title, x, y) }
    }

    #[must_use]
    pub fn logarithmic(self) -> Self {
        Figure { log: true, ..self }
    }

    /// With these series, each still empty.
    #[must_use]
    pub fn of_series<T: ToString>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.series = names.into_iter().map(|n| Series { name: n.to_string(), points: Vec::new() }).collect();
        self
    }

    /// Adds a place on the x axis, with a point of each series; what is not a number was not measured.
    pub fn place<P: Into<Point>>(&mut self, x: impl ToString, points: impl IntoIterator<Item = P>) {
        self.places.push(x.to_string());
        let mut points = points.into_iter().map(Into::into);
        for s in &mut self.series {
            s.points.push(points.next().filter(|p: &Point| p.value.is_finite()));
        }
    }

    /// With the series as places on the x axis, which is called `x` then, and the places as series.
    #[must_use]
    pub fn turned(self, x: &str) -> Self {
        let points = |n: usize| self.series.iter().map(|s| s.points[n]).collect();
        let series = self.places.iter().enumerate().map(|(n, name)| Series { name: name.clone(), points: points(n) });
        let printed = self.printed.iter().map(|p| Printed { x: p.series.clone(), series: p.x.clone(), value: p.value });
        let (series, printed) = (series.collect(), printed.collect());
        let places = self.series.into_iter().map(|s| s.name).collect();
        Figure { x: x.into(), places, series, printed, ..self }
    }

    /// Adds a number of the paper's.
    pub fn printed(&mut self, x: impl ToString, series: impl ToString, value: f64) {
        self.printed.push(Printed { x: x.to_string(), series: series.to_string(), value });
    }

    /// The paper's number at a place of a series.
    #[must_use]
    pub fn printed_at(&self, x: &str, series: &str) -> Option<f64> {
        self.printed.iter().find(|p| p.x == x && p.series == series).map(|p| p.value)
    }

    /// How many points there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.series.iter().map(|s| s.points.iter().flatten().count()).sum()
    }

    /// As comma-separated values, one point to a line.
    #[must_use]
    pub fn csv(&self) -> String {
        let quoted = |text: &str| {
            if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
        };
        let mut csv = format!("{},series,{},deviation,paper\n", quoted(&self.x), quoted(&self.y));
        for (n, place) in self.places.iter().enumerate() {
            for s in &self.series {
                let Some(p) = s.points[n] else { continue };
                let deviation = p.deviation.map_or(String::new(), |d| d.to_string());
                let paper = self.printed_at(place, &s.name).map_or(String::new(), |v| v.to_string());
                let _ = writeln!(csv, "{},{},{},{deviation},{paper}", quoted(place), quoted(&s.name), p.value);
            }
        }
        csv
    }
}

/// What a study found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// What the study takes for granted: devices, sizes, settings.
    pub assumptions: Vec<String>,
    pub figures: Vec<Figure>,
    pub claims: Vec<Claim>,
    /// What could not be measured here, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

impl Findings {
    pub fn assume(&mut self, what: impl Into<String>) {
        self.assumptions.push(what.into());
    }

    /// Takes another's as well.
    pub fn add(&mut self, other: Findings) {
        self.assumptions.extend(other.assumptions);
        self.figures.extend(other.figures);
        self.claims.extend(other.claims);
        self.skipped.extend(other.skipped);
    }

    /// As text: a table of each figure, then the claims.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for f in &self.figures {
            let names: Vec<&str> = f.series.iter().map(|s| &*s.name).collect();
            let _ = writeln!(out, "\n{}: {}; {} (the paper's in brackets)\n", f.of, f.title, f.y);
            let _ = writeln!(out, "| {} | {} |\n|---|{}", f.x, names.join(" | "), "---|".repeat(names.len()));
            for (n, place) in f.places.iter().enumerate() {
                let cells = f.series.iter().map(|s| {
                    let mut cell = s.points[n].map_or("-".into(), |p| shown(p.value));
                    if let Some(d) = s.points[n].and_then(|p| p.deviation) {
                        let _ = write!(cell, " +- {}", shown(d));
                    }
                    if let Some(paper) = f.printed_at(place, &s.name) {
                        let _ = write!(cell, " ({})", shown(paper));
                    }
                    cell
                });
                let _ = writeln!(out, "| {place} | {} |", cells.collect::<Vec<_>>().join(" | "));
            }
        }
        if !self.claims.is_empty() {
            let _ = writeln!(out, "\nClaims:");
            out += &self.claims.iter().map(|c| format!("  {c}\n")).collect::<String>();
        }
        out += &self.skipped.iter().map(|s| format!("  skipped: {s}\n")).collect::<String>();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_written_as_one_point_to_a_line() {
        let mut f = Figure::bars("t", "figure 1", "t", "size, B", "MB").of_series(["a", "b"]);
        f.place("1", [1.5, f64::NAN]);
        f.place("2", [0.1 + 0.2, 4.0]);
        f.printed("2", "b", 5.0);
        assert_eq!(f.csv(), "\"size, B\",series,MB,deviation,paper\n1,a,1.5,,\n2,a,0.3,,\n2,b,4,,5\n");
        assert_eq!(f.count(), 3);
    }

    #[test]
    fn a_figure_that_is_turned_has_the_same_points_and_numbers_of_the_papers() {
        let mut f = Figure::bars("t", "figure 1", "t", "mount", "MB").of_series(["1 KiB", "4 KiB"]);
        f.place("ordered", [1.5, f64::NAN]);
        f.place("journal", [0.3, 4.0]);
        f.printed("journal", "4 KiB", 5.0);
        let turned = f.clone().turned("size");
        assert_eq!(
            turned.csv(),
            "size,series,MB,deviation,paper\n1 KiB,ordered,1.5,,\n1 KiB,journal,0.3,,\n4 KiB,journal,4,,5\n"
        );
        assert_eq!(turned.turned("mount"), f);
    }
}
