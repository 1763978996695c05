//! `quire diff`: what differs between the trees of two images.

use super::failure::Failure;
use super::list::{hex_unless_text, json, type_name};
use super::target::{open, split};
use crate::cmd::at::At;
use crate::text::write_name;
use quire::{FileSystem, Links, Metadata, WalkEntry};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const COPY_BYTES: usize = 1 << 20;

/// Compare the trees of two images.
///
/// Prints what only one has (`-`, `+`) and what differs, with the attributes that do. --partition and --offset are for
/// both. Exit codes are those of diff(1): 0, no difference; 1, some; 2, trouble.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire diff old.img new.img
  quire diff old.img:/etc new.img:/etc --json")]
pub(crate) struct DiffArgs {
    #[arg(value_name = "IMG1[:DIR]")]
    old: OsString,
    #[arg(value_name = "IMG2[:DIR]")]
    new: OsString,
    /// Times count, too
    #[arg(long)]
    times: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Serialize)]
struct Difference {
    #[serde(skip)]
    name: PathBuf,
    path: String,
    /// The bytes of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// "removed", "added" or "changed".
    what: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    in_what: Vec<&'static str>,
}

impl Difference {
    fn new(of: &WalkEntry, what: &'static str, in_what: Vec<&'static str>) -> Self {
        let inside = of.path.strip_prefix(".").ok().filter(|p| !p.as_os_str().is_empty());
        let name = inside.unwrap_or(&of.path).to_owned();
        let path = name.to_string_lossy().into_owned();
        Difference { path, path_hex: hex_unless_text(name.as_os_str()), name, what, in_what }
    }
}

pub(crate) fn diff(args: &DiffArgs) -> ExitCode {
    let ((old, old_path), (new, new_path)) = (split(&args.old), split(&args.new));
    let done = || {
        let open = |image: &PathBuf, path: &OsStr| {
            let fs = open(args.at, image, false)?;
            Ok::<_, Failure>(Side { image: image.clone(), dir: fs.open_dir(path)?, _fs: fs })
        };
        let a = open(&old, &old_path).map_err(|e| (old.clone(), e))?;
        let b = open(&new, &new_path).map_err(|e| (new.clone(), e))?;
        compare(&a, &b, args.times)
    };
    match done() {
        Err((image, e)) => crate::exit::fail("diff", 2, e.message(&image)),
        Ok(found) => {
            let mut out = std::io::stdout().lock();
            let printed = if args.json { json(&found, &mut out) } else { print(&found, &mut out) };
            match printed.and_then(|()| Ok(out.flush()?)) {
                // A reader that has gone has read what it wanted.
                Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(e) => return crate::exit::fail("diff", 2, e.message(&old)),
                Ok(()) => {}
            }
            ExitCode::from(u8::from(!found.is_empty()))
        }
    }
}

struct Side {
    image: PathBuf,
    dir: quire::Dir,
    _fs: FileSystem,
}

/// A failure, and the image that it is about.
type Blamed = (PathBuf, Failure);

impl Side {
    /// Says that a failure is of this image.
    fn blamed<T>(&self, done: Result<T, impl Into<Failure>>) -> Result<T, Blamed> {
        done.map_err(|e| (self.image.clone(), e.into()))
    }
}

fn print(found: &[Difference], out: &mut dyn Write) -> Result<(), Failure> {
    for d in found {
        let (sign, behind) = match d.what {
            "removed" => ("- ", "\n".to_owned()),
            "added" => ("+ ", "\n".to_owned()),
            _ => ("! ", format!(" ({})\n", d.in_what.join(", "))),
        };
        out.write_all(sign.as_bytes())?;
        write_name(out, &d.name, &behind)?;
    }
    Ok(())
}

/// Both trees are walked in the same order, which is that of the names in each directory.
fn compare(a: &Side, b: &Side, times: bool) -> Result<Vec<Difference>, Blamed> {
    let mut left = a.blamed(a.dir.walk("."))?.peekable();
    let mut right = b.blamed(b.dir.walk("."))?.peekable();
    let mut found = Vec::new();
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return Ok(found),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(Ok(x)), Some(Ok(y))) => x.path.components().cmp(y.path.components()),
            _ => std::cmp::Ordering::Equal,
        };
        let (mut x, mut y) = (None, None);
        if order.is_le() {
            x = a.blamed(left.next().transpose())?;
        }
        if order.is_ge() {
            y = b.blamed(right.next().transpose())?;
        }
        match (x, y) {
            (Some(x), Some(y)) => {
                let in_what = differences(a, b, &x, &y.metadata, times)?;
                if !in_what.is_empty() {
                    found.push(Difference::new(&x, "changed", in_what));
                }
            }
            (Some(x), None) => found.push(Difference::new(&x, "removed", Vec::new())),
            (None, Some(y)) => found.push(Difference::new(&y, "added", Vec::new())),
            (None, None) => return Ok(found),
        }
    }
}

fn differences(a: &Side, b: &Side, x: &WalkEntry, y: &Metadata, times: bool) -> Result<Vec<&'static str>, Blamed> {
    let (m, path) = (&x.metadata, &x.path);
    if type_name(m.file_type()) != type_name(y.file_type()) {
        return Ok(vec!["type"]);
    }
    let link = |s: &Side| s.blamed(s.dir.read_link(path));
    let same_data = match m.file_type() {
        quire::FileType::File => m.size == y.size && same_bytes(a, b, path)?,
        quire::FileType::Symlink => link(a)? == link(b)?,
        _ => true,
    };
    let attributes = |s: &Side| -> Result<Vec<_>, Blamed> {
        let names = s.blamed(s.dir.xattrs(path, Links::NoFollow))?;
        names.into_iter().map(|n| Ok((n.clone(), s.blamed(s.dir.xattr(path, Links::NoFollow, &n))?))).collect()
    };
    let checks = [
        ("contents", same_data),
        ("mode", m.permissions() == y.permissions()),
        ("owner", (m.uid, m.gid) == (y.uid, y.gid)),
        ("links", m.is_dir() || m.links == y.links),
        ("device", m.device == y.device),
        ("attributes", attributes(a)? == attributes(b)?),
        ("time", !times || m.modified == y.modified),
    ];
    Ok(checks.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect())
}

fn same_bytes(a: &Side, b: &Side, path: &Path) -> Result<bool, Blamed> {
    let (mut left, mut right) = (a.blamed(a.dir.open_file(path))?, b.blamed(b.dir.open_file(path))?);
    let (mut x, mut y) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
    loop {
        let n = a.blamed(left.read(&mut x).map_err(|e| Failure::image(path, e)))?;
        let m = b.blamed(right.read(&mut y).map_err(|e| Failure::image(path, e)))?;
        if n != m || x[..n] != y[..m] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}
