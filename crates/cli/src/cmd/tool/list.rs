//! What lists: `ls`, `tree`, `find`.

use super::action::{Action, Out};
use super::failure::Failure;
use super::values::{human, iso};
use crate::text::write_name;
use quire::{Dir, FileSystem, FileType, Metadata, WalkEntry};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One object, as `--json` shows it.
#[derive(Serialize)]
pub(super) struct Item {
    path: String,
    /// The bytes of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(rename = "type")]
    file_type: &'static str,
    ino: u32,
    /// Octal.
    mode: String,
    uid: u32,
    gid: u32,
    links: u32,
    size: u64,
    allocated: u64,
    modified: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<(u32, u32)>,
}

pub(super) fn type_name(t: FileType) -> &'static str {
    match t {
        FileType::File => "file",
        FileType::Dir => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        _ => "unknown",
    }
}

impl Item {
    pub(super) fn new(dir: &Dir, path: &Path, m: &Metadata) -> Result<Self, Failure> {
        let target = if m.is_symlink() { Some(dir.read_link(path)?) } else { None };
        let t = m.file_type();
        Ok(Item {
            path: path.to_string_lossy().into_owned(),
            path_hex: hex_unless_text(path.as_os_str()),
            file_type: type_name(t),
            ino: m.ino,
            mode: format!("{:04o}", m.permissions()),
            uid: m.uid,
            gid: m.gid,
            links: m.links,
            size: m.size,
            allocated: m.allocated,
            modified: iso(m.modified),
            target_hex: target.as_ref().and_then(|t| hex_unless_text(t)),
            target: target.map(|t| t.to_string_lossy().into_owned()),
            device: is_device(t).then_some(m.device),
        })
    }
}

pub(super) fn hex_unless_text(name: &OsStr) -> Option<String> {
    let hex = || name.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
    name.to_str().is_none().then(hex)
}

fn is_device(t: FileType) -> bool {
    matches!(t, FileType::CharDevice | FileType::BlockDevice)
}

/// A line of `ls -l` up to the name.
fn long_line(m: &Metadata, human_sizes: bool) -> String {
    let size = match m.device {
        (major, minor) if is_device(m.file_type()) => format!("{major},{minor}"),
        _ if human_sizes => human(m.size),
        _ => m.size.to_string(),
    };
    let (mode, links, modified) = (letters(m), m.links, iso(m.modified));
    format!("{mode} {links:>3} {:>5} {:>5} {size:>10} {modified} ", m.uid, m.gid)
}

/// A line of `ls -l` up to the name, where the inode cannot be read.
const UNKNOWN_LINE: &str = "??????????   ?     ?     ?          ?                    ? ";

