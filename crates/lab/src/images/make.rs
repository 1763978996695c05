//! Makes images of one kind of damage each: mke2fs with its options, debugfs, which mends the checksums of what it
//! changes, and bytes changed behind the checksums' backs.
//!
//! *Guarantees*: an image's bytes follow from its seed (and from the user, who owns its root).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context as _, Result};
use quire_testkit::rng::{Rng, content};

use super::base::{self, Kept};
use crate::image::Image;

const MIB: u64 = 1 << 20;

/// An image and what is known of it.
#[derive(Debug)]
pub struct Specimen {
    pub image: Image,
    pub kind: &'static str,
    /// What was done, for a report.
    pub story: String,
    /// The files that nobody touches, with their content.
    pub kept: Kept,
}

/// What spoils an image: the commands for debugfs, or bytes that change behind its back.
#[derive(Default)]
struct Spoil {
    debugfs: Vec<String>,
    bytes: Vec<(u64, Vec<u8>)>,
    cut: Option<u64>,
}

/// A kind of damage: its name, the options of mke2fs that it needs, and what it does.
struct Kind {
    name: &'static str,
    /// One of these is taken; an empty list stands for any usual shape.
    shapes: &'static [&'static [&'static str]],
    spoil: fn(&mut Rng, &Path) -> Result<Spoil>,
}

const USUAL: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg,^flex_bg,^resize_inode"],
    &["-t", "ext4", "-b", "2048", "-O", "orphan_file,metadata_csum_seed"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext2", "-b", "1024", "-I", "128"],
];
const FOREIGN: &[&[&str]] = &[
    &["-t", "ext2", "-o", "hurd"],
    &["-t", "ext2", "-o", "hurd", "-b", "1024", "-I", "256"],
    &["-t", "ext2", "-o", "freebsd"],
    &["-t", "ext4", "-o", "lites", "-b", "1024"],
];
const ODD: &[&[&str]] = &[
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-O", "quota"],
    &["-t", "ext4", "-O", "inline_data", "-I", "256"],
    &["-t", "ext4", "-O", "ea_inode"],
    &["-t", "ext4", "-O", "encrypt"],
    &["-t", "ext4", "-O", "casefold"],
    &["-t", "ext4", "-O", "verity"],
    &["-t", "ext4", "-O", "project,quota"],
    &["-t", "ext4", "-O", "mmp"],
    &["-t", "ext4", "-O", "fast_commit"],
    &["-t", "ext4", "-O", "^sparse_super,^resize_inode,^flex_bg", "-b", "1024", "-g", "2048"],
    &["-t", "ext4", "-r", "0", "-O", "none", "-I", "128"],
];

const ALL: &[Kind] = &[
    Kind { name: "foreign", shapes: FOREIGN, spoil: nothing },
    Kind { name: "odd-features", shapes: ODD, spoil: nothing },
    Kind { name: "inode-field", shapes: USUAL, spoil: inode_field },
    Kind { name: "root-directory", shapes: USUAL, spoil: root_directory },
    Kind { name: "superblock-field", shapes: USUAL, spoil: superblock_field },
    Kind { name: "group-descriptor", shapes: USUAL, spoil: group_descriptor },
    Kind { name: "bitmap", shapes: USUAL, spoil: bitmap },
    Kind { name: "feature-bit", shapes: USUAL, spoil: feature_bit },
    Kind { name: "orphan-record", shapes: USUAL, spoil: orphan_record },
    Kind { name: "orphan-read-only", shapes: ODD, spoil: orphan_record },
    Kind { name: "directory-entry", shapes: USUAL, spoil: directory_entry },
    Kind { name: "attributes", shapes: USUAL, spoil: attributes },
    Kind { name: "dirty-log", shapes: USUAL, spoil: dirty_log },
    Kind { name: "truncated", shapes: USUAL, spoil: truncated },
    Kind { name: "bytes-changed", shapes: USUAL, spoil: bytes_changed },
    Kind { name: "block-of-garbage", shapes: USUAL, spoil: block_of_garbage },
];

/// Number of kinds; consecutive seeds go through all of them.
pub const KINDS: u64 = ALL.len() as u64;

/// Makes the image of a seed in a directory.
pub fn specimen(dir: &Path, seed: u64) -> Result<Specimen> {
    let mut rng = Rng::from_parts(&[seed, 27]);
    let kind = &ALL[usize::try_from(seed % KINDS)?];
    let shape = kind.shapes[rng.index(kind.shapes.len())];
    let size = (12 + rng.below(12)) * MIB;
    let image = base::format(&dir.join("specimen.img"), size, shape)?;
    let kept = base::fill(&image, seed)?;
    let spoil = (kind.spoil)(&mut rng, image.path()).with_context(|| format!("kind {}", kind.name))?;
    let story = format!("mke2fs {}; {}", shape.join(" "), spoil.story());
    spoil.apply(&image, size)?;
    Ok(Specimen { image, kind: kind.name, story, kept })
}

impl Spoil {
    fn story(&self) -> String {
        let changed = self.bytes.iter().map(|(at, bytes)| format!("{} bytes at {at}", bytes.len()));
        let cut = self.cut.map(|n| format!("cut to {n} bytes"));
        let all: Vec<String> = self.debugfs.iter().cloned().chain(changed).chain(cut).collect();
        all.join(", ")
    }

