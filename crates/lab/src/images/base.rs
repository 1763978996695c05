//! The image that damage begins with: mke2fs with its options, and a tree that debugfs writes.
//!
//! *Guarantees*: its bytes follow from the seed, the options and who runs it: UUIDs and times are given, and what
//! e2fsprogs takes from the clock and the host's name all the same is set by [`settle`].

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use quire_layout::checksum::crc32c;
use quire_layout::features::incompat;
use quire_layout::jbd2::{BlockKind, Commit, Header, JournalSuperblock, encode_commit};
use quire_layout::superblock::{OFFSET, SIZE, Superblock};
use quire_testkit::rng::content;

use crate::cmd::{bounded, run, say, text};
use crate::image::Image;

/// Files that no operation touches after the image is made: names and contents.
pub(super) type Kept = Vec<(String, Vec<u8>)>;

/// Their number, beside the small ones of "busy".
pub(super) const KEPT: u64 = 12;
/// Small files in one directory, which is changed; they themselves are only read.
pub(super) const BUSY: u8 = 40;
const MIB: u64 = 1 << 20;

/// When everything was made, for e2fsprogs: seconds since 1970.
const NOW: &str = "1700000000";
const UUID: &str = "5155-4952";

/// Seconds that a tool may take to make an image.
const LIMIT: &str = "60";

/// A tool of e2fsprogs that takes the time from us.
pub(super) fn tool(name: &str) -> Command {
    let mut command = bounded(name, LIMIT);
    command.env("E2FSPROGS_FAKE_TIME", NOW).env("SOURCE_DATE_EPOCH", NOW);
    command
}

/// Runs debugfs commands; what it refuses is left out.
pub(super) fn debugfs(image: &Path, commands: &[String]) -> Result<()> {
    let script = image.with_extension("script");
    fs::write(&script, commands.join("\n") + "\n")?;
    say(tool("debugfs").args(["-w", "-f", text(&script)]).arg(image))?;
    Ok(fs::remove_file(script)?)
}

/// An empty image.
pub(super) fn format(path: &Path, size: u64, shape: &[&str]) -> Result<Image> {
    File::create(path)?.set_len(size)?;
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let uuid = |n| format!("{n:08}-{UUID}-8000-000000000000");
    let extended = format!("root_owner={user}:{group},hash_seed={}", uuid(2));
    run(tool("mke2fs").args(["-q", "-F", "-U", &uuid(1), "-E", &extended]).args(shape).arg(path))?;
    Ok(Image::open(path))
}

/// Puts the tree into an image that [`format`] has made.
pub(super) fn fill(image: &Image, seed: u64) -> Result<Kept> {
    let from = image.path().with_extension("tree");
    fs::create_dir_all(&from)?;
    let mut commands: Vec<String> = ["mkdir kept", "mkdir busy", "mkdir busy/deep", "cd kept"].map(String::from).into();
    let add = |commands: &mut Vec<String>, name: &str, bytes: &[u8]| -> Result<()> {
        let source = from.join(commands.len().to_string());
        fs::write(&source, bytes)?;
        commands.push(format!("write {} \"{name}\"", source.display()));
        Ok(())
    };
    let mut kept = Kept::new();
    for n in 0..KEPT {
        let (name, len) = (format!("k{n}"), usize::try_from(200 + n * n * 1500)?);
        let bytes = content(seed ^ n, 0, len);
        add(&mut commands, &name, &bytes)?;
        kept.push((format!("kept/{name}"), bytes));
    }
    commands.push("cd /busy".into());
    for n in 0..BUSY {
        let name = format!("a file with number {n}");
        add(&mut commands, &name, &[n; 70])?;
        kept.push((format!("busy/{name}"), vec![n; 70]));
    }
    commands.push("cd /".into());
    add(&mut commands, "append", &content(seed, 1, 5000))?;
    add(&mut commands, "victim", &content(seed, 2, 90_000))?;
    add(&mut commands, "sparse", b"")?;
    File::options().write(true).open(from.join((commands.len() - 1).to_string()))?.write_all_at(b"end", 3 * MIB)?;
    commands.extend(["symlink short kept/k1".into(), format!("symlink long {}", "x".repeat(100))]);
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for name in ["kept", "busy", "busy/deep", "append", "victim"] {
        commands.extend([format!("sif {name} uid {user}"), format!("sif {name} gid {group}")]);
    }
    debugfs(image.path(), &commands)?;
    fs::remove_dir_all(from)?;
    Ok(kept)
}

/// Sets what e2fsprogs has taken from the clock and the host: times of commits, and the block of `mmp`.
pub(super) fn settle(image: &Image) -> Result<()> {
    let file = File::options().read(true).write(true).open(image.path())?;
    let mut raw = vec![0; SIZE];
    file.read_exact_at(&mut raw, OFFSET)?;
    let Ok(sb) = Superblock::decode(&raw) else { return Ok(()) };
    let block = sb.block_size().bytes();
    if sb.features().has_incompat(incompat::MMP) {
        let at = u64::from_le_bytes(raw[0x168..0x170].try_into()?) << sb.block_size().bits();
        let mut mmp = vec![0; 1024];
        file.read_exact_at(&mut mmp, at)?;
        mmp[0x08..0x70].fill(0);
        if sb.features().metadata_csum() {
            let sum = crc32c(sb.checksum_seed(), &mmp[..1020]);
            mmp[1020..].copy_from_slice(&sum.to_le_bytes());
        }
        file.write_all_at(&mmp, at)?;
    }
    let bytes = fs::read(image.path())?;
    let kind = |b: &[u8]| Header::decode(b).map(|h| h.kind);
    let mut blocks = bytes.chunks_exact(block);
    let Some(journal) = blocks.find_map(|b| JournalSuperblock::decode(b).ok()) else { return Ok(()) };
    let Ok(format) = journal.log_format() else { return Ok(()) };
    for (n, old) in bytes.chunks_exact(block).enumerate() {
        if kind(old) == Some(BlockKind::Commit) {
            let (commit, mut new) = (Commit::decode(old)?, old.to_vec());
            encode_commit(&format, &mut new, commit.tid, 0, 0, commit.checksum);
            file.write_all_at(&new, (n * block).try_into()?)?;
        }
    }
    Ok(())
}
