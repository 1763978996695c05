//! A full disk: ENOSPC at the call, nothing broken, and room again after deleting.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::context::{Context, Outcome};
use crate::image::Image;
use quire_testkit::rng::content;

/// Fills by bytes, then by inodes, twice; between, everything is deleted.
pub fn run(context: &Context) -> Result<Outcome> {
    let image = Image::make(&context.dir.join("full.img"), 48 << 20, &["-b", "4096", "-N", "2000"])?;
    for round in 0..2 {
        let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
        let dir = mounted.dir();
        let written = fill_bytes(dir).with_context(|| format!("round {round}"))?;
        ensure!(written > 30 << 20, "only {written} bytes fitted into 48 MiB");
        let whole = fs::read(dir.join("kept"))?;
        ensure!(whole == content(1, 0, 5000), "a file that was complete before changed");
        remove_all(dir)?;
        let again = fill_bytes(dir).with_context(|| format!("round {round}, after deleting"))?;
        ensure!(again > written / 100 * 97, "{again} bytes fitted after deleting, {written} before");
        remove_all(dir)?;
        let made = fill_inodes(dir)?;
        ensure!((1900..2000).contains(&made), "{made} files fitted into 2000 inodes");
        remove_all(dir)?;
        mounted.unmount()?;
        image.check_clean().with_context(|| format!("after round {round}"))?;
    }
    Ok(Outcome::Passed)
}

/// Writes files of 300 KB until there is no space, and says how many bytes were acknowledged by fsync.
fn fill_bytes(dir: &Path) -> Result<u64> {
    let mut kept = File::create(dir.join("kept"))?;
    kept.write_all(&content(1, 0, 5000))?;
    kept.sync_all()?;
    let mut total = 0;
    for n in 0..1000_u64 {
        let bytes = content(n, 0, 300_000);
        let written = File::create(dir.join(format!("fill{n}"))).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        match written {
            Ok(()) => total += bytes.len() as u64,
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                ensure!(fs::read_dir(dir)?.count() as u64 >= n, "names are missing");
                return Ok(total);
            }
            Err(error) => return Err(error).context("a full disk must say ENOSPC"),
        }
    }
    bail!("300 MB fitted into 48 MiB")
}

fn fill_inodes(dir: &Path) -> Result<u64> {
    for n in 0..3000 {
        match File::create_new(dir.join(format!("inode{n}"))) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(n),
            Err(error) => return Err(error).context("no free inode must say ENOSPC"),
        }
    }
    bail!("3000 files fitted into 2000 inodes")
}

fn remove_all(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() != "lost+found" {
            fs::remove_file(entry.path())
                .with_context(|| format!("unlink {} on a full disk", entry.path().display()))?;
        }
    }
    Ok(())
}
