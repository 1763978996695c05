//! The order of a crate's folders, bottom first, as `layers.toml` gives it.

use crate::arrows::Arrows;
use crate::model::Crate;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// `layers.toml`: for each crate its layers, lowest first. A layer is one or more files or folders below `src`.
#[derive(Deserialize)]
pub(crate) struct Layers(pub BTreeMap<String, Vec<Vec<String>>>);

impl Layers {
    /// # Errors
    /// The file cannot be read or understood.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// What is wrong with a crate: a file without a layer, a layer without a file, an arrow that leads up.
    #[must_use]
    pub(crate) fn check(&self, krate: &Crate, arrows: &Arrows) -> Vec<String> {
        let Some(layers) = self.0.get(&krate.name) else {
            return vec![format!("{}: layers.toml does not name this crate", krate.name)];
        };
        let mut faults = Vec::new();
        let mut of_file = Vec::new();
        for file in 0..krate.files.len() {
            let short = krate.short(file);
            let layer = layers.iter().position(|names| names.iter().any(|n| is_below(&short, n)));
            if layer.is_none() {
                faults.push(format!("{}: {short} belongs to no layer of layers.toml", krate.name));
            }
            of_file.push(layer.unwrap_or(usize::MAX));
        }
        for name in layers.iter().flatten() {
            if !(0..krate.files.len()).any(|f| is_below(&krate.short(f), name)) {
                faults.push(format!("{}: layers.toml names {name}, which does not exist", krate.name));
            }
        }
        for (from, to, name) in arrows.iter().flat_map(|(f, to)| to.iter().map(move |(t, n)| (*f, *t, n))) {
            if of_file[to] > of_file[from] {
                faults.push(format!(
                    "{}: {} names {name} of {}, which is above it",
                    krate.name,
                    krate.short(from),
                    krate.short(to)
                ));
            }
        }
        faults
    }
}

/// True if a file is the named one, or lies in the named folder.
fn is_below(file: &str, name: &str) -> bool {
    file == name || file.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))
}
