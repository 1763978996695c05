//! One study's run, as a file.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Findings, Host, Paper};

/// How much of a study is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// All studies in ten minutes: counts and ratios are right, their spread is wide.
    Quick,
    #[default]
    Normal,
    /// The papers' sizes, where memory and hours allow: what a study has less of, its assumptions say.
    Full,
}

impl Effort {
    /// One of three.
    pub fn pick<T>(self, quick: T, normal: T, full: T) -> T {
        match self {
            Effort::Quick => quick,
            Effort::Normal => normal,
            Effort::Full => full,
        }
    }
}

/// A study's findings with what they were found by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub study: String,
    pub paper: Paper,
    pub title: String,
    pub effort: Effort,
    /// Of the day, in UTC.
    pub date: String,
    /// How long it took.
    pub seconds: u64,
    pub command: String,
    /// Version and checksum of the program.
    pub build: String,
    pub host: Host,
    #[serde(flatten)]
    pub findings: Findings,
}

impl Run {
    /// Reads one.
    ///
    /// # Errors
    /// The file is missing, or is none.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no study's result", path.display()))
    }

    /// All of a directory, by paper and name.
    ///
    /// # Errors
    /// The directory or one of its files cannot be read.
    pub fn load_all(dir: &Path) -> Result<Vec<Self>> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "json") {
                runs.push(Run::load(&path)?);
            }
        }
        runs.sort_by(|a, b| (a.paper, &a.study).cmp(&(b.paper, &b.study)));
        Ok(runs)
    }

    /// Writes it as `DIR/STUDY.json`: whole, or not at all.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir)?;
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let part = dir.join(format!("{}.part", self.study));
        fs::write(&part, text)?;
        fs::rename(part, dir.join(format!("{}.json", self.study))).map_err(Into::into)
    }
}

/// Version of this program, and the checksum of its file: another build has another.
#[must_use]
pub fn build() -> String {
    let sum = std::env::current_exe().and_then(fs::read).map_or(0, |bytes| quire_layout::checksum::crc32c(!0, &bytes));
    format!("{}-{sum:08x}", env!("CARGO_PKG_VERSION"))
}

/// A day in UTC as YYYY-MM-DD.
#[must_use]
pub fn date(time: SystemTime) -> String {
    let days = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs() / 86_400;
    // Civil from days (Howard Hinnant): years begin in March, so that a leap day is the last of its year.
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, after) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{of_month:02}", year + era * 400 + after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let day = |n: u64| date(UNIX_EPOCH + Duration::from_secs(n * 86_400 + 86_399));
        assert_eq!(
            [day(0), day(19_782), day(19_783), day(20_782)],
            ["1970-01-01", "2024-02-29", "2024-03-01", "2026-11-25"]
        );
    }

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut findings = Findings::default();
        let mut figure = super::super::Figure::lines("f", "figure 1", "t", "x", "y").of_series(["a"]);
        figure.place("1", [1.0 / 3.0]);
        findings.figures.push(figure);
        let run = Run {
            study: "s".into(),
            paper: Paper::Joj,
            title: "t".into(),
            effort: Effort::Quick,
            date: date(SystemTime::now()),
            seconds: 1,
            command: "c".into(),
            build: build(),
            host: Host::here(),
            findings,
        };
        run.save(dir.path()).unwrap();
        assert_eq!(Run::load_all(dir.path()).unwrap(), [run]);
        assert!(Run::load(&dir.path().join("none.json")).is_err());
    }
}
