//! What the kernel and Quire do with the images, written down with host and date: the tables of docs/testing.md.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::judge::Tally;
use super::rows::rows;
use super::seen::By;
use crate::cmd::{command, run};
use crate::mounter::Mounter;

/// Mount one image of each kind of damage by the kernel and by Quire, and write down what each did
///
/// Example: quire-lab images --record bench/results; scripts/report.py
#[derive(clap::Args, Debug)]
pub struct Record {
    /// The directory of the data file `images.json`
    #[arg(long)]
    record: PathBuf,
}

impl Record {
    /// Makes the images, looks, and writes the file.
    pub fn run(&self) -> Result<()> {
        let missing = Mounter::kernel("").unavailable();
        ensure!(missing.is_none(), "what the kernel does cannot be seen here: {}", missing.unwrap_or_default());
        let dir = tempfile::tempdir()?;
        let all = rows(dir.path())?;
        let cells =
            all.iter().map(|(row, kernel, quire)| json!([row.image, kernel.to_string(), quire.to_string(), row.test]));
        write(&self.record, "images", "One image of each kind, mounted", "quire-lab images --record bench/results", {
            (&["the kernel", "Quire", "test"], cells.collect())
        })
    }
}

/// Writes what was seen of the images of an acceptance run, by kinds.
pub fn kinds(dir: &Path, sum: &Tally, command: &str) -> Result<()> {
    let mut cells: BTreeMap<&str, [Vec<String>; 2]> = BTreeMap::new();
    for ((kind, by, what), n) in &sum.seen {
        cells.entry(kind).or_default()[usize::from(*by == By::Quire)].push(format!("{n} {what}"));
    }
    let rows = cells.iter().map(|(kind, [kernel, quire])| json!([kind, kernel.join("; "), quire.join("; ")]));
    let title = format!("{} images of {} kinds, mounted and worked on", sum.images, cells.len());
    write(dir, "image-kinds", &title, command, (&["the kernel", "Quire"], rows.collect()))
}

fn write(dir: &Path, name: &str, title: &str, what: &str, (columns, rows): (&[&str], Vec<Value>)) -> Result<()> {
    let kernel = run(command("uname").arg("-r"))?;
    let version = kernel.split(['.', '-']).take(2).collect::<Vec<_>>().join(".");
    let date = run(command("date").arg("-I"))?;
    let data = json!({
        "title": title,
        "date": date.trim(),
        "host": format!("Linux {version}"),
        "command": what,
        "columns": columns,
        "rows": rows,
    });
    let path = dir.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(&data)?;
    fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
