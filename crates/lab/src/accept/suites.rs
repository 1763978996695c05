//! Test suites of others: pjdfstest (what POSIX says of names, owners and times) and fsx (bytes under random
//! operations).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::context::{Context, Outcome};
use crate::cmd::{command, find, have, is_root, run, run_tool, say, text};
use crate::image::Image;
use crate::mounter::Who;

/// What the kernel's ext4 shows: 383 passed, 15 skipped, none failed. Quire must show no less.
const PJDFSTEST_PASSED: u32 = 383;
const FSX_OPERATIONS: u32 = 200_000;
const FSX_OPERATIONS_SHORT: u32 = 20_000;

/// pjdfstest as root (most of it changes users).
pub fn pjdfstest(context: &Context) -> Result<Outcome> {
    if !have("pjdfstest") {
        return Ok(Outcome::Skipped("no pjdfstest (scripts/setup.sh --tools)".into()));
    }
    if !is_root() {
        return Ok(Outcome::Skipped("pjdfstest changes users: needs root".into()));
    }
    if !have("cc") {
        return Ok(Outcome::Skipped("no C compiler for the library that tells the limit of links".into()));
    }
    let image = Image::make(&context.dir.join("pjd.img"), 256 << 20, &[])?;
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let config = context.dir.join("pjdfstest.toml");
    fs::write(&config, pjdfstest_config()?)?;
    let mut pjdfstest = command("pjdfstest");
    pjdfstest.arg("-c").arg(&config).arg("-p").arg(mounted.dir());
    if context.mounter.who != Who::Kernel {
        // `link::link_count_max` asks pathconf, which knows no limit of a FUSE mount: the test would skip itself.
        pjdfstest.env("LD_PRELOAD", preload(context, "linkmax", include_str!("linkmax.c"))?);
    }
    let said = say(&mut pjdfstest)?;
    mounted.unmount()?;
    image.check_clean()?;
    let (passed, failed) = pjdfstest_counts(&said.text)?;
    println!("        {passed} passed, {failed} failed (kernel ext4: {PJDFSTEST_PASSED} passed, 0 failed)");
    if failed > 0 || passed < PJDFSTEST_PASSED {
        let bad: Vec<&str> = said.text.lines().filter(|line| line.ends_with("FAILED")).collect();
        bail!("{passed} passed, {failed} failed:\n{}", bad.join("\n"));
    }
    Ok(Outcome::Passed)
}

/// Two users that every system has, and the features that ext4 has.
fn pjdfstest_config() -> Result<String> {
    let group = |user: &str| run_tool("id", ["-gn", user]).map(|name| name.trim().to_owned());
    let entries: Vec<String> = ["nobody", "daemon"]
        .map(|user| group(user).map(|group| format!("[\"{user}\", \"{group}\"]")))
        .into_iter()
        .collect::<Result<_>>()?;
    Ok(format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         [settings]\nnaptime = 0.02\nallow_remount = false\n[dummy_auth]\nentries = [{}]\n",
        entries.join(", ")
    ))
}

fn pjdfstest_counts(text: &str) -> Result<(u32, u32)> {
    let last = text.lines().rev().find(|line| line.contains("passed")).context("pjdfstest printed no summary")?;
    let plain = without_colours(last);
    let words: Vec<&str> = plain.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let count = |word: &str| {
        let at = words.iter().position(|other| *other == word)?;
        words[at.checked_sub(1)?].parse().ok()
    };
    let passed = count("passed").with_context(|| format!("pjdfstest ends with: {plain}"))?;
    Ok((passed, count("failed").unwrap_or(0)))
}

fn without_colours(text: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for c in text.chars() {
        match c {
            '\x1b' => inside = true,
            'm' if inside => inside = false,
            c if !inside => plain.push(c),
            _ => {}
        }
    }
    plain
}

/// fsx with maps, holes, preallocation and all that it can.
pub fn fsx_mmap(context: &Context) -> Result<Outcome> {
    let config = "flen = 1048576\n[opsize]\nmax = 65536\n[weights]\nclose_open = 1\ninvalidate = 1\nmapread = 10\nmapwrite = 10\nread = 10\n\
                  write = 10\ntruncate = 5\nfsync = 1\nfdatasync = 1\nposix_fallocate = 2\npunch_hole = 3\nsendfile = 2\n\
                  posix_fadvise = 1\ncopy_file_range = 2\n";
    fsx(context, config, None)
}

