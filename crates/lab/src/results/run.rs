//! One study's run, as a file.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Findings, Host, Paper};
use crate::cmd::command;

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

/// The program that a study is run by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Version and checksum of its file: another build has another, and a result counts as of the same program by it.
    pub build: String,
    /// The commit that was checked out where it was built; older results do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

impl Program {
    /// This one.
    #[must_use]
    pub fn here() -> Self {
        Program { build: build(), commit: commit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")) }
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
    #[serde(flatten)]
    pub program: Program,
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

fn build() -> String {
    let sum = std::env::current_exe().and_then(fs::read).map_or(0, |bytes| quire_layout::checksum::crc32c(!0, &bytes));
    format!("{}-{sum:08x}", env!("CARGO_PKG_VERSION"))
}

/// What a program is made of, in its repository.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

/// The commit that is checked out in a repository, with `-dirty` behind it where sources are not as they are there.
/// Results that are recorded make no source another. `None` where there is no repository.
fn commit(repository: &Path) -> Option<String> {
    let git = |args: &[&str]| command("git").arg("-C").arg(repository).args(args).output().ok();
    let said = git(&["describe", "--always", "--exclude=*"]).filter(|said| said.status.success())?;
    let name = String::from_utf8(said.stdout).ok()?.trim().to_owned();
    let same = git(&[&["diff", "--quiet", "HEAD", "--"][..], &SOURCES].concat())?.status.success();
    Some(if same { name } else { name + "-dirty" })
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
            program: Program::here(),
            host: Host::here(),
            findings,
        };
        run.save(dir.path()).unwrap();
        assert_eq!(Run::load_all(dir.path()).unwrap(), [run]);
        assert!(Run::load(&dir.path().join("none.json")).is_err());
    }

    #[test]
    fn a_commit_is_named_with_whether_sources_have_changed_since() {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
            let out = command("git").arg("-C").arg(dir.path()).args(who).args(args).output().unwrap();
            assert!(out.status.success(), "git {args:?}: {out:?}");
            String::from_utf8(out.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(commit(dir.path()), None, "no repository");
        git(&["init", "--quiet"]);
        let [source, result] = ["crates/a.rs", "result.json"].map(|name| dir.path().join(name));
        fs::create_dir(dir.path().join("crates")).unwrap();
        for file in [&source, &result, &dir.path().join("Cargo.toml"), &dir.path().join("Cargo.lock")] {
            fs::write(file, "1").unwrap();
        }
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", "a commit"]);
        let name = git(&["rev-parse", "--short", "HEAD"]);
        assert_eq!(commit(dir.path()), Some(name.clone()));
        fs::write(result, "2").unwrap();
        assert_eq!(commit(dir.path()), Some(name.clone()), "a result is no source");
        fs::write(source, "2").unwrap();
        assert_eq!(commit(dir.path()), Some(name + "-dirty"));
    }

    #[test]
    fn a_result_of_before_without_a_commit_is_read() {
        let older: Program = serde_json::from_str(r#"{"build": "0.1.0-1b0bf662"}"#).unwrap();
        assert_eq!(older, Program { build: "0.1.0-1b0bf662".into(), commit: None });
        assert_eq!(serde_json::to_string(&older).unwrap(), r#"{"build":"0.1.0-1b0bf662"}"#);
    }
}
