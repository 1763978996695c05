//! The rows that [`super::clients`] prints and keeps in a data file, of which `scripts/report.py` makes a table.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Result;
use serde_json::{Value, json};

use crate::results::{Host, date};

pub(super) const HEAD: &str = "| workload | unit | mounter | median | ratio | least .. most | p99 us | threads | \
    switches/request | fsyncs/commit |\n|---|---|---|---|---|---|---|---|---|---|";

/// What a mounter did in the rounds of one workload: medians.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub workload: String,
    pub unit: String,
    pub mounter: String,
    pub rate: f64,
    /// To the first mounter.
    pub ratio: f64,
    /// Of each round.
    pub rates: Vec<f64>,
    pub p99_micros: Option<f64>,
    /// Of Quire's daemon: its threads at most, context switches to a request, fsyncs to a commit.
    pub threads: Option<f64>,
    pub switches: Option<f64>,
    pub fsyncs: Option<f64>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = self.rates.iter().fold((f64::MAX, 0.0_f64), |(a, b), r| (a.min(*r), b.max(*r)));
        let Row { workload, unit, mounter, rate, ratio, .. } = self;
        write!(f, "| {workload} | {unit} | {mounter} | {rate:.1} | {ratio:.2} | {least:.1} .. {most:.1} |")?;
        for value in [self.p99_micros, self.threads, self.switches, self.fsyncs] {
            match value {
                Some(v) => write!(f, " {v:.2} |")?,
                None => write!(f, " - |")?,
            }
        }
        Ok(())
    }
}

impl Row {
    fn to_json(&self) -> Value {
        let round = |v: f64| (v * 100.0).round() / 100.0;
        json!({
            "workload": self.workload, "unit": self.unit, "mounter": self.mounter,
            "rates": self.rates.iter().copied().map(round).collect::<Vec<_>>(),
            "p99_micros": self.p99_micros.map(round), "threads": self.threads,
            "switches": self.switches.map(round), "fsyncs": self.fsyncs.map(round),
        })
    }
}

/// Puts rows into a data file in the place of those of the same workloads and mounters, and today's date. What else the
/// file says stays.
pub(super) fn save(file: &Path, rows: &[Row]) -> Result<()> {
    let mut data: Value = match fs::read_to_string(file) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => {
            json!({"title": "Many clients", "host": Host::here().line(), "command": "sudo scripts/bench.sh clients", "rows": []})
        }
    };
    data["date"] = date(SystemTime::now()).into();
    let mut kept = data["rows"].as_array().cloned().unwrap_or_default();
    for row in rows {
        let new = row.to_json();
        match kept.iter_mut().find(|old| old["workload"] == new["workload"] && old["mounter"] == new["mounter"]) {
            Some(old) => *old = new,
            None => kept.push(new),
        }
    }
    data["rows"] = kept.into();
    Ok(fs::write(file, serde_json::to_string_pretty(&data)? + "\n")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workload: &str, mounter: &str, rate: f64) -> Row {
        Row {
            workload: workload.to_owned(),
            unit: "1/s".to_owned(),
            mounter: mounter.to_owned(),
            rate,
            ratio: 1.0,
            rates: vec![rate],
            p99_micros: None,
            threads: None,
            switches: None,
            fsyncs: None,
        }
    }

    #[test]
    fn a_saved_row_replaces_its_own_workload_and_mounter_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("clients.json");
        fs::write(&file, r#"{"host": "A", "rows": []}"#).unwrap();
        save(&file, &[row("git", "kernel", 1.0), row("git", "quire", 2.0)]).unwrap();
        save(&file, &[row("git", "quire", 3.0), row("tar", "quire", 4.0)]).unwrap();
        let data: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let rates: Vec<_> = data["rows"].as_array().unwrap().iter().map(|r| r["rates"][0].as_f64().unwrap()).collect();
        assert_eq!(rates, [1.0, 3.0, 4.0]);
        assert_eq!(data["host"], "A");
    }
}