/// `-rwxr-xr-x`.
pub(super) fn letters(m: &Metadata) -> String {
    let p = m.permissions();
    let mut text = String::from(m.file_type().letter());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = p >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, p & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
        });
    }
    text
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire ls -l rootfs.img:/etc")]
pub(crate) struct Ls {
    /// What to list
    #[arg(required = true, value_name = "IMG:PATH")]
    paths: Vec<OsString>,
    /// With type, permissions, links, owner, group, size and time
    #[arg(short)]
    long: bool,
    /// Sizes in K, M, G
    #[arg(short = 'H', long)]
    human: bool,
    /// A directory itself, not what is in it
    #[arg(short)]
    directory: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Action for Ls {
    fn names(&mut self) -> Vec<&mut OsString> {
        self.paths.iter_mut().collect()
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let mut items = Vec::new();
        let mut failed = None;
        for path in &self.paths {
            let listed = self.path(fs, path, &mut items, &mut failed, out);
            keep_first(&mut failed, listed)?;
        }
        if self.json {
            json(&items, out)?;
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Has a listing go on behind an error of one object, and keeps the first. Other failures end it.
pub(super) fn keep_first(first: &mut Option<Failure>, listed: Result<(), Failure>) -> Result<(), Failure> {
    match listed {
        Err(e @ Failure::Image(_)) if !e.is_interrupted() => {
            first.get_or_insert(e);
            Ok(())
        }
        other => other,
    }
}

/// Lists each object from a path down, also behind what cannot be read; the first error comes at the end.
fn each_below(
    fs: &FileSystem,
    path: &OsStr,
    is_json: bool,
    out: &mut Out<'_>,
    one: impl Fn(&WalkEntry, &mut Vec<Item>, &mut Out<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut items, mut failed) = (Vec::new(), None);
    for e in fs.walk(path)? {
        let listed = e.map_err(Failure::from).and_then(|e| one(&e, &mut items, out));
        keep_first(&mut failed, listed)?;
    }
    if is_json {
        json(&items, out)?;
    }
    failed.map_or(Ok(()), Err)
}

impl Ls {
    /// What is in a directory, or the object itself.
    fn path(
        &self,
        fs: &FileSystem,
        path: &OsStr,
        items: &mut Vec<Item>,
        failed: &mut Option<Failure>,
        out: &mut Out<'_>,
    ) -> Result<(), Failure> {
        let m = fs.symlink_metadata(path)?;
        let is_dir = m.is_dir() || (m.is_symlink() && !self.long && fs.metadata(path).is_ok_and(|m| m.is_dir()));
        if self.paths.len() > 1 && is_dir && !self.directory && !self.json {
            write_name(out, path, ":\n")?;
        }
        if !is_dir || self.directory {
            return self.one(fs, Path::new(path), &m, items, out);
        }
        let dir = fs.open_dir(path)?;
        for (name, m) in fs.read_dir_each(path)? {
            let listed = match m {
                // As JSON each has its whole path, because several directories make one list.
                Ok(m) if self.json => self.one(fs, &Path::new(path).join(name), &m, items, out),
                Ok(m) => self.one(&dir, Path::new(&name), &m, items, out),
                Err(e) => self.unreadable(&name, out).and(Err(e.into())),
            };
            keep_first(failed, listed)?;
        }
        Ok(())
    }

    /// A name whose inode cannot be read. As JSON it is left out.
    fn unreadable(&self, name: &OsStr, out: &mut Out<'_>) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        if self.long {
            out.write_all(UNKNOWN_LINE.as_bytes())?;
        }
        Ok(write_name(out, name, "\n")?)
    }

    fn one(
        &self,
        dir: &Dir,
        path: &Path,
        m: &Metadata,
        items: &mut Vec<Item>,
        out: &mut Out<'_>,
    ) -> Result<(), Failure> {
        if self.json {
            items.push(Item::new(dir, path, m)?);
            return Ok(());
        }
        if self.long {
            out.write_all(long_line(m, self.human).as_bytes())?;
        }
        let target = if self.long && m.is_symlink() { dir.read_link(path).map(Some) } else { Ok(None) };
        if let Ok(Some(target)) = &target {
            write_name(out, path, " -> ")?;
            write_name(out, target, "\n")?;
        } else {
            write_name(out, path, "\n")?;
        }
        Ok(target.map(drop)?)
    }
}

pub(super) fn json<T: Serialize + ?Sized>(value: &T, out: &mut Out<'_>) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::Usage(e.to_string()))?;
    // JSON permits control characters above those of ASCII; a terminal may take them for commands.
    let is_raw = |c: char| c.is_control() && c != '\n';
    let escaped = text.chars().map(|c| if is_raw(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() });
    let text = if text.contains(is_raw) { escaped.collect() } else { text };
    Ok(writeln!(out, "{text}")?)
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire tree rootfs.img:/etc/systemd")]
pub(crate) struct Tree {
    /// Where to begin
    #[arg(value_name = "IMG:PATH")]
    path: OsString,
    /// At most so many levels
    #[arg(short = 'L', value_name = "LEVELS")]
    levels: Option<usize>,
    /// As JSON: a list of all objects
    #[arg(long)]
    json: bool,
}

impl Action for Tree {
    fn names(&mut self) -> Vec<&mut OsString> {
        vec![&mut self.path]
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        each_below(fs, &self.path, self.json, out, |e, items, out| self.one(fs, e, items, out))
    }
}

impl Tree {
    fn one(&self, fs: &FileSystem, e: &WalkEntry, items: &mut Vec<Item>, out: &mut Out<'_>) -> Result<(), Failure> {
        if self.levels.is_some_and(|l| e.depth > l) {
            return Ok(());
        }
        if self.json {
            items.push(Item::new(fs, &e.path, &e.metadata)?);
            return Ok(());
        }
        let name = if e.depth == 0 { self.path.as_ref() } else { e.path.file_name().unwrap_or_default() };
        let mark = if e.metadata.is_dir() && e.depth > 0 { "/" } else { "" };
        write!(out, "{:1$}", "", 2 * e.depth)?;
        write_name(out, name, mark)?;
        Ok(writeln!(out)?)
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire find rootfs.img:/usr --name '*.so*' --type file --larger 1M
  quire find rootfs.img --perm 4000              # set-user-id programs")]
pub(crate) struct Find {
    /// Where to begin
    #[arg(value_name = "IMG:PATH")]
    path: OsString,
    /// Names that fit a pattern of * and ?
    #[arg(long, value_name = "PATTERN")]
    name: Option<OsString>,
    /// Objects of this type: file, directory, symlink, char-device, block-device, fifo, socket
    #[arg(long = "type", value_name = "TYPE")]
    file_type: Option<String>,
    /// Objects of this owner
    #[arg(long)]
    uid: Option<u32>,
    /// Objects of this group
    #[arg(long)]
    gid: Option<u32>,
    /// Objects that have all of these permission bits, octal
    #[arg(long, value_name = "BITS", value_parser = |t: &str| u32::from_str_radix(t, 8).map_err(|e| e.to_string()))]
    perm: Option<u32>,
    /// Files larger than this
    #[arg(long, value_name = "SIZE", value_parser = super::values::size)]
    larger: Option<u64>,
    /// End paths with a zero byte instead of a line end
    #[arg(long, short = '0')]
    print0: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Find {
    fn fits(&self, e: &WalkEntry) -> bool {
        let m = &e.metadata;
        let name = e.path.file_name().unwrap_or_default().as_encoded_bytes();
        self.name.as_ref().is_none_or(|p| quire_fs::name_matches(p.as_bytes(), name))
            && self.file_type.as_ref().is_none_or(|t| type_name(m.file_type()) == t)
            && self.uid.is_none_or(|u| m.uid == u)
            && self.gid.is_none_or(|g| m.gid == g)
            && self.perm.is_none_or(|p| m.permissions() & p == p)
            && self.larger.is_none_or(|l| m.is_file() && m.size > l)
    }

    fn one(&self, fs: &FileSystem, e: &WalkEntry, items: &mut Vec<Item>, out: &mut Out<'_>) -> Result<(), Failure> {
        if !self.fits(e) {
            return Ok(());
        }
        if self.json {
            items.push(Item::new(fs, &e.path, &e.metadata)?);
        } else if self.print0 {
            out.write_all(e.path.as_os_str().as_bytes())?;
            out.write_all(b"\0")?;
        } else {
            write_name(out, &e.path, "\n")?;
        }
        Ok(())
    }
}

impl Action for Find {
    fn names(&mut self) -> Vec<&mut OsString> {
        vec![&mut self.path]
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let known = ["file", "directory", "symlink", "char-device", "block-device", "fifo", "socket"];
        if let Some(t) = self.file_type.as_ref().filter(|t| !known.contains(&t.as_str())) {
            return Err(Failure::Usage(format!("--type {t}: one of {} is expected", known.join(", "))));
        }
        each_below(fs, &self.path, self.json, out, |e, items, out| self.one(fs, e, items, out))
    }
}
