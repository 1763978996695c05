//! `quire dump`: what is in an image, for people who debug.

use super::at::At;
use crate::exit;
use clap::Subcommand;
use quire_device::nvram::{NvramMap, NvramOptions};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, FileDevice, OpenOptions, Region, SystemClock};
use quire_fs::{Attr, Volume};
use quire_journal::dump::{LogDump, Scope};
use quire_journal::recover::list_nvram;
use quire_layout::features::compat;
use quire_layout::inode::{Inode, flags, mode};
use quire_layout::qlog::Kind;
use quire_layout::{BlockNo, Ino};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show structures of an image: its journal, an inode, a block, a directory.
///
/// Nothing is written, nothing is replayed, and the image may be in use.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  quire dump disk.img journal --all
  quire dump disk.img inode 2
  quire dump disk.img block 1025
  quire dump disk.img dir /home")]
pub(crate) struct Args {
    /// The image file or block device
    image: PathBuf,
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The log: descriptors, revokes, commits
    Journal {
        /// Every block of the log, not only what recovery would look at
        #[arg(long)]
        all: bool,
        /// The journal's device, if it is not in the image
        #[arg(long, value_name = "PATH")]
        journal_path: Option<PathBuf>,
        /// The memory that holds the journal, if it is in NVRAM
        #[arg(long, value_name = "PATH")]
        nvram: Option<PathBuf>,
    },
    /// An inode: attributes, flags, where its blocks are
    Inode { number: u32 },
    /// A block: where it is, and its bytes
    Block { number: u64 },
    /// A directory: its entries
    Dir { path: String },
}

const NAME: &str = "dump";
/// Pieces of a file that are shown.
const MAX_EXTENTS: usize = 4096;

pub(crate) fn run(args: &Args) -> ExitCode {
    let how = OpenOptions { read_only: true, lock: false, direct: false, ..OpenOptions::default() };
    let device: Arc<dyn BlockDevice> = match args.at.device(&args.image, how) {
        Ok(device) => Arc::new(device),
        Err(e) => return exit::fail(NAME, exit::FAILURE, e),
    };
    let text = match &args.what {
        What::Journal { all, journal_path, nvram } => journal(device, journal_path.as_ref(), nvram.as_ref(), *all),
        What::Inode { number } => peek(device).and_then(|v| inode(&v, Ino(*number))),
        What::Block { number } => peek(device.clone()).and_then(|v| block(&v, &*device, BlockNo(*number))),
        What::Dir { path } => peek(device).and_then(|v| directory(&v, path)),
    };
    match text {
        Ok(text) => exit::print(NAME, &text, 0, exit::FAILURE),
        Err(what) => exit::fail(NAME, exit::FAILURE, format_args!("{}: {what}", args.image.display())),
    }
}

fn peek(device: Arc<dyn BlockDevice>) -> Result<Volume, String> {
    quire_fs::peek(device, Arc::new(SystemClock)).map_err(|e| e.to_string())
}

fn journal(
    device: Arc<dyn BlockDevice>,
    path: Option<&PathBuf>,
    nvram: Option<&PathBuf>,
    all: bool,
) -> Result<String, String> {
    let sb = super::info::read(&device)?;
    if !sb.features().has_compat(compat::HAS_JOURNAL) {
        return Err("the file system has no journal".to_owned());
    }
    let other = match path {
        Some(path) => {
            let how = OpenOptions { read_only: true, lock: false, direct: false, ..OpenOptions::default() };
            Some(Arc::new(FileDevice::open(path, how).map_err(|e| e.to_string())?) as Arc<dyn BlockDevice>)
        }
        None => None,
    };
    let found = super::journal::find(device, other, &sb).map_err(|e| e.to_string())?.ok_or("no journal")?;
    let mut out = String::new();
    let in_nvram = found.log.needs_nvram().is_some();
    let items = LogDump::new(&found.log, if all { Scope::Whole } else { Scope::Live });
    // What the log's blocks hold is of no use while the transactions are elsewhere.
    for item in items.take(if in_nvram && !all { 1 } else { usize::MAX }) {
        writeln!(out, "{}", item.map_err(|e| e.to_string())?).ok();
    }
    match nvram {
        Some(path) => {
            let how = NvramOptions { read_only: true, ..NvramOptions::default() };
            let memory = NvramMap::open_any(path, how).map_err(|e| e.to_string())?;
            out.push_str(&in_memory(&memory)?);
        }
        None if in_nvram => out.push_str("the transactions are in NVRAM: name it with --nvram\n"),
        None => {}
    }
    Ok(out)
}

