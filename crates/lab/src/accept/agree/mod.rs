//! Small programs that a mount of Quire's must answer as the kernel's ext4 does: what passes through the kernel's page
//! cache and its FUSE module, where a file system in user space may differ.
//!
//! Each case works in a directory of its own and tells what it saw as text. It runs on both mounts; the texts must be
//! the same. Where the kernel's FUSE module makes that impossible, the case says what is seen instead and which row of
//! the table in docs/design/fuse-limits.md tells of it; then it fails when the limit is gone.

mod aio;
mod calls;
mod flags;
mod full;
mod holes;
mod idmap;
mod pages;
mod setid;
mod times;
mod told;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, bail};

use super::context::{Context, Outcome};
use crate::image::Image;
use crate::mounter::Mounter;

/// The table of what FUSE does not carry.
const LIMITS: &str = include_str!("../../../../../docs/design/fuse-limits.md");

/// A program: it works in a directory, and tells what it saw.
type Program = fn(&Path) -> Result<String>;

/// What a case must show.
enum Wants {
    /// The same as on the kernel's ext4.
    Same,
    /// What the kernel's FUSE module lets through, and the row of the table that says so.
    Limit { seen: &'static str, row: &'static str },
    /// The same only for want of the kernel's writeback cache; with it, as `Limit`.
    LimitOfCache { seen: &'static str, row: &'static str },
    /// The same, or what a race in the kernel's FUSE module gives now and then.
    Race { seen: &'static str, row: &'static str },
}

struct Case {
    name: &'static str,
    program: Program,
    wants: Wants,
}

const fn same(name: &'static str, program: Program) -> Case {
    Case { name, program, wants: Wants::Same }
}

const fn limit(name: &'static str, program: Program, seen: &'static str, row: &'static str) -> Case {
    Case { name, program, wants: Wants::Limit { seen, row } }
}

const fn limit_of_cache(name: &'static str, program: Program, seen: &'static str, row: &'static str) -> Case {
    Case { name, program, wants: Wants::LimitOfCache { seen, row } }
}

const CASES: &[Case] = &[
    same("a set-user-ID program that a user overwrites", setid::overwritten),
    same("a set-user-ID program that a user maps", setid::mapped),
    same("modes after a chown", setid::chowned),
    same("holes in unsynced data", holes::unsynced),
    same("holes in mapped data", holes::mapped),
    same("a sparse copy of an open file", holes::copied),
    same("appends to an append-only file", flags::append_only),
    same("times of an append-only file", flags::times_of_append_only),
    same("an open file that becomes immutable", flags::immutable),
    same("which times a call changes", times::changed),
    same("times of mapped stores", times::mapped),
    same("the access time of what is not in the cache", times::of_an_uncached_read),
    same("direct and cached access", pages::direct),
    same("stores behind the end of a mapped file", pages::behind_the_end),
    same("a mapped file that is truncated", pages::truncated),
    same("sizes seen by another descriptor", pages::sizes),
    same("appends of four threads", pages::appends),
    same("a removed file that is mapped", pages::removed),
    same("the label", calls::label),
    same("odd arguments", calls::odd_arguments),
    same("a mount that becomes read-only and writable again", calls::remounted),
    same("a writer on a full disk", full::writer),
    same("small files on a full disk", full::small_files),
    same("fallocate beside removals", full::beside_removals),
    limit("FIEMAP", calls::fiemap, "nothing", "FIEMAP"),
    limit("FIFREEZE", calls::freeze, "refused", "FIFREEZE"),
    limit("collapse and insert range", calls::collapse, "error 95, error 95", "collapse or insert range"),
    limit("attributes of statx", calls::statx_attributes, "none", "attributes of statx"),
    limit("the access time of what is in the cache", times::of_a_cached_read, "changed \"\"", "access times"),
    limit_of_cache("the time of chattr", times::of_flags, "changed \"\"", "change time of `chattr`"),
    Case {
        name: "cached reads behind asynchronous direct writes",
        program: aio::cached_reads,
        wants: Wants::Race { seen: "stale", row: "asynchronous direct writes" },
    },
    limit("a chown to nobody else", setid::chowned_to_nobody_else, "mode 6755", "(-1, -1)"),
    limit("idmapped mounts", idmap::shown_owner, "error 22", "idmapped mounts"),
    limit("F_SETFL of an append-only file", flags::set_flags, "allowed", "F_SETFL"),
];

/// Runs the cases on the kernel's ext4 and on Quire, and tells all differences together.
pub fn run(context: &Context) -> Result<Outcome> {
    let kernel = Mounter::kernel("");
    if let Some(why) = kernel.unavailable() {
        return Ok(Outcome::Skipped(why));
    }
    let theirs = on(context, &kernel, "kernel")?;
    let ours = on(context, &context.mounter, "quire")?;
    let cached = !context.mounter.to_string().contains("writethrough");
    let wrong: Vec<String> =
        CASES.iter().zip(theirs.iter().zip(&ours)).filter_map(|(c, (t, o))| fault(c, t, o, cached)).collect();
    if !wrong.is_empty() {
        bail!("{} of {} cases differ:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
    }
    Ok(Outcome::Passed)
}

/// What is wrong with what was seen on the kernel's ext4 and on Quire, there with the kernel's writeback cache or not.
fn fault(case: &Case, theirs: &str, ours: &str, cached: bool) -> Option<String> {
    let row = match case.wants {
        Wants::Same => None,
        Wants::Limit { row, .. } | Wants::LimitOfCache { row, .. } | Wants::Race { row, .. } => Some(row),
    };
    if let Some(row) = row
        && !LIMITS.lines().any(|line| line.starts_with('|') && line.contains(row))
    {
        return Some(format!("{}: docs/design/fuse-limits.md has no row \"{row}\"", case.name));
    }
    match case.wants {
        Wants::Race { seen, .. } if ours == seen && theirs != seen => None,
        Wants::Same | Wants::Race { .. } if theirs == ours => None,
        Wants::LimitOfCache { .. } if !cached && theirs == ours => None,
        Wants::Limit { seen, .. } if ours == seen && theirs != seen => None,
        Wants::LimitOfCache { seen, .. } if cached && ours == seen && theirs != seen => None,
        Wants::Same | Wants::Race { .. } => Some(format!("{}:\n  ext4:  {theirs}\n  Quire: {ours}", case.name)),
        Wants::LimitOfCache { seen, .. } | Wants::Limit { seen, .. } => {
            Some(format!("{}: no longer \"{seen}\"?\n  ext4:  {theirs}\n  Quire: {ours}", case.name))
        }
    }
}

/// What the cases see on a fresh image, and that it is clean afterwards.
fn on(context: &Context, mounter: &Mounter, name: &str) -> Result<Vec<String>> {
    let image = Image::make(&context.dir.join(format!("{name}.img")), 96 << 20, &["-b", "4096"])?;
    let mounted = mounter.mount(image.path(), &context.dir.join(name))?;
    let mut seen = Vec::new();
    for (n, case) in CASES.iter().enumerate() {
        let dir = mounted.dir().join(format!("case{n}"));
        fs::create_dir(&dir)?;
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o755))?;
        seen.push((case.program)(&dir).unwrap_or_else(|error| format!("failed: {error:#}")));
        // The next case has the whole disk.
        fs::remove_dir_all(&dir)?;
    }
    mounted.unmount()?;
    image.check_clean()?;
    Ok(seen)
}
