//! What lists: `ls`, `tree`, `find`.

use super::action::{Action, Out};
use super::failure::Failure;
use super::values::{human, iso};
use quire::{Dir, FileSystem, FileType, Metadata, WalkEntry};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// One object, as `--json` shows it.
#[derive(Serialize)]
pub(super) struct Item {
    path: String,
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
        let target = if m.is_symlink() { Some(dir.read_link(path)?.to_string_lossy().into_owned()) } else { None };
        let t = m.file_type();
        Ok(Item {
            path: path.to_string_lossy().into_owned(),
            file_type: type_name(t),
            ino: m.ino,
            mode: format!("{:04o}", m.permissions()),
            uid: m.uid,
            gid: m.gid,
            links: m.links,
            size: m.size,
            allocated: m.allocated,
            modified: iso(m.modified),
            target,
            device: matches!(t, FileType::CharDevice | FileType::BlockDevice).then_some(m.device),
        })
    }

    /// A line of `ls -l`.
    fn line(&self, m: &Metadata, human_sizes: bool) -> String {
        let size = match self.device {
            Some((major, minor)) => format!("{major},{minor}"),
            None if human_sizes => human(self.size),
            None => self.size.to_string(),
        };
        let target = self.target.as_ref().map_or(String::new(), |t| format!(" -> {t}"));
        let (mode, links, uid, gid) = (letters(m), self.links, self.uid, self.gid);
        format!("{mode} {links:>3} {uid:>5} {gid:>5} {size:>10} {} {}{target}", self.modified, self.path)
    }
}

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
    paths: Vec<String>,
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
    fn targets(&mut self) -> Vec<&mut String> {
        self.paths.iter_mut().collect()
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let mut items = Vec::new();
        for path in &self.paths {
            let m = fs.symlink_metadata(path)?;
            let is_dir = m.is_dir() || (m.is_symlink() && !self.long && fs.metadata(path).is_ok_and(|m| m.is_dir()));
            if self.paths.len() > 1 && is_dir && !self.directory && !self.json {
                writeln!(out, "{path}:")?;
            }
            if is_dir && !self.directory {
                let dir = fs.open_dir(path)?;
                for e in dir.entries()? {
                    self.one(&dir, Path::new(&e.name), &e.metadata, &mut items, out)?;
                }
            } else {
                self.one(fs, Path::new(path), &m, &mut items, out)?;
            }
        }
        if self.json { json(&items, out) } else { Ok(()) }
    }
}

impl Ls {
    fn one(
        &self,
        dir: &Dir,
        path: &Path,
        m: &Metadata,
        items: &mut Vec<Item>,
        out: &mut Out<'_>,
    ) -> Result<(), Failure> {
        if !self.long && !self.json {
            return Ok(writeln!(out, "{}", path.display())?);
        }
        let item = Item::new(dir, path, m)?;
        if self.json {
            items.push(item);
            return Ok(());
        }
        Ok(writeln!(out, "{}", item.line(m, self.human))?)
    }
}

pub(super) fn json<T: Serialize + ?Sized>(value: &T, out: &mut Out<'_>) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::Usage(e.to_string()))?;
    Ok(writeln!(out, "{text}")?)
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire tree rootfs.img:/etc/systemd")]
pub(crate) struct Tree {
    /// Where to begin
    #[arg(value_name = "IMG:PATH")]
    path: String,
    /// At most so many levels
    #[arg(short = 'L', value_name = "LEVELS")]
    levels: Option<usize>,
    /// As JSON: a list of all objects
    #[arg(long)]
    json: bool,
}

impl Action for Tree {
    fn targets(&mut self) -> Vec<&mut String> {
        vec![&mut self.path]
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let mut items = Vec::new();
        for e in fs.walk(&self.path)? {
            let e = e?;
            if self.levels.is_some_and(|l| e.depth > l) {
                continue;
            }
            if self.json {
                items.push(Item::new(fs, &e.path, &e.metadata)?);
                continue;
            }
            let name = if e.depth == 0 { self.path.as_ref() } else { e.path.file_name().unwrap_or_default() };
            let mark = if e.metadata.is_dir() && e.depth > 0 { "/" } else { "" };
            writeln!(out, "{:1$}{2}{mark}", "", 2 * e.depth, name.to_string_lossy())?;
        }
        if self.json { json(&items, out) } else { Ok(()) }
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire find rootfs.img:/usr --name '*.so*' --type file --larger 1M
  quire find rootfs.img --perm 4000              # set-user-id programs")]
pub(crate) struct Find {
    /// Where to begin
    #[arg(value_name = "IMG:PATH")]
    path: String,
    /// Names that fit a pattern of * and ?
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
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
}

impl Action for Find {
    fn targets(&mut self) -> Vec<&mut String> {
        vec![&mut self.path]
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let known = ["file", "directory", "symlink", "char-device", "block-device", "fifo", "socket"];
        if let Some(t) = self.file_type.as_ref().filter(|t| !known.contains(&t.as_str())) {
            return Err(Failure::Usage(format!("--type {t}: one of {} is expected", known.join(", "))));
        }
        let mut items = Vec::new();
        for e in fs.walk(PathBuf::from(&self.path))? {
            let e = e?;
            if !self.fits(&e) {
                continue;
            }
            if self.json {
                items.push(Item::new(fs, &e.path, &e.metadata)?);
            } else {
                out.write_all(e.path.as_os_str().as_encoded_bytes())?;
                out.write_all(if self.print0 { b"\0" } else { b"\n" })?;
            }
        }
        if self.json { json(&items, out) } else { Ok(()) }
    }
}
