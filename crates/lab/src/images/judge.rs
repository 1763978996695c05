//! What Quire does with an image that is damaged, odd or foreign, beside e2fsck and the kernel.
//!
//! *Guarantees*: each command ends in [`LIMIT`] seconds, with an exit code that it documents and without a panic; what
//! only looks, and a mount that is refused, leaves the image as it was; after the same operations on Quire's mount and
//! on the kernel's, and `e2fsck -fy` on both, no file that nobody touched is lost or changed on Quire's side and whole
//! on the kernel's, and no inode has blocks that belong to another one, too, unless it has them on the kernel's side or
//! had them before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};

use super::make::Specimen;
use super::seen::{By, LIMIT, Seen, TIMED_OUT, look};
use crate::cmd::{Said, bounded, command, quire, say, text};
use crate::image::Image;
use crate::mounter::{Mounter, is_mount_point};

/// The same for Quire's mount and the kernel's. Each step may fail.
const OPERATIONS: &str = r#"
cd "$1" || exit 0
ls -laR . >/dev/null
cat append victim busy/* >/dev/null
for n in 1 2 3 4 5 6 7 8; do head -c 60000 /dev/zero | tr '\0' q >"new$n"; done
mkdir newdir && mv new1 newdir/ && ln new2 newdir/link
rm -f new3 victim
ln -s target newlink
printf more >>append
setfattr -n user.quire -v 1 append
for n in 1 2 3 4 5 6 7 8 9; do echo x >"busy/another file with number $n"; done
mv busy/deep newdir/
sync .
"#;

/// How many images were mounted, refused and compared.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    pub images: u64,
    pub read_write: u64,
    pub refused: u64,
    pub with_kernel: u64,
    /// Of each kind: what the kernel and Quire did, and how often.
    pub seen: BTreeMap<(&'static str, By, String), u64>,
}

impl Tally {
    fn saw(&mut self, kind: &'static str, by: By, seen: &Seen) {
        *self.seen.entry((kind, by, seen.sort())).or_default() += 1;
    }
}

/// Judges one image.
pub fn judge(dir: &Path, specimen: &Specimen, sum: &mut Tally) -> Result<()> {
    sum.images += 1;
    looks_change_nothing(dir, &specimen.image)?;
    refused_read_only_changes_nothing(dir, &specimen.image)?;
    recovers_once(&specimen.image)?;
    let (mnt, calls) = (dir.join("mnt"), &[OPERATIONS][..]);
    let ours = specimen.image.copy("ours.img")?;
    let seen = look(By::Quire, &ours, &mnt, calls)?;
    sum.saw(specimen.kind, By::Quire, &seen);
    if seen.refused.is_some() {
        sum.refused += 1;
        unchanged("a mount that was refused", &specimen.image, &ours)?;
    } else {
        sum.read_write += 1;
    }
    if Mounter::kernel("").unavailable().is_some() {
        return Ok(());
    }
    let theirs = specimen.image.copy("theirs.img")?;
    let by_kernel = look(By::Kernel, &theirs, &mnt, calls)?;
    sum.saw(specimen.kind, By::Kernel, &by_kernel);
    if seen.refused.is_some() || by_kernel.refused.is_some() {
        return Ok(());
    }
    sum.with_kernel += 1;
    let twice = [&specimen.image, &ours, &theirs].map(owned_twice);
    let [before, by_us, by_them] = twice;
    let (before, by_us, by_them) = (before?, by_us?, by_them?);
    let worse: Vec<_> = by_us.difference(&by_them).filter(|ino| !before.contains(*ino)).collect();
    ensure!(worse.is_empty(), "after Quire's work, but not after the kernel's, inodes share blocks: {worse:?}");
    let (ours, theirs) = (survivors(dir, &ours, specimen)?, survivors(dir, &theirs, specimen)?);
    let lost: Vec<_> = theirs.iter().filter(|name| !ours.contains(name)).collect();
    ensure!(lost.is_empty(), "whole after the kernel's work and e2fsck, but not after Quire's: {lost:?}");
    Ok(())
}

/// The inodes whose blocks have another owner, too, as e2fsck finds them.
fn owned_twice(image: &Image) -> Result<BTreeSet<String>> {
    let said = say(bounded("e2fsck", LIMIT).arg("-fn").arg(image.path()))?;
    let told = said.text.lines().filter_map(|line| line.strip_prefix("Multiply-claimed block(s) in inode "));
    Ok(told.filter_map(|rest| rest.split(':').next()).map(str::to_owned).collect())
}

/// Runs a command of ours with a limit in time; an exit code that is none of its own, or a panic, is an error.
fn limited(args: &[&str]) -> Result<Said> {
    let mut limited = command("timeout");
    let said = say(limited.args(["-k", "5", LIMIT]).arg(quire()?).args(args))?;
    ensure!(said.code != TIMED_OUT, "quire {} took more than {LIMIT} s: {}", args.join(" "), said.text);
    ensure!((0..=64).contains(&said.code), "quire {}: exit code {}: {}", args.join(" "), said.code, said.text);
    ensure!(!said.text.contains("panicked"), "quire {}: {}", args.join(" "), said.text);
    Ok(said)
}

fn unchanged(what: &str, before: &Image, after: &Image) -> Result<()> {
    ensure!(fs::read(before.path())? == fs::read(after.path())?, "{what} has changed the image");
    Ok(())
}

fn looks_change_nothing(dir: &Path, image: &Image) -> Result<()> {
    let looked = image.copy("looked.img")?;
    let path = text(looked.path());
    limited(&["info", path])?;
    limited(&["recover", "--dry-run", path])?;
    unchanged("info or recover --dry-run", image, &looked)?;
    mounted_by_quire(dir, &looked, "ro,noload")?;
    unchanged("a mount with ro,noload", image, &looked)
}

fn refused_read_only_changes_nothing(dir: &Path, image: &Image) -> Result<()> {
    let read = image.copy("read.img")?;
    if !mounted_by_quire(dir, &read, "ro")? {
        unchanged("a read-only mount that was refused", image, &read)?;
    }
    Ok(())
}

/// `recover` ends as it said that it would, makes the same of two copies, and a second one finds nothing that the first
/// could have done, and changes nothing.
fn recovers_once(image: &Image) -> Result<()> {
    let first = image.copy("recovered.img")?;
    let path = text(first.path());
    let forecast = limited(&["recover", "--dry-run", path])?;
    let done = limited(&["recover", path])?;
    let agree = match forecast.code {
        4 => matches!(done.code, 1 | 4),
        code => done.code == code,
    };
    ensure!(agree, "recover --dry-run {}: {}recover {}: {}", forecast.code, forecast.text, done.code, done.text);
    if done.code != 1 {
        let once = first.copy("again.img")?;
        let again = limited(&["recover", text(once.path())])?;
        ensure!(again.code == done.code, "recover: {}, then {}: {}", done.code, again.code, again.text);
        return unchanged("a second recover", &first, &once);
    }
    let other = image.copy("other.img")?;
    limited(&["recover", text(other.path())])?;
    // Commits in the journal have a time.
    let journal = first.journal_blocks()?;
    let differ = first.differing_blocks(&other, &journal)?;
    ensure!(differ.is_empty(), "recover has made other blocks of a copy: {differ:?}");
    let again = limited(&["recover", path])?;
    ensure!(again.code == 0, "recover ended with 1 ({}), the second with {}: {}", done.text, again.code, again.text);
    let differ = first.differing_blocks(&other, &journal)?;
    ensure!(differ.is_empty(), "a second recover has changed blocks: {differ:?}");
    Ok(())
}

/// Mounts as `options` say, tries to work, and unmounts; false if the mount was refused.
fn mounted_by_quire(dir: &Path, image: &Image, options: &str) -> Result<bool> {
    let mnt = dir.join("mnt");
    fs::create_dir_all(&mnt)?;
    if limited(&["mount", text(image.path()), text(&mnt), "-o", options])?.code != 0 {
        ensure!(!is_mount_point(&mnt), "a mount that was refused is there");
        return Ok(false);
    }
    let worked = operate(&mnt);
    // 32: the file system has errors, which the words tell.
    let ended = limited(&["umount", text(&mnt)]);
    let stays = is_mount_point(&mnt);
    if stays {
        say(command("umount").arg("-l").arg(&mnt))?;
    }
    worked?;
    ensure!(!stays, "it cannot be unmounted: {}", ended?.text);
    ended?;
    Ok(true)
}

fn operate(mnt: &Path) -> Result<()> {
    let mut work: Command = command("timeout");
    let said = say(work.args(["-k", "5", LIMIT, "sh", "-c", OPERATIONS, "sh"]).arg(mnt))?;
    ensure!(said.code != TIMED_OUT, "the operations took more than {LIMIT} s");
    Ok(())
}

/// The untouched files that are whole after `e2fsck -fy`.
fn survivors<'s>(dir: &Path, image: &Image, specimen: &'s Specimen) -> Result<Vec<&'s str>> {
    let said = say(bounded("e2fsck", LIMIT).arg("-fy").arg(image.path()))?;
    if said.text.contains("unsupported feature") {
        bail!("e2fsck refuses what Quire has left: {}", said.text);
    }
    let (out, script) = (dir.join("out"), dir.join("dump"));
    let mut whole = Vec::new();
    let commands: Vec<String> = specimen
        .kept
        .iter()
        .enumerate()
        .map(|(n, (name, _))| format!("dump \"{name}\" {}{n}", out.display()))
        .collect();
    fs::write(&script, commands.join("\n"))?;
    say(bounded("debugfs", LIMIT).args(["-f", text(&script)]).arg(image.path()))?;
    for (n, (name, content)) in specimen.kept.iter().enumerate() {
        let path = format!("{}{n}", out.display());
        if fs::read(&path).is_ok_and(|found| found == *content) {
            whole.push(name.as_str());
        }
        fs::remove_file(path).ok();
    }
    Ok(whole)
}
