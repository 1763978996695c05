//! What works on whole images: `quire clone`, `quire check`, `quire diff`, `quire resize`.

use super::failure::{Failure, finish};
use super::list::{json, type_name};
use super::signals;
use super::target::{At, split};
use super::values;
use super::work;
use crate::cmd::control;
use crate::exit;
use quire::{FileSystem, Links, Metadata, WalkEntry};
use rustix::fs::SeekFrom;
use serde::Serialize;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const COPY_BYTES: usize = 1 << 20;

/// Copy an image: sparse, shared with the original where the host can, and clean.
///
/// An image that is dirty is recovered in the copy. An image that Quire has mounted is copied as it is now, once `quire
/// freeze` has made it clean; name the mount with --mount, and Quire freezes and thaws it around the copy.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire clone rootfs.img vm1.img
  quire clone --mount /mnt disk.img snapshot.img")]
pub(crate) struct CloneArgs {
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// The copy; it must not exist
    #[arg(value_name = "COPY")]
    copy: PathBuf,
    /// Where Quire has mounted the image
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
}

pub(crate) fn clone(args: &CloneArgs) -> ExitCode {
    let done = || {
        let control = args.mount.as_ref().map(|dir| quire_mount::Control::open(dir)).transpose();
        let refused = |e: quire_mount::ControlError| Failure::Usage(e.to_string());
        let control = control.map_err(refused)?;
        if let Some((control, _)) = &control {
            control.freeze().map_err(refused)?;
        }
        let copied = copy(&args.image, &args.copy, control.is_none());
        if let Some((control, _)) = &control {
            control.thaw().map_err(refused)?;
        }
        copied
    };
    finish("clone", &args.image, done())
}

fn copy(image: &Path, dest: &Path, lock: bool) -> Result<(), Failure> {
    let of = |path: &Path| {
        let path = path.to_owned();
        move |e: std::io::Error| Failure::host(quire::Error::host(&path, &e))
    };
    let from = File::open(image).map_err(of(image))?;
    // A writer would change it meanwhile.
    if lock && rustix::fs::flock(&from, rustix::fs::FlockOperation::NonBlockingLockShared).is_err() {
        let why = "in use by a writer; if Quire has it mounted, name the mount with --mount";
        return Err(Failure::host(quire::Error::new(quire::ErrorKind::Busy, why).at(image)));
    }
    let dir = dest.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    signals::catch_signals();
    let temporary = tempfile::Builder::new().prefix(".quire-clone").tempfile_in(dir).map_err(of(dest))?;
    let to = temporary.as_file();
    if rustix::fs::ioctl_ficlone(to, &from).is_err() {
        copy_sparse(&from, to).map_err(of(dest))?;
        work::check()?;
    }
    // Dirty: it is recovered. Its errors are those of the image.
    FileSystem::options().read_only(true).open(temporary.path()).map_err(|e| match e.path() {
        Some(p) if p == temporary.path() => Failure::Usage(format!("{}: {}", image.display(), without_path(&e))),
        _ => Failure::host(e),
    })?;
    to.sync_all().map_err(of(dest))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    to.set_permissions(mode).map_err(of(dest))?;
    temporary.persist_noclobber(dest).map_err(|e| of(dest)(e.error))?;
    Ok(())
}

fn without_path(e: &quire::Error) -> String {
    let text = e.to_string();
    text.split_once(": ").map_or(text.clone(), |(_, why)| why.to_owned())
}

fn copy_sparse(from: &File, to: &File) -> std::io::Result<()> {
    let size = rustix::fs::seek(from, SeekFrom::End(0))?;
    to.set_len(size)?;
    let line = work::Line::new("copying");
    let mut buf = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < size {
        at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(at) => at,
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => at, // A device, or a host that cannot tell.
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(at)).unwrap_or(size).min(size);
        while at < end {
            let want = buf.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let n = from.read_at(&mut buf[..want], at)?;
            if n == 0 || work::check().is_err() {
                return Ok(());
            }
            line.bytes(at);
            if buf[..n].iter().any(|b| *b != 0) {
                to.write_all_at(&buf[..n], at)?;
            }
            at += n as u64;
        }
    }
    Ok(())
}

/// Check an image: its log, then all of it by `e2fsck -fn`.
///
/// Nothing is written. A dirty image is recovered in a copy in memory of the host's file system, and that is checked.
/// Exit codes are those of fsck(8): 0, nothing found; 4, errors are left; 8, the check could not be done.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire check rootfs.img")]
pub(crate) struct CheckArgs {
    #[arg(value_name = "IMG")]
    image: PathBuf,
}

pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    let failed = |code: u8, e: &Failure| crate::exit::fail("check", code, e.message(&args.image));
    let dir = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(e) => return failed(8, &Failure::Output(e)),
    };
    let copied = dir.path().join("image");
    if let Err(e) = copy(&args.image, &copied, true) {
        let corrupt = matches!(&e, Failure::Usage(_));
        return failed(if corrupt { 4 } else { 8 }, &e);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut e2fsck = Command::new("e2fsck");
    e2fsck.args(["-fn"]).arg(&copied).env("PATH", format!("{path}:/usr/sbin:/sbin")).stdin(Stdio::null());
    match e2fsck.output() {
        Ok(out) => {
            let said =
                String::from_utf8_lossy(&out.stdout).replace(&*copied.to_string_lossy(), &args.image.to_string_lossy());
            let code = out.status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(8);
            crate::exit::print("check", &said, code, 8)
        }
        Err(e) => failed(8, &Failure::Usage(format!("e2fsck: {e} (is e2fsprogs installed?)"))),
    }
}

/// Compare the trees of two images.
///
/// Prints what only one has (`-`, `+`) and what differs, with the attributes that do. Exit codes are those of diff(1):
/// 0, no difference; 1, some; 2, trouble.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire diff old.img new.img
  quire diff old.img:/etc new.img:/etc --json")]
pub(crate) struct DiffArgs {
    #[arg(value_name = "IMG1[:DIR]")]
    old: String,
    #[arg(value_name = "IMG2[:DIR]")]
    new: String,
    /// Times count, too
    #[arg(long)]
    times: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Difference {
    path: String,
    /// "removed", "added" or "changed".
    what: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    in_what: Vec<&'static str>,
}

pub(crate) fn diff(args: &DiffArgs) -> ExitCode {
    let ((old, old_path), (new, new_path)) = (split(&args.old), split(&args.new));
    let done = || -> Result<Vec<Difference>, (PathBuf, Failure)> {
        let open = |image: &PathBuf, path: &str| {
            let fs = At::default().open(image, false)?;
            Ok::<_, Failure>(Side { dir: fs.open_dir(path)?, _fs: fs })
        };
        let a = open(&old, &old_path).map_err(|e| (old.clone(), e))?;
        let b = open(&new, &new_path).map_err(|e| (new.clone(), e))?;
        compare(&a, &b, args.times).map_err(|e| (old.clone(), e))
    };
    match done() {
        Err((image, e)) => crate::exit::fail("diff", 2, e.message(&image)),
        Ok(found) => {
            let mut out = std::io::stdout().lock();
            let printed = if args.json { json(&found, &mut out) } else { print(&found, &mut out) };
            if let Err(e) = printed {
                return crate::exit::fail("diff", 2, e.message(&old));
            }
            ExitCode::from(u8::from(!found.is_empty()))
        }
    }
}

struct Side {
    dir: quire::Dir,
    _fs: FileSystem,
}

fn print(found: &[Difference], out: &mut dyn Write) -> Result<(), Failure> {
    for d in found {
        match d.what {
            "removed" => writeln!(out, "- {}", d.path)?,
            "added" => writeln!(out, "+ {}", d.path)?,
            _ => writeln!(out, "! {} ({})", d.path, d.in_what.join(", "))?,
        }
    }
    Ok(())
}

/// Both trees are walked in the same order, which is that of the names in each directory.
fn compare(a: &Side, b: &Side, times: bool) -> Result<Vec<Difference>, Failure> {
    let (mut left, mut right) = (a.dir.walk(".")?.peekable(), b.dir.walk(".")?.peekable());
    let mut found = Vec::new();
    let path = |e: &WalkEntry| {
        let inside = e.path.strip_prefix(".").ok().filter(|p| !p.as_os_str().is_empty());
        inside.unwrap_or(&e.path).to_string_lossy().into_owned()
    };
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
            x = left.next().transpose()?;
        }
        if order.is_ge() {
            y = right.next().transpose()?;
        }
        match (x, y) {
            (Some(x), Some(y)) => {
                let in_what = differences(a, b, &x, &y.metadata, times)?;
                if !in_what.is_empty() {
                    found.push(Difference { path: path(&x), what: "changed", in_what });
                }
            }
            (Some(x), None) => found.push(Difference { path: path(&x), what: "removed", in_what: Vec::new() }),
            (None, Some(y)) => found.push(Difference { path: path(&y), what: "added", in_what: Vec::new() }),
            (None, None) => return Ok(found),
        }
    }
}

