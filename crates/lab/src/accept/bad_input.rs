//! Bad input gets an exit code and a message that names the trouble: no panic, no hang, and nothing is written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::context::{Context, Outcome};
use crate::cmd::{command, have, quire, say};
use crate::image::Image;
use crate::mounter::{Mounter, Who};

/// How one image is spoilt, and a word that the message must have.
type Spoil = (&'static str, fn(&File) -> std::io::Result<()>, &'static str);

const SPOILT: &[Spoil] = &[
    ("zeroed superblock", |file| file.write_all_at(&[0; 1024], 1024), "superblock"),
    ("empty file", |file| file.set_len(0), ""),
    ("cut to half", |file| file.set_len(16 << 20), ""),
    ("cut in the superblock", |file| file.set_len(1500), ""),
    ("superblock bit flipped", |file| file.write_all_at(&[0x41], 1024 + 0x78), "checksum"),
    ("unknown feature", |file| file.write_all_at(&[0xff], 1024 + 0x63), ""),
    ("descriptors of garbage", |file| file.write_all_at(&[0xa5; 2048], 4096), "descriptor"),
];

/// Each spoilt image refused, unchanged; an image in use refused, naming who holds it.
pub fn run(context: &Context) -> Result<Outcome> {
    if context.mounter.who != Who::Quire {
        return Ok(Outcome::Skipped("speaks of Quire's messages".into()));
    }
    let good = Image::make(&context.dir.join("good.img"), 32 << 20, &["-b", "4096"])?;
    let mnt = context.dir.join("mnt");
    fs::create_dir_all(&mnt)?;
    for (what, spoil, word) in SPOILT {
        let bad = good.copy("bad.img")?;
        spoil(&File::options().write(true).open(bad.path())?)?;
        refused(&bad, &mnt, word).with_context(|| (*what).to_owned())?;
    }
    let mut nowhere = Command::new(quire()?);
    let said = say(nowhere.args(["mount", "/nonexistent.img"]).arg(&mnt))?;
    ensure!(
        said.code != 0 && said.text.contains("/nonexistent.img"),
        "a missing image: exit code {}: {}",
        said.code,
        said.text
    );
    in_use(context, &good)?;
    Ok(Outcome::Passed)
}

fn mount_command(image: &Image, mnt: &std::path::Path) -> Result<Command> {
    // A hang is a failure: timeout(1) ends it with 124.
    let mut limited = command(if have("timeout") { "timeout" } else { "env" });
    if have("timeout") {
        limited.arg("30");
    }
    limited.arg(quire()?).arg("mount").arg(image.path()).arg(mnt);
    Ok(limited)
}

fn refused(image: &Image, mnt: &std::path::Path, word: &str) -> Result<()> {
    let before = fs::read(image.path())?;
    let said = say(&mut mount_command(image, mnt)?)?;
    if said.code == 0 {
        say(Command::new(quire()?).arg("umount").arg(mnt))?;
    }
    ensure!((1..=64).contains(&said.code), "exit code {}, which no error of mount(8) has: {}", said.code, said.text);
    ensure!(!said.text.contains("panicked"), "panicked: {}", said.text);
    ensure!(!said.text.trim().is_empty(), "no message");
    ensure!(said.text.to_lowercase().contains(word), "the message does not say {word:?}: {}", said.text);
    ensure!(fs::read(image.path())? == before, "the image was changed");
    Ok(())
}

fn in_use(context: &Context, good: &Image) -> Result<()> {
    let (mnt, second) = (context.dir.join("mnt"), context.dir.join("second"));
    fs::create_dir_all(&second)?;
    let mounted = context.mounter.mount(good.path(), &mnt)?;
    let said = say(&mut mount_command(good, &second)?)?;
    let pid = mounted.pid().context("Quire has a daemon")?;
    ensure!(said.code != 0, "an image was mounted twice");
    let names_holder = said.text.contains(&pid.to_string()) || said.text.contains("in use");
    ensure!(names_holder, "the refusal of an image in use does not say so: {}", said.text);
    mounted.unmount()?;

    let kernel = Mounter::kernel("");
    if kernel.unavailable().is_none() {
        let mounted = kernel.mount(good.path(), &mnt)?;
        let said = say(&mut mount_command(good, &second)?)?;
        let mounted_twice = said.code == 0;
        if mounted_twice {
            say(Command::new(quire()?).arg("umount").arg(&second))?;
        }
        mounted.unmount()?;
        ensure!(!mounted_twice, "an image that the kernel has mounted (a loop device) was mounted by Quire");
        ensure!(said.text.contains("loop"), "the refusal does not name the loop device: {}", said.text);
    }
    good.check_clean()
}
