//! What works on whole images: `quire clone`, `quire check`.

use super::failure::{Failure, finish};
use super::host_file::{identity, image_metadata};
use super::signals;
use super::work;
use crate::exit;
use quire::{Error, ErrorKind, FileSystem, NewFile};
use quire_device::kernel_writer;
use quire_layout::features::incompat;
use quire_layout::superblock::{self, Superblock};
use quire_mount::{About, Control, ControlError};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const COPY_BYTES: usize = 1 << 20;

/// Copy an image: sparse, shared with the original where the host can, and clean.
///
/// An image that is dirty is recovered in the copy. An image that Quire has mounted is copied with --mount, which names
/// the mount: Quire freezes it around the copy. One that is frozen already is refused; cp(1) copies its image. The copy
/// has the original's mode, without what the umask takes.
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
    // Before the freeze: one that is interrupted must be thawed.
    signals::catch_signals();
    finish("clone", &args.image, clone_image(args))
}

fn clone_image(args: &CloneArgs) -> Result<(), Failure> {
    let control = args.mount.as_ref().map(|dir| mount_of(dir, &args.image)).transpose()?;
    let mode = image_metadata(&args.image)?.mode();
    let new = NewFile::unless_exists(&args.copy, mode).map_err(Failure::host)?;
    let refused = |e: ControlError| Failure::Failed(e.to_string());
    if let Some(control) = &control {
        control.freeze().map_err(refused)?;
    }
    let hint = control.is_none().then_some("if Quire has it mounted, name the mount with --mount");
    let copied = copy(&args.image, &args.copy, &new, hint);
    if let Some(control) = &control {
        control.thaw().map_err(refused)?;
    }
    copied?;
    Ok(new.finish_durably()?)
}

/// The mount in `dir`, which must be of this image: a freeze of another would leave the image as it is being written.
fn mount_of(dir: &Path, image: &Path) -> Result<Control, Failure> {
    let (control, about) = Control::open(dir).map_err(|e| Failure::Failed(e.to_string()))?;
    let ours = identity(image).map_err(|e| Failure::host(Error::host(image, &e)))?;
    if served(&about) != Some(ours) {
        let why = format!("not mounted at {}, which is a mount of {}", dir.display(), about.image.display());
        return Err(Failure::host(Error::new(ErrorKind::InvalidInput, why).at(image)));
    }
    Ok(control)
}

/// What a daemon serves. One of an older version tells only a name.
fn served(about: &About) -> Option<quire_mount::FileIdentity> {
    about.file.or_else(|| identity(&about.image).ok())
}

/// Copies an image into a new file, and recovers it there if it is dirty. `shown` is what users call the copy.
pub(super) fn copy(image: &Path, shown: &Path, new: &NewFile, lock: Option<&str>) -> Result<(), Failure> {
    let of = |path: &Path| {
        let path = path.to_owned();
        move |e: std::io::Error| Failure::host(Error::host(&path, &e))
    };
    let from = File::open(image).map_err(of(image))?;
    if let Some(hint) = lock {
        lock_out_writers(image, &from, hint)?;
    }
    let to = new.file();
    if rustix::fs::ioctl_ficlone(to, &from).is_err() {
        copy_sparse(&from, to).map_err(of(shown))?;
        work::check()?;
    }
    // Dirty: it is recovered. Its errors are those of the image.
    let at = new.temporary_path();
    let recovered = FileSystem::options().read_only(true).open(at);
    recovered.map(drop).map_err(|e| Failure::host(about_image(&e, at, image)))
}

/// A writer would change an image while it is read. The kernel takes no lock: a mount of its that begins later is not
/// kept off a file.
///
/// # Errors
/// Busy.
fn lock_out_writers(image: &Path, file: &File, hint: &str) -> Result<(), Failure> {
    let busy = |who: &str, hint: &str| {
        Failure::host(Error::new(ErrorKind::Busy, format!("in use by {who}; {hint}")).at(image))
    };
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockShared).map_err(|_| busy("a writer", hint))?;
    match kernel_writer(image).map_err(|e| Failure::host(Error::host(image, &e)))? {
        Some(holder) => Err(busy(&holder.to_string(), "unmount it, or mount it read-only")),
        None => Ok(()),
    }
}

