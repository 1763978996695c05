//! Writes one structure of each kind, from real images, into a directory: what the fuzz target `decode` begins with.
//! `cargo run -p quire-sim --example fuzz_seeds -- fuzz/corpus/decode`

use quire_sim::hostile::{Base, base::RECIPES};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let dir = PathBuf::from(std::env::args().nth(1).expect("a directory"));
    std::fs::create_dir_all(&dir)?;
    let mut written = BTreeSet::new();
    for recipe in RECIPES.iter().filter(|r| ["dirty", "ext4", "plain", "inline", "external"].contains(&r.name)) {
        let base = Base::new(recipe);
        for p in base.places.iter().rev().filter(|p| p.len <= 1024) {
            let metadata_csum = base.sb.features().metadata_csum();
            if written.insert((p.kind.name(), metadata_csum)) {
                let mut bytes = vec![0; p.len];
                base.image.read(p.at, &mut bytes);
                std::fs::write(dir.join(format!("{}-{}", recipe.name, p.kind.name().replace(' ', "-"))), bytes)?;
            }
        }
    }
    println!("{} structures", written.len());
    Ok(())
}