/// Most transactions of a log in NVRAM that are shown.
const MAX_TRANSACTIONS: usize = 100_000;

/// What a log in NVRAM holds.
fn in_memory(memory: &NvramMap) -> Result<String, String> {
    let (label, transactions, damaged) = list_nvram(memory, MAX_TRANSACTIONS).map_err(|e| e.to_string())?;
    let mut out = format!(
        "NVRAM {} of file system {}, use {}: {} region(s) of {} bytes, granule {}, tail at {} ({})\n",
        quire::uuid_text(&label.uuid),
        quire::uuid_text(&label.fs_uuid),
        label.epoch,
        label.regions,
        label.region_len(),
        label.granule,
        label.tail,
        label.tid
    );
    for t in &transactions {
        let region = t.position / label.region_len();
        writeln!(out, "position {} (region {region}): {}, {} bytes, at {} s", t.position, t.tid, t.bytes, t.seconds)
            .ok();
        for r in &t.records {
            let what = match r.kind {
                Kind::Image => "image of".to_owned(),
                Kind::Ranges => format!("{} ranges of", r.count),
                Kind::ZeroRanges => format!("{} ranges over zeros of", r.count),
                Kind::Delta => format!("delta of {} bytes of", r.count),
                Kind::Revoke => format!("revoke of {} from", r.count),
            };
            writeln!(out, "  {what} {}", r.home).ok();
        }
    }
    if transactions.len() == MAX_TRANSACTIONS {
        out.push_str("(more transactions are not shown)\n");
    }
    if damaged {
        out.push_str("the log breaks off: a transaction that was durable is damaged\n");
    }
    Ok(out)
}

fn inode(v: &Volume, ino: Ino) -> Result<String, String> {
    let inodes = v.superblock().inodes_count();
    if !(1..=inodes).contains(&ino.0) {
        return Err(format!("no inode {}: the file system has inodes 1 to {inodes}", ino.0));
    }
    let named = |e: quire_fs::Error| e.to_string();
    let inode = v.inspect().inode(ino).map_err(named)?;
    let mut out = attributes(v, ino, &inode);
    extents(v, ino, &inode, &mut out).map_err(named)?;
    Ok(out)
}

fn attributes(v: &Volume, ino: Ino, i: &Inode) -> String {
    let a = Attr::of(v.superblock(), ino, i);
    let kind = match a.mode & mode::FMT {
        mode::REG => "regular file",
        mode::DIR => "directory",
        mode::LNK => "symbolic link",
        mode::CHR => "character device",
        mode::BLK => "block device",
        mode::FIFO => "pipe",
        mode::SOCK => "socket",
        0 => "not in use",
        _ => "of unknown type",
    };
    let mut out = format!("inode {}: {kind}\n", ino.0);
    let mut line = |name: &str, value: String| writeln!(out, "  {name:<12}{value}").ok();
    line("mode", format!("{:06o}", a.mode));
    line("links", a.links.to_string());
    line("owner", format!("{}:{}", a.uid, a.gid));
    line("size", a.size.to_string());
    line("sectors", a.sectors.to_string());
    line("flags", format!("{:#010x}{}", i.flags(), flag_names(i.flags())));
    line("generation", a.generation.to_string());
    for (name, t) in
        [("atime", Some(a.atime)), ("mtime", Some(a.mtime)), ("ctime", Some(a.ctime)), ("crtime", a.crtime)]
    {
        if let Some(t) = t {
            line(name, format!("{}.{:09}", t.secs, t.nanos));
        }
    }
    if matches!(a.mode & mode::FMT, mode::CHR | mode::BLK) {
        line("device", format!("{}:{}", a.device.0, a.device.1));
    }
    out
}

