//! An ordinary user mounts through fusermount3, works, and unmounts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::context::{Context, Outcome};
use crate::cmd::{NOBODY, have, is_root, quire, run as run_command, say};
use crate::image::Image;
use crate::mounter::Who;

/// As root, becomes nobody; as anybody else, stays.
pub fn run(context: &Context) -> Result<Outcome> {
    if context.mounter.who != Who::Quire {
        return Ok(Outcome::Skipped("speaks of quire mount".into()));
    }
    if !have("fusermount3") {
        return Ok(Outcome::Skipped("no fusermount3".into()));
    }
    let mode = fs::metadata("/dev/fuse")?.permissions().mode();
    if is_root() && mode & 0o006 != 0o006 {
        return Ok(Outcome::Skipped("/dev/fuse is closed to users".into()));
    }
    let image = Image::make(&context.dir.join("user.img"), 64 << 20, &[])?;
    let (mnt, bin) = (context.dir.join("mnt"), context.dir.join("quire"));
    fs::create_dir_all(&mnt)?;
    // The build may lie where others cannot look.
    fs::copy(quire()?, &bin)?;
    fs::set_permissions(&bin, PermissionsExt::from_mode(0o755))?;
    if is_root() {
        for path in [image.path(), &mnt, &context.dir] {
            chown(path, Some(NOBODY), Some(NOBODY))?;
        }
        let root = format!("set_inode_field / uid {NOBODY}");
        image.debugfs(true, &[root, format!("set_inode_field / gid {NOBODY}")])?;
    }
    run_command(as_user(&bin).arg("mount").arg(image.path()).arg(&mnt)).context("quire mount")?;
    let worked = work(&mnt);
    let unmounted = run_command(as_user(&bin).arg("umount").arg(&mnt)).context("quire umount");
    if unmounted.is_err() {
        say(as_user(Path::new("fusermount3")).arg("-u").arg("-z").arg(&mnt))?;
    }
    worked?;
    unmounted?;
    image.check_clean()?;
    Ok(Outcome::Passed)
}

fn as_user(program: &Path) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.env("LC_ALL", "C").stdin(std::process::Stdio::null());
    command
}

fn work(mnt: &Path) -> Result<()> {
    let script = r#"set -e; cd "$0"; mkdir a; echo hello > a/b; ln a/b a/c; mv a/c d; [ "$(cat d)" = hello ]; sync a/b
        for i in $(seq 300); do echo $i > a/f$i; done; [ "$(ls a | wc -l)" = 301 ]; rm -r a; [ "$(cat d)" = hello ]"#;
    run_command(as_user(Path::new("/bin/sh")).arg("-c").arg(script).arg(mnt)).context("working as the user")?;
    if is_root() {
        let other = say(Command::new("/bin/sh").arg("-c").arg("cat \"$0\"/d").arg(mnt))?;
        ensure!(other.code != 0, "without allow_other another user, even root, must not look in");
    }
    Ok(())
}