/// An error of a copy, said of the image that it is of.
pub(super) fn about_image(e: &Error, copy: &Path, image: &Path) -> Error {
    let (text, copy, image_name) = (e.to_string(), copy.to_string_lossy(), image.to_string_lossy());
    let why = text.strip_prefix(&format!("{copy}: ")).unwrap_or(&text).replace(&*copy, &image_name);
    Error::new(e.kind(), why).at(image)
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
/// Nothing is written to the image. A clean one is read where it is. A dirty one is copied into the directory for
/// temporary files ($TMPDIR, or /tmp), which must have room for its data. It is recovered there, and the copy is
/// checked.
/// Exit codes are those of fsck(8): 0, nothing found; 4, errors are left; 8, the check could not be done; 16, wrong
/// usage.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire check rootfs.img")]
pub(crate) struct CheckArgs {
    #[arg(value_name = "IMG")]
    image: PathBuf,
}

pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    signals::catch_signals();
    let failed = |e: &Failure| {
        let code = match e {
            e if e.is_interrupted() => signals::INTERRUPTED,
            Failure::Host(e) if e.kind() == ErrorKind::Corrupt => exit::fsck::UNCORRECTED,
            _ => exit::fsck::OPERATIONAL,
        };
        exit::fail("check", code, e.message(&args.image))
    };
    match check_image(&args.image) {
        Ok((said, code)) => exit::print("check", &said, code, exit::fsck::OPERATIONAL),
        Err(e) => failed(&e),
    }
}

const CHECK_HINT: &str = "unmount it, or check a copy (quire clone --mount DIR IMG COPY)";

/// What `e2fsck` says of an image, and its exit code.
fn check_image(image: &Path) -> Result<(String, u8), Failure> {
    image_metadata(image)?;
    let file = File::open(image).map_err(|e| Failure::host(Error::host(image, &e)))?;
    lock_out_writers(image, &file, CHECK_HINT)?;
    // In a name e2fsck takes what is behind `?` as options, and `LABEL=` and `UUID=` as other devices.
    let is_plain = !image.as_os_str().as_bytes().iter().any(|b| b"?=".contains(b));
    if !is_plain || !is_clean(&file) {
        return check_copy(image);
    }
    // What Quire finds comes first, as in a copy. The open image stays locked.
    let fs = match FileSystem::options().read_only(true).open(image) {
        // A device that the kernel has mounted read-only.
        Err(e) if e.kind() == ErrorKind::Busy => return check_copy(image),
        opened => opened.map_err(Failure::host)?,
    };
    let said = run_e2fsck(image);
    drop(fs);
    said
}

/// True if nothing is left to be recovered. What cannot be told is told by the open of a copy.
fn is_clean(file: &File) -> bool {
    let mut raw = vec![0; superblock::SIZE];
    let is_read = file.read_exact_at(&mut raw, superblock::OFFSET).is_ok();
    let dirty = incompat::RECOVER | incompat::QUIRE_LOG;
    is_read && Superblock::decode(&raw).is_ok_and(|sb| !sb.features().has_incompat(dirty))
}

/// What `e2fsck` says of a copy that is recovered, and its exit code.
fn check_copy(image: &Path) -> Result<(String, u8), Failure> {
    let dir = tempfile::tempdir().map_err(|e| Failure::host(Error::host(std::env::temp_dir(), &e)))?;
    let new = NewFile::at(dir.path().join("image"), 0o600).map_err(Failure::host)?;
    copy(image, dir.path(), &new, Some(CHECK_HINT))?;
    let copied = new.temporary_path();
    let (said, code) = run_e2fsck(copied)?;
    Ok((said.replace(&*copied.to_string_lossy(), &image.to_string_lossy()), code))
}

fn run_e2fsck(image: &Path) -> Result<(String, u8), Failure> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut e2fsck = Command::new("e2fsck");
    e2fsck.args(["-fn", "--"]).arg(image).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let out = work::output("e2fsck", &mut e2fsck)?;
    let code = out.status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(exit::fsck::OPERATIONAL);
    // Why it could not check is said there; else only its version is.
    let told = if code & exit::fsck::OPERATIONAL == 0 { out.stdout } else { [out.stdout, out.stderr].concat() };
    Ok((String::from_utf8_lossy(&told).into_owned(), code))
}
