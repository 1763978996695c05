//! `quire resize`: an image made larger or smaller by `resize2fs`, or a mount made larger.
//!
//! *Guarantees* I3: the image keeps its name, and what it was, until the resized copy is complete. M3: it is locked as
//! long, so that nobody writes to what is about to go.

use super::failure::{Failure, finish};
use super::host_file::{check_regular, copy_owner_and_xattrs};
use super::values;
use super::whole::{about_image, copy};
use super::{signals, work};
use crate::cmd::control;
use crate::exit;
use quire::{Error, ErrorKind, FileSystem, NewFile};
use quire_mount::Control;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

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
    // Root may not look into a user's mount.
    if Control::is_mount_point(&args.image) || args.image.is_dir() {
        let NewSize::Bytes(bytes) = args.size else {
            let why = format_args!("{}: a mounted volume can only grow", args.image.display());
            return exit::fail("resize", exit::FAILURE, why);
        };
        return control::resize(&args.image, bytes);
    }
    signals::catch_signals();
    finish("resize", &args.image, resize_image(&args.image, args.size))
}

fn resize_image(image: &Path, size: NewSize) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::host(Error::host(image, &e));
    check_regular(image, "resize2fs resizes a device, and `quire resize DIR` what Quire has mounted")?;
    let links = std::fs::metadata(image).map_err(failed)?.nlink();
    if links > 1 {
        let why = format!("has {links} names (hard links), and only one would get the resized image");
        return Err(Failure::host(Error::new(ErrorKind::InvalidInput, why).at(image)));
    }
    let new = NewFile::image(image, 0o600).map_err(Failure::host)?;
    copy_owner_and_xattrs(image, new.file()).map_err(failed)?;
    // It is locked already.
    copy(image, image, &new, None)?;
    let (file, at) = (new.file(), new.temporary_path());
    if let NewSize::Bytes(n) = size
        && n > file.metadata().map_err(failed)?.len()
    {
        file.set_len(n).map_err(failed)?;
    }
    // resize2fs asks for a check just before.
    tool("e2fsck", &["-f", "-p"], (at, image), &[])?;
    match size {
        NewSize::Min => tool("resize2fs", &["-M"], (at, image), &[])?,
        NewSize::Bytes(n) => tool("resize2fs", &[], (at, image), &[&format!("{}K", n >> 10)])?,
    }
    let opened = FileSystem::options().read_only(true).open(at);
    let info = opened.map_err(|e| Failure::host(about_image(&e, at, image)))?.info();
    file.set_len(info.blocks * u64::from(info.block_size)).map_err(failed)?;
    work::check()?;
    Ok(new.finish_durably()?)
}

/// A program of e2fsprogs that must succeed; for `e2fsck`, 1 is success, too.
///
/// It runs where the copy is and gets its bare name: in a path these programs take what is behind `?` as options.
fn tool(name: &str, options: &[&str], (copy, image): (&Path, &Path), behind: &[&str]) -> Result<(), Failure> {
    let path = std::env::var("PATH").unwrap_or_default();
    let dir = copy.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let bare = copy.file_name().unwrap_or(copy.as_os_str());
    let mut command = Command::new(name);
    command.args(options).arg(bare).args(behind).env("PATH", format!("{path}:/usr/sbin:/sbin")).current_dir(dir);
    let out = work::output(name, command.env("LC_ALL", "C"))?;
    match out.status.code() {
        Some(0 | 1) if name == "e2fsck" => Ok(()),
        Some(0) => Ok(()),
        _ => {
            let said =
                String::from_utf8_lossy(if out.stderr.is_empty() { &out.stdout } else { &out.stderr }).into_owned();
            let said = said.replace(&*bare.to_string_lossy(), &image.to_string_lossy());
            let why = format!("{name}: {}", said.trim().replace('\n', "; "));
            Err(Failure::host(Error::new(ErrorKind::Tool, why).at(image)))
        }
    }
}
