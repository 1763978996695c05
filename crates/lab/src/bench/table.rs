//! A table of medians with their spread, as it is printed and as a data file of `bench/results` that
//! `scripts/report.py` makes a table of.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Result;
use serde_json::json;

use crate::results::{Host, date};
use crate::stats::{median, range};

/// A row: what it is, its unit, and of each column the values of all rounds.
pub(crate) struct Row {
    pub name: String,
    pub unit: &'static str,
    pub values: Vec<Vec<f64>>,
}

/// The ratios are those to the first column.
pub(crate) struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
}

/// What a data file says besides the numbers.
pub(crate) struct About<'a> {
    pub title: &'a str,
    pub note: String,
    pub command: &'a str,
}

impl Table {
    /// A row without values yet.
    pub(crate) fn add(&mut self, name: &str, unit: &'static str) {
        self.rows.push(Row { name: name.to_owned(), unit, values: vec![Vec::new(); self.columns.len()] });
    }

    pub(crate) fn print(&self) {
        println!("| | unit | {} |\n|---|---|{}", self.columns.join(" | "), "---|".repeat(self.columns.len()));
        for row in &self.rows {
            let cell = |values: &Vec<f64>| middle(values).map_or("-".to_owned(), |v| format!("{v:.2}"));
            let cells: Vec<String> = row.values.iter().map(cell).collect();
            println!("| {} | {} | {} |", row.name, row.unit, cells.join(" | "));
        }
    }

    /// Writes a data file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save(&self, file: &Path, about: &About<'_>) -> Result<()> {
        let cells = |row: &Row| row.values.iter().map(|v| middle(v).map(round)).collect::<Vec<_>>();
        let rows: Vec<_> = self.rows.iter().map(|row| json!([row.name, row.unit, cells(row)])).collect();
        let ranges = |row: &Row| row.values.iter().map(|v| spread(v)).collect::<Vec<_>>();
        let spread: serde_json::Map<_, _> = self.rows.iter().map(|r| (r.name.clone(), json!(ranges(r)))).collect();
        let data = json!({
            "title": about.title,
            "date": date(SystemTime::now()),
            "host": Host::here().line(),
            "note": about.note,
            "command": about.command,
            "columns": self.columns, "base": 0, "rows": rows, "spread": spread,
        });
        Ok(fs::write(file, serde_json::to_string_pretty(&data)? + "\n")?)
    }
}

fn round(v: f64) -> f64 {
    (v * 100.0).round() / 100.0
}

fn middle(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| median(values))
}

/// Least and most.
fn spread(values: &[f64]) -> Option<[f64; 2]> {
    range(values).map(|(least, most)| [round(least), round(most)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_file_has_medians_and_their_spread() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.json");
        let mut table = Table { columns: vec!["a".into(), "b".into()], rows: Vec::new() };
        table.add("row", "ms");
        table.rows[0].values[1].extend([3.0, 1.0, 2.004]);
        table.save(&file, &About { title: "T", note: "N".into(), command: "c" }).unwrap();
        let data: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(data["rows"], json!([["row", "ms", [null, 2.0]]]));
        assert_eq!(data["spread"], json!({"row": [null, [1.0, 3.0]]}));
    }
}