    fn apply(&self, image: &Image, size: u64) -> Result<()> {
        if !self.debugfs.is_empty() {
            base::debugfs(image.path(), &self.debugfs)?;
        }
        let file = File::options().write(true).open(image.path())?;
        // A superblock of nonsense leads debugfs terabytes behind the end.
        file.set_len(size)?;
        base::settle(image)?;
        for (at, bytes) in &self.bytes {
            file.write_all_at(bytes, *at)?;
        }
        if let Some(len) = self.cut {
            file.set_len(len)?;
        }
        Ok(())
    }
}

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.index(from.len())]
}

/// A number such as damage makes: small, large, or near a limit.
fn number(rng: &mut Rng) -> u64 {
    match rng.below(6) {
        0 => 0,
        1 => rng.below(64),
        2 => rng.below(20_000),
        3 => 1 << rng.below(32),
        4 => u64::from(u32::MAX) - rng.below(3),
        _ => rng.bits() & 0xffff_ffff,
    }
}

fn commands(all: impl IntoIterator<Item = String>) -> Result<Spoil> {
    Ok(Spoil { debugfs: all.into_iter().collect(), ..Spoil::default() })
}

fn nothing(_: &mut Rng, _: &Path) -> Result<Spoil> {
    Ok(Spoil::default())
}

const INODE_FIELDS: [&str; 16] = [
    "mode",
    "links_count",
    "size",
    "flags",
    "blocks",
    "dtime",
    "file_acl",
    "extra_isize",
    "generation",
    "block[0]",
    "block[1]",
    "block[3]",
    "block[4]",
    "block[5]",
    "block[IND]",
    "uid",
];

fn inode_field(rng: &mut Rng, _: &Path) -> Result<Spoil> {
    let ino = 11 + rng.below(40);
    let value = if rng.one_in(4) { 0x1000_0000 } else { number(rng) };
    commands([format!("sif <{ino}> {} {value:#x}", pick(rng, &INODE_FIELDS))])
}

fn root_directory(rng: &mut Rng, _: &Path) -> Result<Spoil> {
    let mut one = || match rng.below(4) {
        0 => "clri <2>".to_owned(),
        1 => "sif <2> mode 0100644".to_owned(),
        _ => format!("sif <2> {} {:#x}", pick(rng, &INODE_FIELDS), number(rng)),
    };
    commands([one()])
}