/// fsx through O_DIRECT: aligned, no maps, no posix_fallocate (whose length fsx aligns down to 0). fsx cannot open so
/// itself; a preloaded library adds the flag and aligns the buffers.
pub fn fsx_direct(context: &Context) -> Result<Outcome> {
    if !have("cc") {
        return Ok(Outcome::Skipped("no C compiler for the O_DIRECT library".into()));
    }
    let library = preload(context, "odirect", include_str!("odirect.c"))?;
    let config = "flen = 1048576\n[opsize]\nmax = 65536\nalign = 4096\n[weights]\nclose_open = 1\ninvalidate = 0\nmapread = 0\nmapwrite = 0\n\
                  read = 10\nwrite = 10\ntruncate = 5\nfsync = 1\nfdatasync = 1\npunch_hole = 3\nposix_fadvise = 1\n\
                  copy_file_range = 2\n";
    fsx(context, config, Some(library))
}

/// A library that is to be preloaded.
fn preload(context: &Context, name: &str, source: &str) -> Result<PathBuf> {
    let library = context.dir.join(format!("{name}.so"));
    let file = context.dir.join(format!("{name}.c"));
    fs::write(&file, source)?;
    let flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"];
    run(command("cc").args(flags).arg(&library).arg(&file).arg("-ldl"))?;
    Ok(library)
}

fn fsx(context: &Context, config: &str, preload: Option<PathBuf>) -> Result<Outcome> {
    let Some(program) = find("fsx") else {
        return Ok(Outcome::Skipped("no fsx (scripts/setup.sh --tools)".into()));
    };
    let config_file = context.dir.join("fsx.toml");
    fs::write(&config_file, config)?;
    let operations = if context.full { FSX_OPERATIONS } else { FSX_OPERATIONS_SHORT };
    let image = Image::make(&context.dir.join("fsx.img"), 64 << 20, &[])?;
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let file = mounted.dir().join("fsx");
    let mut fsx = command(&program);
    fsx.arg("-N").arg(operations.to_string()).arg("-S").arg(context.seed.to_string()).arg("-f").arg(&config_file);
    fsx.arg("-P").arg(&context.dir).arg(&file);
    if let Some(library) = &preload {
        fsx.env("LD_PRELOAD", library).env("ODIRECT_FILE", &file);
        fsx.env("ODIRECT_REPORT", context.dir.join("odirect.report"));
    }
    let said = say(&mut fsx)?;
    let kept = fs::read(&file).unwrap_or_default();
    mounted.unmount()?;
    ensure!(said.code == 0, "{fsx:?} exited with {}:\n{}", said.code, tail(&said.text));
    if preload.is_some() {
        used_direct(&context.dir.join("odirect.report"))?;
    }
    image.check_clean()?;
    same_after_remount(context, &image, &kept)?;
    Ok(Outcome::Passed)
}

/// The library must have done something, or the test shows nothing.
fn used_direct(report: &Path) -> Result<()> {
    let said = fs::read_to_string(report).context("the O_DIRECT library left no report")?;
    let count: u64 = said.trim().parse().with_context(|| format!("{} says {said}", text(report)))?;
    ensure!(count > 100, "only {count} reads and writes went through O_DIRECT");
    Ok(())
}

/// What fsx left must be there after a remount.
fn same_after_remount(context: &Context, image: &Image, kept: &[u8]) -> Result<()> {
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let again = fs::read(mounted.dir().join("fsx"))?;
    mounted.unmount()?;
    ensure!(again == kept, "after a remount the file differs: {} bytes, {} before", again.len(), kept.len());
    Ok(())
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_through_colours() {
        let line = "\n\x1b[31m\x1b[1m2 failed\x1b[0m, 15 \x1b[33mskipped\x1b[0m, 381 \x1b[32mpassed\x1b[0m, 0 expected failures (total 398)";
        assert_eq!(pjdfstest_counts(line).unwrap(), (381, 2));
    }
}
