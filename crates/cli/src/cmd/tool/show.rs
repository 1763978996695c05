//! What shows one thing: `stat`, `cat`, `getfattr`, `du`, `df`.

use super::action::{Action, Out};
use super::failure::Failure;
use super::list::{Item, hex_unless_text, json, keep_first, letters, type_name};
use super::values::{human, iso_nanos};
use crate::text::write_name;
use quire::{FileSystem, Links, Metadata};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

/// Bytes that are copied at once.
pub(super) const COPY_BYTES: usize = 1 << 20;

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire stat rootfs.img:/bin/sh
  quire stat --json rootfs.img:/etc/passwd | jq .[0].uid")]
pub(crate) struct Stat {
    #[arg(required = true, value_name = "IMG:PATH")]
    paths: Vec<OsString>,
    /// Of what a symbolic link means
    #[arg(short = 'L', long)]
    dereference: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Action for Stat {
    fn names(&mut self) -> Vec<&mut OsString> {
        self.paths.iter_mut().collect()
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let mut items = Vec::new();
        for path in &self.paths {
            let m = if self.dereference { fs.metadata(path)? } else { fs.symlink_metadata(path)? };
            if self.json {
                items.push(Details::new(fs, Path::new(path), &m)?);
                continue;
            }
            write!(out, "  File: ")?;
            write_name(out, path, "")?;
            if m.is_symlink() {
                write!(out, " -> ")?;
                write_name(out, &fs.read_link(path)?, "")?;
            }
            writeln!(out)?;
            let t = type_name(m.file_type());
            writeln!(out, "  Size: {}\tAllocated: {}\tInode: {}\tLinks: {}\t{t}", m.size, m.allocated, m.ino, m.links)?;
            let (major, minor) = m.device;
            let device = if m.device == (0, 0) { String::new() } else { format!("\tDevice: {major},{minor}") };
            let (mode, bits) = (letters(&m), m.permissions());
            writeln!(
                out,
                "Access: ({bits:04o}/{mode})\tUid: {}\tGid: {}\tFlags: {:#x}{device}",
                m.uid, m.gid, m.flags
            )?;
            let times = [("Access", Some(m.accessed)), ("Modify", Some(m.modified)), ("Change", Some(m.changed))];
            for (name, t) in times.into_iter().chain([(" Birth", m.created)]) {
                if let Some(t) = t {
                    writeln!(out, "{name}: {}", iso_nanos(t))?;
                }
            }
        }
        if self.json { json(&items, out) } else { Ok(()) }
    }
}

/// One object with all that `stat` tells.
#[derive(Serialize)]
struct Details {
    #[serde(flatten)]
    item: Item,
    /// The part of `modified` below a second.
    modified_nanos: u32,
    accessed: String,
    changed: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    /// Those of chattr(1), as one number.
    flags: u32,
}

impl Details {
    fn new(fs: &FileSystem, path: &Path, m: &Metadata) -> Result<Self, Failure> {
        Ok(Details {
            item: Item::new(fs, path, m)?,
            modified_nanos: m.modified.nanos,
            accessed: iso_nanos(m.accessed),
            changed: iso_nanos(m.changed),
            created: m.created.map(iso_nanos),
            flags: m.flags,
        })
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire cat rootfs.img:/etc/os-release")]
pub(crate) struct Cat {
    #[arg(required = true, value_name = "IMG:PATH")]
    paths: Vec<OsString>,
}

impl Action for Cat {
    fn names(&mut self) -> Vec<&mut OsString> {
        self.paths.iter_mut().collect()
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let mut buf = vec![0; COPY_BYTES];
        for path in &self.paths {
            let mut file = fs.open_file(path)?;
            loop {
                let n = file.read(&mut buf).map_err(|e| Failure::image(path, e))?;
                if n == 0 {
                    break;
                }
                out.write_all(&buf[..n])?;
            }
        }
        Ok(())
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire getfattr rootfs.img:/usr/bin/ping
  quire getfattr -n security.capability --raw rootfs.img:/usr/bin/ping | xxd")]
pub(crate) struct Getfattr {
    #[arg(value_name = "IMG:PATH")]
    path: OsString,
    /// Only this attribute
    #[arg(short, long)]
    name: Option<OsString>,
    /// The bare value, without its name; with --name
    #[arg(long, requires = "name")]
    raw: bool,
    /// Of a symbolic link itself
    #[arg(short = 'P', long)]
    no_dereference: bool,
    /// As JSON: an object of names and values, these in hexadecimal. The key of a name that is not UTF-8 is `hex:` and
    /// its bytes in hexadecimal
    #[arg(long)]
    json: bool,
}

impl Action for Getfattr {
    fn names(&mut self) -> Vec<&mut OsString> {
        vec![&mut self.path]
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let links = if self.no_dereference { Links::NoFollow } else { Links::Follow };
        let names = match &self.name {
            Some(n) => vec![n.clone()],
            None => fs.xattrs(&self.path, links)?,
        };
        let mut found = BTreeMap::new();
        for name in names {
            let value = fs.xattr(&self.path, links, &name)?;
            if self.raw {
                return Ok(out.write_all(&value)?);
            }
            let hex: String = value.iter().map(|b| format!("{b:02x}")).collect();
            if self.json {
                // No attribute has a name that begins so: each has its own key.
                let key = hex_unless_text(&name).map(|bytes| format!("hex:{bytes}"));
                found.insert(key.unwrap_or_else(|| name.to_string_lossy().into_owned()), hex);
                continue;
            }
            write_name(out, &name, "=")?;
            match std::str::from_utf8(&value) {
                Ok(text) if !text.chars().any(char::is_control) => writeln!(out, "{text:?}")?,
                _ => writeln!(out, "0x{hex}")?,
            }
        }
        if self.json { json(&found, out) } else { Ok(()) }
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire du rootfs.img:/usr")]
pub(crate) struct Du {
    #[arg(required = true, value_name = "IMG:PATH")]
    paths: Vec<OsString>,
    /// Sizes in K, M, G
    #[arg(short = 'H', long)]
    human: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DiskUse {
    path: String,
    /// The bytes of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// Space taken, each inode once.
    allocated: u64,
    /// Sizes of files, each inode once.
    apparent: u64,
    objects: u64,
}

impl Action for Du {
    fn names(&mut self) -> Vec<&mut OsString> {
        self.paths.iter_mut().collect()
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let (mut all, mut failed) = (Vec::new(), None);
        for path in &self.paths {
            let mut seen = HashSet::new();
            let (shown, path_hex) = (path.to_string_lossy().into_owned(), hex_unless_text(path));
            let mut sum = DiskUse { path: shown, path_hex, allocated: 0, apparent: 0, objects: 0 };
            for e in fs.walk(path)? {
                let m = match e {
                    Ok(e) => e.metadata,
                    Err(e) => {
                        keep_first(&mut failed, Err(e.into()))?;
                        continue;
                    }
                };
                if seen.insert(m.ino) {
                    sum.allocated += m.allocated;
                    sum.apparent += if m.is_file() { m.size } else { 0 };
                    sum.objects += 1;
                }
            }
            all.push(sum);
        }
        if self.json {
            json(&all, out)?;
        } else {
            for (s, path) in all.iter().zip(&self.paths) {
                let size = if self.human { human(s.allocated) } else { s.allocated.to_string() };
                write!(out, "{size}\t")?;
                write_name(out, path, "\n")?;
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire df rootfs.img")]
pub(crate) struct Df {
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Sizes in K, M, G
    #[arg(short = 'H', long)]
    human: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Free {
    block_size: u32,
    size: u64,
    used: u64,
    available: u64,
    inodes: u64,
    free_inodes: u64,
}

impl Action for Df {
    fn names(&mut self) -> Vec<&mut OsString> {
        vec![&mut self.image]
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let u = fs.usage()?;
        let bytes = |blocks: u64| blocks * u64::from(u.block_size);
        let f = Free {
            block_size: u.block_size,
            size: bytes(u.blocks),
            used: bytes(u.blocks - u.free_blocks),
            available: bytes(u.available_blocks),
            inodes: u.inodes,
            free_inodes: u.free_inodes,
        };
        if self.json {
            return json(&f, out);
        }
        let show = |b: u64| if self.human { human(b) } else { b.to_string() };
        writeln!(out, "size\tused\tavailable\tinodes\tfree inodes")?;
        let (size, used, available) = (show(f.size), show(f.used), show(f.available));
        Ok(writeln!(out, "{size}\t{used}\t{available}\t{}\t{}", f.inodes, f.free_inodes)?)
    }
}