fn superblock_field(rng: &mut Rng, _: &Path) -> Result<Spoil> {
    let fields = [
        "last_orphan",
        "free_blocks_count",
        "free_inodes_count",
        "state",
        "errors",
        "creator_os",
        "first_ino",
        "inode_size",
        "journal_inum",
        "want_extra_isize",
        "log_groups_per_flex",
        "reserved_gdt_blocks",
        "rev_level",
        "r_blocks_count",
        "overhead_clusters",
        "desc_size",
        "first_meta_bg",
        "def_hash_version",
        "mnt_count",
        "error_count",
        "first_data_block",
        "blocks_count",
        "inodes_per_group",
        "checksum_seed",
    ];
    let field = pick(rng, &fields);
    // A panic that the image asks for would be the kernel's.
    let value = if field == "errors" { 1 + rng.below(2) } else { number(rng) };
    commands([format!("ssv {field} {value}")])
}

fn group_descriptor(rng: &mut Rng, _: &Path) -> Result<Spoil> {
    let fields = [
        "block_bitmap",
        "inode_bitmap",
        "inode_table",
        "free_blocks_count",
        "free_inodes_count",
        "used_dirs_count",
        "flags",
        "itable_unused",
    ];
    let (group, field) = (rng.below(2), pick(rng, &fields));
    let value = if field == "flags" { rng.below(8) } else { number(rng) & 0xffff };
    commands([format!("set_bg {group} {field} {value}"), format!("set_bg {group} checksum calc")])
}

fn bitmap(rng: &mut Rng, _: &Path) -> Result<Spoil> {
    let which = pick(rng, &["freeb", "setb", "freei", "seti"]);
    let at = if which.ends_with('i') { format!("<{}>", 11 + rng.below(60)) } else { rng.below(9000).to_string() };
    let many = if which.ends_with('b') { format!(" {}", 1 + rng.below(60)) } else { String::new() };
    commands([format!("{which} {at}{many}"), "set_bg 0 checksum calc".to_owned()])
}

fn feature_bit(rng: &mut Rng, _: &Path) -> Result<Spoil> {
    let names = [
        "inline_data",
        "extents",
        "dir_index",
        "ea_inode",
        "huge_file",
        "64bit",
        "flex_bg",
        "filetype",
        "large_dir",
        "meta_bg",
        "resize_inode",
        "has_journal",
        "needs_recovery",
        "uninit_bg",
        "sparse_super2",
        "orphan_file",
        "bigalloc",
        "large_file",
        "extra_isize",
        "mmp",
        "casefold",
        "FEATURE_R25",
        "FEATURE_I19",
        "FEATURE_I30",
    ];
    let sign = if rng.one_in(3) { "-" } else { "" };
    commands([format!("feature {sign}{}", pick(rng, &names))])
}

fn orphan_record(rng: &mut Rng, _: &Path) -> Result<Spoil> {
    let ino = 12 + rng.below(30);
    let mut all = vec![format!("ssv last_orphan {ino}")];
    match rng.below(5) {
        0 => all = vec![format!("ssv last_orphan {}", number(rng))],
        1 => all.push(format!("sif <{ino}> dtime {}", number(rng))),
        2 => all.push(format!("sif <{ino}> dtime {ino}")),
        3 => all.extend(["sif victim links_count 0".to_owned(), "unlink victim".to_owned()]),
        _ => all.push(format!("sif <{ino}> block[5] {:#x}", number(rng))),
    }
    commands(all)
}

fn directory_entry(rng: &mut Rng, _: &Path) -> Result<Spoil> {
    let ino = match rng.below(4) {
        0 => rng.below(12),
        1 => number(rng),
        _ => 11 + rng.below(50),
    };
    commands([match rng.below(5) {
        0 => format!("unlink {}", pick(rng, &["lost+found", "kept", "busy", "append"])),
        1 => "ln <2> busy/deep/round".to_owned(),
        2 => "unlink busy/..".to_owned(),
        _ => format!("ln <{ino}> {}", pick(rng, &["x", "busy/x", "busy/deep/x"])),
    }])
}

