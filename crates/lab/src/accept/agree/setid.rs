//! Set-user-ID and set-group-ID: what the kernel remembers of a mode must not outlive a write.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cmd::{NOBODY, run};

/// The real path of id(1), and a copy of it that runs as root.
fn program(dir: &Path) -> Result<(String, String)> {
    let id = run(Command::new("sh").args(["-c", "command -v id"]))?.trim().to_owned();
    let copy = dir.join("program").to_string_lossy().into_owned();
    fs::copy(&id, &copy)?;
    fs::set_permissions(&copy, Permissions::from_mode(0o4777))?;
    Ok((id, copy))
}

fn as_nobody(script: &str, args: [&str; 2]) -> Result<String> {
    let shell = ["-c", script, "sh", args[0], args[1]];
    run(Command::new("sh").args(shell).uid(NOBODY).gid(NOBODY).current_dir("/")).map(|said| said.trim().to_owned())
}

/// A user replaces the contents in several ways and runs it: with whose rights?
pub(super) fn overwritten(dir: &Path) -> Result<String> {
    let mut seen = Vec::new();
    for change in [
        "dd if=$1 of=$2 conv=notrunc bs=1M status=none",
        "cat $1 >$2",
        "truncate -s +1 $2",
        "cat /dev/null >>$2; printf x >>$2",
    ] {
        let (id, copy) = program(dir)?;
        seen.push(as_nobody(&format!("{change}; $2 -u"), [&id, &copy])?);
    }
    Ok(seen.join(", "))
}

/// A user stores into a mapping of it; stores take no bits off.
pub(super) fn mapped(dir: &Path) -> Result<String> {
    let (_, copy) = program(dir)?;
    let mut map = super::pages::Mapped::open(Path::new(&copy))?;
    let last = map.bytes().len() - 1;
    map.bytes()[last] ^= 1;
    drop(map);
    Ok(format!("{:o}", fs::metadata(copy)?.mode() & 0o7777))
}

/// Root gives files to somebody else.
pub(super) fn chowned(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    fs::write(&path, "x")?;
    let mut seen = Vec::new();
    for mode in [0o2644, 0o2654, 0o4755, 0o6777, 0o1644] {
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        chown(&path, Some(5), Some(6))?;
        seen.push(format!("{:o}", fs::metadata(&path)?.mode() & 0o7777));
    }
    Ok(seen.join(", "))
}

/// A chown that names no owner and no group takes the bits off all the same.
pub(super) fn chowned_to_nobody_else(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    fs::write(&path, "x")?;
    fs::set_permissions(&path, Permissions::from_mode(0o6755))?;
    chown(&path, None, None)?;
    Ok(format!("mode {:o}", fs::metadata(&path)?.mode() & 0o7777))
}
