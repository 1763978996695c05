//! The commands around a mount: in the background, sync, freeze and thaw, SIGTERM, info, stats, a read-only mount.

use std::fs::{self, File};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::context::{Context, Outcome};
use crate::cmd::{quire, run as run_command, say, text};
use crate::image::Image;
use crate::mounter::{Who, is_mount_point};
use quire_testkit::rng::content;

/// Each of them, judged by e2fsck on a copy of the image.
pub fn run(context: &Context) -> Result<Outcome> {
    if context.mounter.who != Who::Quire {
        return Ok(Outcome::Skipped("speaks of quire's commands".into()));
    }
    let image = Image::make(&context.dir.join("commands.img"), 64 << 20, &[])?;
    background(context, &image).context("quire mount in the background")?;
    sync_and_freeze(context, &image)?;
    terminated(context, &image).context("SIGTERM")?;
    read_only(context, &image).context("-o ro")?;
    speaking(&image)?;
    Ok(Outcome::Passed)
}

fn command(args: &[&str]) -> Result<String> {
    run_command(Command::new(quire()?).args(args))
}

fn background(context: &Context, image: &Image) -> Result<()> {
    let mnt = context.dir.join("background");
    fs::create_dir_all(&mnt)?;
    command(&["mount", text(image.path()), text(&mnt)])?;
    ensure!(is_mount_point(&mnt), "quire mount returned before the mount answered");
    let written = fs::write(mnt.join("first"), content(1, 0, 100_000));
    command(&["umount", text(&mnt)])?;
    written?;
    ensure!(!is_mount_point(&mnt), "still mounted");
    image.check_clean()
}

/// After `sync`, and while frozen, a copy of the image recovers to what was there.
fn sync_and_freeze(context: &Context, image: &Image) -> Result<()> {
    let mnt = context.dir.join("mnt");
    let mounted = context.mounter.mount(image.path(), &mnt)?;
    fs::write(mnt.join("synced"), content(2, 0, 200_000))?;
    command(&["sync", text(&mnt)]).context("quire sync")?;
    recovered_copy(context, image, "synced", 2).context("a copy after quire sync")?;

    fs::write(mnt.join("frozen"), content(3, 0, 200_000))?;
    command(&["freeze", text(&mnt)]).context("quire freeze")?;
    let copied = recovered_copy(context, image, "frozen", 3).context("a copy of a frozen image");
    command(&["thaw", text(&mnt)]).context("quire thaw")?;
    copied?;
    fs::write(mnt.join("thawed"), "works again")?;
    let stats = command(&["stats", text(&mnt)]).context("quire stats")?;
    ensure!(!stats.trim().is_empty(), "quire stats says nothing");
    let json = command(&["stats", "--json", text(&mnt)]).context("quire stats --json")?;
    ensure!(json.trim_start().starts_with('{'), "quire stats --json is no object: {json}");
    mounted.unmount()?;
    image.check_clean()
}

fn recovered_copy(context: &Context, image: &Image, name: &str, key: u64) -> Result<()> {
    let copy = image.copy("copy.img")?;
    copy.recover_with_quire(&[])?;
    copy.check_clean()?;
    let mounted = context.mounter.mount(copy.path(), &context.dir.join("copy"))?;
    let bytes = fs::read(mounted.dir().join(name))?;
    mounted.unmount()?;
    ensure!(bytes == content(key, 0, 200_000), "{name} has {} bytes, or others", bytes.len());
    Ok(())
}

fn terminated(context: &Context, image: &Image) -> Result<()> {
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    fs::write(mounted.dir().join("terminated"), content(4, 0, 300_000))?;
    mounted.terminate()?;
    image.check_clean()?;
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let bytes = fs::read(mounted.dir().join("terminated"))?;
    mounted.unmount()?;
    ensure!(bytes == content(4, 0, 300_000), "what was written before SIGTERM is not there");
    Ok(())
}

fn read_only(context: &Context, image: &Image) -> Result<()> {
    let before = fs::read(image.path())?;
    let mounted = context.mounter.with("ro").mount(image.path(), &context.dir.join("mnt"))?;
    let refused = File::create(mounted.dir().join("new")).err().and_then(|error| error.raw_os_error());
    let readable = fs::read(mounted.dir().join("first"));
    mounted.unmount()?;
    let read_only = rustix::io::Errno::ROFS.raw_os_error();
    ensure!(refused == Some(read_only), "a read-only mount answers {refused:?} to create, not EROFS");
    ensure!(readable? == content(1, 0, 100_000), "a read-only mount does not show the contents");
    ensure!(fs::read(image.path())? == before, "a read-only mount changed the image");
    Ok(())
}

fn speaking(image: &Image) -> Result<()> {
    let info = command(&["info", text(image.path())])?;
    ensure!(info.contains("metadata_csum"), "quire info does not name the features: {info}");
    let json = command(&["info", "--json", text(image.path())])?;
    ensure!(json.trim_start().starts_with('{'), "quire info --json is no object: {json}");
    let dump = command(&["dump", text(image.path()), "inode", "2"])?;
    ensure!(!dump.trim().is_empty(), "quire dump says nothing");
    for name in ["mount", "umount", "recover", "info", "dump", "stats", "sync", "freeze", "thaw"] {
        let help = command(&[name, "--help"])?;
        ensure!(help.to_lowercase().contains("example"), "quire {name} --help has no example");
    }
    let said = say(Command::new(quire()?).arg("no-such-command"))?;
    ensure!(said.code != 0 && !said.text.is_empty(), "an unknown command is not refused");
    Ok(())
}