fn flag_names(f: u32) -> String {
    let names = [
        (flags::SYNC, "sync"),
        (flags::IMMUTABLE, "immutable"),
        (flags::APPEND, "append"),
        (flags::NODUMP, "nodump"),
        (flags::NOATIME, "noatime"),
        (flags::INDEX, "index"),
        (flags::JOURNAL_DATA, "journal_data"),
        (flags::DIRSYNC, "dirsync"),
        (flags::TOPDIR, "topdir"),
        (flags::HUGE_FILE, "huge_file"),
        (flags::EXTENTS, "extents"),
        (flags::EA_INODE, "ea_inode"),
        (flags::INLINE_DATA, "inline_data"),
    ];
    names.iter().filter(|(bit, _)| f & bit != 0).map(|(_, name)| format!(" {name}")).collect()
}

/// Where the blocks of an inode are.
fn extents(v: &Volume, ino: Ino, inode: &Inode, out: &mut String) -> quire_fs::Result<()> {
    if !(inode.is_file() || inode.is_dir()) || inode.has(flags::INLINE_DATA) {
        return Ok(());
    }
    let extents = v.inspect().extents(ino, MAX_EXTENTS)?;
    for e in &extents {
        let state = if e.unwritten { " unwritten" } else { "" };
        writeln!(out, "  file block {:>10} +{:<6} at block {}{state}", e.at.0, e.len, e.phys.0).ok();
    }
    if extents.len() == MAX_EXTENTS {
        writeln!(out, "  (more pieces are not shown)").ok();
    }
    if extents.is_empty() {
        writeln!(out, "  no blocks").ok();
    }
    Ok(())
}

fn block(v: &Volume, device: &dyn BlockDevice, b: BlockNo) -> Result<String, String> {
    let sb = v.superblock();
    let bs = sb.block_size();
    if b.0 >= sb.blocks_count() {
        return Err(format!("the file system has {} blocks", sb.blocks_count()));
    }
    let bytes = device.read(bs.offset(b), bs.bytes(), Region::Metadata).map_err(|e| e.to_string())?;
    let group = sb.group_of(b).map_or("before the first group".to_owned(), |g| format!("group {}", g.0));
    let mut out = format!("{b} at byte {}, {group}\n", bs.offset(b));
    let mut same = None;
    for (n, row) in bytes[..bs.bytes()].chunks(16).enumerate() {
        if same == Some(row) {
            if !out.ends_with("*\n") {
                out.push_str("*\n");
            }
            continue;
        }
        same = Some(row);
        let hex: String = row.iter().map(|b| format!(" {b:02x}")).collect();
        let text: String =
            row.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' }).collect();
        writeln!(out, "{:06x} {hex}  |{text}|", n * 16).ok();
    }
    Ok(out)
}

fn directory(v: &Volume, path: &str) -> Result<String, String> {
    let mut ino = Ino::ROOT;
    for name in path.split('/').filter(|n| !n.is_empty()) {
        let found = v.inspect().find(ino, name.as_bytes()).map_err(|e| format!("{name}: {e}"))?;
        ino = found.ok_or_else(|| format!("{name}: no such file or directory"))?;
    }
    let mut out = String::new();
    let listed = v.inspect().entries(ino, &mut |item| {
        let name = crate::text::printable(&String::from_utf8_lossy(item.name));
        writeln!(out, "{:>10}  {:<12} {name}", item.ino.0, format!("{:?}", item.file_type).to_lowercase()).ok();
    });
    listed.map_err(|e| format!("{path}: {e}"))?;
    Ok(format!("{path}: inode {}\n{out}", ino.0))
}
