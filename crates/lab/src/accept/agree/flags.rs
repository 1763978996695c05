//! Append-only and immutable files, also those that were open before they became so.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::Result;
use rustix::fs::OFlags;

use super::told::told;
use crate::cmd::{command, run, say};

fn chattr(flag: &str, path: &Path) -> Result<()> {
    run(command("chattr").arg(flag).arg(path)).map(drop)
}

/// What is allowed, through a descriptor from before and from after; and what is in the file then.
pub(super) fn append_only(dir: &Path) -> Result<String> {
    let path = dir.join("log");
    let mut before = File::options().append(true).create(true).open(&path)?;
    before.write_all(b"one,")?;
    chattr("+a", &path)?;
    let mut seen = vec![told(before.write_all(b"two,")), told(before.sync_all())];
    seen.push(told(File::options().append(true).open(&path).and_then(|mut file| file.write_all(b"three"))));
    seen.push(told(File::options().write(true).open(&path)));
    seen.push(told(File::create(&path)));
    seen.push(told(fs::remove_file(&path)));
    seen.push(told(fs::rename(&path, dir.join("other"))));
    seen.push(told(before.set_len(1)));
    chattr("-a", &path)?;
    seen.push(fs::read_to_string(&path)?);
    Ok(seen.join(", "))
}

/// touch(1), now and at a given time.
pub(super) fn times_of_append_only(dir: &Path) -> Result<String> {
    let path = dir.join("log");
    fs::write(&path, "x")?;
    run(command("touch").args(["-d", "2001-01-01"]).arg(&path))?;
    chattr("+a", &path)?;
    let now = say(command("touch").arg(&path))?.code;
    let given = say(command("touch").args(["-d", "2002-02-02"]).arg(&path))?.code;
    let only_read = say(command("touch").args(["-a", "-d", "2002-02-02"]).arg(&path))?.code;
    chattr("-a", &path)?;
    let recent = fs::metadata(&path)?.mtime() > 1_500_000_000;
    Ok(format!("touch {now}, at a time {given}, only access {only_read}, of now {recent}"))
}

/// Writes through a descriptor from before.
pub(super) fn immutable(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    let file = File::create(&path)?;
    file.write_all_at(b"before", 0)?;
    chattr("+i", &path)?;
    let written = file.write_all_at(b"after!", 0).and_then(|()| file.sync_all()).is_ok();
    let linked = told(fs::hard_link(&path, dir.join("link")));
    chattr("-i", &path)?;
    Ok(format!("written {written}, {linked}, {}", fs::read_to_string(&path)?))
}

/// An append-only descriptor that is turned into one for any offset.
pub(super) fn set_flags(dir: &Path) -> Result<String> {
    let path = dir.join("log");
    fs::write(&path, "x")?;
    chattr("+a", &path)?;
    let file = File::options().append(true).open(&path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    let set = rustix::fs::fcntl_setfl(&file, flags - OFlags::APPEND);
    chattr("-a", &path)?;
    Ok(if set.is_ok() { "allowed" } else { "refused" }.to_owned())
}