fn attributes(rng: &mut Rng, image: &Path) -> Result<Spoil> {
    let set = |name: &str, len: usize| format!("ea_set append user.{name} {}", "v".repeat(len));
    let ready = [set("small", 10), set("large", 400)];
    base::debugfs(image, &ready)?;
    let bytes = fs::read(image)?;
    let found = bytes.windows(5).position(|w| w == if rng.one_in(2) { b"small" } else { b"large" });
    let Some(name) = found else { return inode_field(rng, image) };
    // An entry has 16 bytes before its name: lengths, offset, value's inode, size, hash.
    let at = u64::try_from(name - 16)? + rng.below(16);
    let value = u8::try_from(number(rng) & 0xff)?;
    Ok(Spoil { bytes: vec![(at, vec![value])], ..Spoil::default() })
}

/// A transaction that is whole, and writes something wrong home.
fn dirty_log(rng: &mut Rng, image: &Path) -> Result<Spoil> {
    let garbage = image.with_file_name("garbage");
    let block = 4096;
    let bytes = if rng.one_in(2) { vec![0; block] } else { content(rng.bits(), 0, block) };
    fs::write(&garbage, bytes)?;
    let at = if rng.one_in(2) { rng.below(200) } else { rng.below(9000) };
    let revoke = if rng.one_in(4) { format!("jw -r {}", rng.below(200)) } else { String::new() };
    commands(["jo".to_owned(), format!("jw -b {at} {}", garbage.display()), revoke, "jc".to_owned()])
}

fn truncated(rng: &mut Rng, image: &Path) -> Result<Spoil> {
    let size = fs::metadata(image)?.len();
    Ok(Spoil { cut: Some(rng.below(size)), ..Spoil::default() })
}

/// Where structures lie, mostly.
fn place(rng: &mut Rng, image: &Path) -> Result<u64> {
    let size = fs::metadata(image)?.len();
    Ok(match rng.below(4) {
        0 => 1024 + rng.below(1024),
        1 => rng.below(64 << 10),
        2 => rng.below(MIB),
        _ => rng.below(size),
    })
}

fn bytes_changed(rng: &mut Rng, image: &Path) -> Result<Spoil> {
    let mut bytes = Vec::new();
    for _ in 0..=rng.below(12) {
        bytes.push((place(rng, image)?, vec![u8::try_from(rng.below(256))?]));
    }
    Ok(Spoil { bytes, ..Spoil::default() })
}

fn block_of_garbage(rng: &mut Rng, image: &Path) -> Result<Spoil> {
    let at = place(rng, image)? / 1024 * 1024;
    let bytes = if rng.one_in(2) { vec![0; 1024] } else { content(rng.bits(), 0, 1024) };
    Ok(Spoil { bytes: vec![(at, bytes)], ..Spoil::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock and the names of the temporary files are others the second time.
    #[test]
    fn a_seed_makes_the_same_image_again() {
        let make = |seed| {
            let dir = tempfile::tempdir().unwrap();
            let made = specimen(dir.path(), seed).unwrap();
            assert_eq!(made.kept.len(), usize::try_from(base::KEPT).unwrap() + usize::from(base::BUSY));
            let story = made.story.replace(&*dir.path().to_string_lossy(), "DIR");
            (story, fs::read(made.image.path()).unwrap())
        };
        // Each kind, and some more shapes of features that are only read.
        let seeds = || (0..KINDS).chain((1..6).map(|n| 1 + n * KINDS));
        let first: Vec<_> = seeds().map(make).collect();
        for ((story, bytes), seed) in first.iter().zip(seeds()) {
            let again = make(seed);
            assert_eq!(*story, again.0);
            let differ = bytes.iter().zip(&again.1).position(|(a, b)| a != b);
            assert!(bytes.len() == again.1.len() && differ.is_none(), "{seed}: {story}: at {differ:?}");
        }
    }
}