fn differences(a: &Side, b: &Side, x: &WalkEntry, y: &Metadata, times: bool) -> Result<Vec<&'static str>, Failure> {
    let (m, path) = (&x.metadata, &x.path);
    if type_name(m.file_type()) != type_name(y.file_type()) {
        return Ok(vec!["type"]);
    }
    let same_data = match m.file_type() {
        quire::FileType::File => m.size == y.size && same_bytes(a.dir.open_file(path)?, b.dir.open_file(path)?, path)?,
        quire::FileType::Symlink => a.dir.read_link(path)? == b.dir.read_link(path)?,
        _ => true,
    };
    let attributes = |s: &Side| -> Result<Vec<_>, Failure> {
        let names = s.dir.xattrs(path, Links::NoFollow)?;
        names.into_iter().map(|n| Ok((n.clone(), s.dir.xattr(path, Links::NoFollow, &n)?))).collect()
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

fn same_bytes(mut a: quire::File, mut b: quire::File, path: &Path) -> Result<bool, Failure> {
    let (mut x, mut y) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
    loop {
        let n = a.read(&mut x).map_err(|e| Failure::image(path, e))?;
        let m = b.read(&mut y).map_err(|e| Failure::image(path, e))?;
        if n != m || x[..n] != y[..m] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

/// Make an image larger or smaller, by `resize2fs`; or a mounted file system larger, while it is used.
///
/// A mount is named by a directory of it. Its image file grows with it; a disk must be large enough already. A crash in
/// the middle leaves a file system that has grown by a part. Root may ask for it, and who mounted as a user.
///
/// A dirty image is recovered first. An image file is resized itself, too; what lies behind a smaller file system is
/// cut off. `resize2fs` does not survive a kill while it moves blocks: the work is done on a copy (shared with the
/// original where the host can), which takes the image's name when it is complete.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 done, 1 an image was not resized, 2 wrong usage, 32 a mount was not resized.

Example:
  quire resize rootfs.img 4G
  quire resize rootfs.img min
  quire resize /mnt 8G")]
pub(crate) struct ResizeArgs {
    /// An image, or a directory of a mount
    #[arg(value_name = "IMG|DIR")]
    image: PathBuf,
    /// Bytes, with K, M, G or T; or min, for an image
    #[arg(value_name = "SIZE", value_parser = new_size)]
    size: NewSize,
}

#[derive(Clone, Copy)]
enum NewSize {
    Min,
    Bytes(u64),
}

fn new_size(text: &str) -> Result<NewSize, String> {
    if text == "min" { Ok(NewSize::Min) } else { values::size(text).map(NewSize::Bytes) }
}

pub(crate) fn resize(args: &ResizeArgs) -> ExitCode {
    if args.image.is_dir() {
        let NewSize::Bytes(bytes) = args.size else {
            let why = format_args!("{}: a mounted volume can only grow", args.image.display());
            return exit::fail("resize", exit::FAILURE, why);
        };
        return control::resize(&args.image, bytes);
    }
    let failed = |e: std::io::Error| Failure::host(quire::Error::host(&args.image, &e));
    let done = || {
        let dir = args.image.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let work = tempfile::Builder::new().prefix(".quire-resize").tempdir_in(dir).map_err(failed)?;
        let copied = work.path().join("image");
        copy(&args.image, &copied, true)?;
        let file = File::options().write(true).open(&copied).map_err(failed)?;
        if let NewSize::Bytes(n) = args.size
            && n > file.metadata().map_err(failed)?.len()
        {
            file.set_len(n).map_err(failed)?;
        }
        // resize2fs asks for a check just before.
        tool("e2fsck", &["-f", "-p"], &copied, &[])?;
        match args.size {
            NewSize::Min => tool("resize2fs", &["-M"], &copied, &[])?,
            NewSize::Bytes(n) => tool("resize2fs", &[], &copied, &[&format!("{}K", n >> 10)])?,
        }
        let blocks = FileSystem::options().read_only(true).open(&copied)?.info();
        file.set_len(blocks.blocks * u64::from(blocks.block_size)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        let permissions = std::fs::metadata(&args.image).map_err(failed)?.permissions();
        file.set_permissions(permissions).map_err(failed)?;
        std::fs::rename(&copied, &args.image).map_err(failed)
    };
    finish("resize", &args.image, done())
}

/// A program of e2fsprogs that must succeed; for `e2fsck`, 1 is success, too.
fn tool(name: &str, options: &[&str], image: &Path, behind: &[&str]) -> Result<(), Failure> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.args(options).arg(image).args(behind).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let out = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let out = out.map_err(|e| Failure::Usage(format!("{name}: {e} (is e2fsprogs installed?)")))?;
    match out.status.code() {
        Some(0 | 1) if name == "e2fsck" => Ok(()),
        Some(0) => Ok(()),
        _ => {
            let said =
                String::from_utf8_lossy(if out.stderr.is_empty() { &out.stdout } else { &out.stderr }).into_owned();
            let why = format!("{name}: {}", said.trim().replace('\n', "; "));
            Err(Failure::host(quire::Error::new(quire::ErrorKind::Tool, why)))
        }
    }
}
