//! What a mount of an image comes to, by the kernel or by Quire: refused, only read, or used, and what calls say.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Result, ensure};
use quire_layout::superblock::{Superblock, state};

use crate::cmd::{command, quire, say, text};
use crate::image::Image;
use crate::mounter::is_mount_point;

/// Seconds that a command may take.
pub(super) const LIMIT: &str = "60";
/// The exit code of timeout(1) when the time is over.
pub(super) const TIMED_OUT: i32 = 124;

/// Who mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    Kernel,
    Quire,
}

/// What was seen of one image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// Why it is not mounted, if it is not.
    pub(super) refused: Option<String>,
    /// Writes are refused from the first moment, or from some later one on.
    pub(super) only_read: bool,
    pub(super) became_read_only: bool,
    /// Calls, and what went wrong with them; nothing: they succeeded.
    pub(super) calls: Vec<(String, String)>,
    /// The superblock has an error recorded that was not there before.
    pub(super) error_recorded: bool,
}

impl Seen {
    /// The same without the calls, for counting.
    #[must_use]
    pub(super) fn sort(&self) -> String {
        Seen { calls: Vec::new(), ..self.clone() }.to_string()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.refused {
            return write!(f, "refuses ({why})");
        }
        f.write_str(if self.only_read { "only reads" } else { "mounts" })?;
        for (call, wrong) in &self.calls {
            write!(f, "; `{call}`: {}", if wrong.is_empty() { "done" } else { wrong })?;
        }
        if self.became_read_only {
            f.write_str("; becomes read-only")?;
        }
        if self.error_recorded {
            f.write_str("; error recorded")?;
        }
        Ok(())
    }
}

/// The last part of a program's first complaint: the error's name where it is a usual one.
fn wrong(words: &str) -> String {
    let line = words.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let names = [
        ("Structure needs cleaning", "EUCLEAN"),
        ("wrong fs type, bad option, bad superblock", "EINVAL"),
        ("Bad message", "EBADMSG"),
        ("Input/output error", "EIO"),
        ("Read-only file system", "EROFS"),
        ("No space left on device", "ENOSPC"),
        ("Operation not supported", "EOPNOTSUPP"),
        ("Invalid argument", "EINVAL"),
        ("No such file or directory", "ENOENT"),
        ("Stale file handle", "ESTALE"),
        ("fsconfig system call failed", "refused"),
    ];
    let known = names.iter().find(|(text, _)| line.contains(text));
    known.map_or_else(|| line.rsplit(": ").next().unwrap_or(line).to_owned(), |(_, name)| (*name).to_owned())
}

fn has_error(image: &Path) -> bool {
    let raw = fs::read(image).unwrap_or_default();
    raw.get(1024..2048)
        .and_then(|b| Superblock::decode_unverified(b).ok())
        .is_some_and(|sb| sb.state() & state::ERROR != 0)
}

/// Whether a file can be made: nothing is left of it.
fn can_write(mnt: &Path) -> bool {
    let probe = mnt.join(".probe");
    let made = File::create(&probe);
    fs::remove_file(&probe).ok();
    !made.is_err_and(|e| e.raw_os_error() == Some(rustix::io::Errno::ROFS.raw_os_error()))
}

/// Mounts an image, makes the calls (for `sh -c`, in the root directory), and unmounts.
///
/// # Errors
/// A command takes longer than [`LIMIT`], ends with a code that is none of its own, or the mount stays.
pub(super) fn look(by: By, image: &Image, mnt: &Path, calls: &[&str]) -> Result<Seen> {
    fs::create_dir_all(mnt)?;
    let before = has_error(image.path());
    let mut mount = command("timeout");
    mount.args(["-k", "5", LIMIT]);
    match by {
        By::Kernel => mount.args(["mount", "-t", "ext4", "-o", "loop"]),
        By::Quire => mount.arg(quire()?).arg("mount"),
    };
    let said = say(mount.arg(image.path()).arg(mnt))?;
    ensure!(said.code != TIMED_OUT, "{by:?} takes more than {LIMIT} s to mount");
    ensure!((0..=64).contains(&said.code) && !said.text.contains("panicked"), "{by:?}: {}: {}", said.code, said.text);
    if said.code != 0 {
        ensure!(!is_mount_point(mnt), "a mount that was refused is there");
        let why = if by == By::Kernel { wrong(&said.text) } else { wrong_of_quire(&said.text) };
        return Ok(Seen { refused: Some(why), ..Seen::default() });
    }
    let only_read = !can_write(mnt);
    let mut seen = Seen { only_read, ..Seen::default() };
    for call in calls {
        let mut shell = command("timeout");
        let said = say(shell.args(["-k", "5", LIMIT, "sh", "-c", call]).current_dir(mnt))?;
        ensure!(said.code != TIMED_OUT, "{by:?}: `{call}` takes more than {LIMIT} s");
        seen.calls.push(((*call).to_owned(), if said.code == 0 { String::new() } else { wrong(&said.text) }));
    }
    seen.became_read_only = !only_read && !can_write(mnt);
    let mut umount = command("timeout");
    umount.args(["-k", "5", LIMIT]);
    match by {
        By::Kernel => umount.arg("umount"),
        By::Quire => umount.arg(quire()?).arg("umount"),
    };
    let said = say(umount.arg(mnt))?;
    if is_mount_point(mnt) {
        say(command("umount").arg("-l").arg(mnt))?;
        anyhow::bail!("{by:?} cannot unmount: {}", said.text);
    }
    if by == By::Quire {
        // After an error with errors=remount-ro the log is as it was.
        say(command(quire()?).args(["recover", text(image.path())]))?;
    }
    seen.error_recorded = !before && has_error(image.path());
    Ok(seen)
}

/// What Quire names: the structure, without the number of a block, which says nothing in a table.
fn wrong_of_quire(words: &str) -> String {
    let line = words.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let from = ["corrupt ", "unsupported: "].iter().find_map(|word| line.find(word));
    let Some(from) = from else { return wrong(words) };
    line[from..].split(": ").next().map_or_else(String::new, |what| match what.find(" in block ") {
        Some(at) => what[..at].to_owned(),
        None => what.to_owned(),
    })
}
