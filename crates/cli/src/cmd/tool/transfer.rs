//! `quire create`, `quire import`, `quire export`: whole trees.

use super::archive_output::ArchiveOutput;
use super::failure::{Failure, finish};
use super::host_file::{Destination, Stream, check_not_image, check_regular};
use super::signals::catch_signals;
use super::target::{open, open_at_time, split};
use super::values;
use super::work::{Counted, Line};
use crate::cmd::at::At;
use crate::text::printable_name;
use quire::archive::{
    BuildOptions, ExportOptions, ImportOptions, Size, Source, build, export_dir_with, export_tar_with, import,
};
use quire::{CreateOptions, FileSystem, Timestamp};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of the smallest image that `mke2fs` gives a journal of blocks of 4 KiB.
const SMALL_BYTES: u64 = 8 << 20;

/// What an import changes on the way.
#[derive(clap::Args, Clone)]
struct Rewrite {
    /// All objects get this owner and group, as numbers
    #[arg(long, value_name = "UID:GID", value_parser = values::owner)]
    owner: Option<(Option<u32>, Option<u32>)>,
    /// Objects of one user become another's; may be given again
    #[arg(long, value_name = "FROM:TO", value_parser = pair)]
    map_user: Vec<(u32, u32)>,
    /// Objects of one group become another's; may be given again
    #[arg(long, value_name = "FROM:TO", value_parser = pair)]
    map_group: Vec<(u32, u32)>,
    /// Permissions that no object keeps, octal: 0022, 06000
    #[arg(long, value_name = "BITS", value_parser = octal)]
    remove_mode: Option<u32>,
    /// Names that begin with .wh. in a tar hide what is there, as in layers of OCI images
    #[arg(long)]
    whiteouts: bool,
    /// The image to take from an OCI layout: the one that has this name (org.opencontainers.image.ref.name)
    #[arg(long, value_name = "NAME")]
    reference: Option<String>,
    /// The time of the image and of what is made, and the latest of objects, in seconds since 1970; empty is as not set
    #[arg(long, env = "SOURCE_DATE_EPOCH", value_name = "SECONDS", value_parser = epoch)]
    source_date_epoch: Option<Epoch>,
}

/// Seconds since 1970; `None`: the text is empty, as in the environment of a build that sets no time.
#[derive(Clone, Copy)]
struct Epoch(Option<u32>);

fn epoch(text: &str) -> Result<Epoch, std::num::ParseIntError> {
    if text.is_empty() { Ok(Epoch(None)) } else { text.parse().map(|secs| Epoch(Some(secs))) }
}

fn pair(text: &str) -> Result<(u32, u32), String> {
    let expected = "FROM:TO as numbers is expected";
    let (from, to) = text.split_once(':').ok_or(expected)?;
    Ok((from.parse().map_err(|_| expected)?, values::id(to)?))
}

fn octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).map_err(|e| e.to_string())
}

impl Rewrite {
    fn time(&self) -> Option<Timestamp> {
        let secs = self.source_date_epoch.and_then(|epoch| epoch.0)?;
        Some(Timestamp::new(secs.into(), 0))
    }

    fn options(&self) -> ImportOptions {
        let (uid, gid) = self.owner.unwrap_or_default();
        let mut options = ImportOptions::new().owner(uid, gid).whiteouts(self.whiteouts);
        options = self.map_user.iter().fold(options, |o, (from, to)| o.map_user(*from, *to));
        options = self.map_group.iter().fold(options, |o, (from, to)| o.map_group(*from, *to));
        options = self.remove_mode.map_or(options.clone(), |bits| options.remove_permissions(bits));
        options = self.time().map_or(options.clone(), |t| options.latest_time(t));
        self.reference.as_ref().map_or(options.clone(), |name| options.reference(name))
    }
}

/// Make a new image: empty, or from a directory, a tar archive or an OCI layout.
///
/// `mke2fs` makes the format; no root, no mount and no FUSE are needed. The image gets its name when it is complete, so
/// that a build that fails or is killed leaves nothing. The same input, --uuid and --source-date-epoch give the same
/// bytes, on any machine. An image that is replaced must not be in use. In a source directory the image itself is left
/// out.
///
/// The image has a journal, unless -O ^has_journal is given: without one, changes of the image are not whole after a
/// crash. A journal needs 2 MiB. An image below 8 MiB has blocks of 1 KiB, others of 4 KiB.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire create rootfs.img --from rootfs.tar.zst --size min+20%
  quire create rootfs.img --from rootfs/ --owner 0:0 --size 2G --label root
  mmdebstrap --variant=apt bookworm - | quire create rootfs.img --from - --size min+50%
  quire create app.img --from oci-layout/ --uuid 6d0f... --source-date-epoch 1700000000")]
pub(crate) struct CreateArgs {
    /// The image file; what has the name is replaced
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// Bytes, with K, M, G or T; or what the tree needs: min, min+20%
    #[arg(long, value_name = "SIZE", default_value = "min+20%", value_parser = size)]
    size: Size,
    /// A directory, a tar archive (also .gz, .zst; - is standard input) or an OCI layout
    #[arg(long, value_name = "SOURCE")]
    from: Option<PathBuf>,
    /// The volume's name
    #[arg(short = 'L', long, value_parser = values::label)]
    label: Option<String>,
    /// The UUID; random if not given
    #[arg(short = 'U', long, value_parser = values::uuid)]
    uuid: Option<[u8; 16]>,
    /// Features, as `mke2fs -O` has them: ^has_journal
    #[arg(short = 'O', long, value_name = "FEATURES", value_delimiter = ',')]
    features: Vec<String>,
    /// Inodes, at least
    #[arg(short = 'N', long)]
    inodes: Option<u64>,
    #[command(flatten)]
    rewrite: Rewrite,
}

fn size(text: &str) -> Result<Size, String> {
    if text.starts_with("min") {
        return Size::from_min(text).ok_or_else(|| format!("{text:?}: min+20% is expected"));
    }
    values::size(text).map(Size::Bytes)
}

/// Options that tell a user of attributes that stay out, as tar does.
fn telling(command: &'static str, line: &Line, options: ImportOptions) -> ImportOptions {
    let shown = line.clone();
    options.on_left_out(move |name, path| {
        let (name, path) = (printable_name(name), printable_name(path));
        shown.print_above(&format!("quire: {command}: {path}: attribute {name} ignored: ext4 does not store it there"));
    })
}

pub(crate) fn create(args: &CreateArgs) -> ExitCode {
    let done = || {
        check_regular(&args.image, "mkfs.ext4 formats a device")?;
        let mut create = args.features.iter().fold(CreateOptions::new(), |c, f| c.feature(f));
        create = args.label.as_ref().map_or(create.clone(), |l| create.label(l));
        create = args.uuid.map_or(create.clone(), |u| create.uuid(u));
        create = args.rewrite.time().map_or(create.clone(), |t| create.time(t));
        create = args.inodes.map_or(create.clone(), |n| create.inodes(n));
        if let Size::Bytes(bytes) = args.size {
            // As `mke2fs` by itself: an image that is too small for a journal of large blocks has small ones.
            create = create.block_size(if bytes < SMALL_BYTES { 1024 } else { 4096 });
        }
        catch_signals();
        let source = args.from.as_deref().map(source).transpose()?;
        let line = Line::new("creating");
        let import = telling("create", &line, line.watch(args.rewrite.options()));
        let options = BuildOptions { size: args.size, create, import };
        // The image is not there yet: a path of an error is one of the source, or of the host.
        let built = build(&args.image, source, &options).map(drop);
        built.map_err(|e| match args.from.as_deref().map(|from| of_source(e.clone(), from)) {
            Some(named @ Failure::Host(_)) => named,
            _ => Failure::host(e),
        })
    };
    finish("create", &args.image, done())
}

/// Put a tree into an image: a directory, a tar archive or an OCI layout.
///
/// What has the same name is replaced, directories are merged. All of the tree is there, or nothing: an import that
/// does not fit into one transaction is refused, unless --in-steps permits to write it piece by piece. An image without
/// a journal gets it piece by piece, too.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire import rootfs.img:/opt app.tar.gz --owner 0:0
  tar c . | quire import rootfs.img -")]
pub(crate) struct ImportArgs {
    /// A directory of the image, which exists
    #[arg(value_name = "IMG[:DIR]")]
    target: OsString,
    /// A directory, a tar archive (- is standard input) or an OCI layout
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// Piece by piece, each whole: a kill leaves a part of the tree
    #[arg(long)]
    in_steps: bool,
    #[command(flatten)]
    rewrite: Rewrite,
    #[command(flatten)]
    at: At,
}

pub(crate) fn import_tree(args: &ImportArgs) -> ExitCode {
    let (image, path) = split(&args.target);
    let done = || {
        let source = source(&args.source)?;
        let fs = open_at_time(args.at, &image, args.rewrite.time())?;
        catch_signals();
        let line = Line::new("importing");
        let options = telling("import", &line, line.watch(args.rewrite.options())).leave_out(&image);
        if args.in_steps || !fs.info().journal {
            import(&fs, &path, source, &options).map_err(|e| of_source(e, &args.source))?;
        } else {
            fs.atomically(|fs| import(fs, &path, source, &options)).map_err(|e| of_source(e, &args.source))?;
        }
        Ok(fs.close()?)
    };
    finish("import", &image, done())
}

/// Where a tree comes from. A pipe is read once, and not waited for after a signal.
fn source(path: &Path) -> Result<Source, Failure> {
    let host = |e: std::io::Error| Failure::host(quire::Error::host(path, &e));
    if path.as_os_str() == "-" {
        return Ok(Source::Stream(Box::new(Stream::stdin().map_err(host)?)));
    }
    match Source::detect(path).map_err(Failure::host)? {
        Source::Tar(_) if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) => {
            Ok(Source::Stream(Box::new(Stream::from_path(path).map_err(host)?)))
        }
        source => Ok(source),
    }
}

/// What a stream has told without a path is about what it was read from.
fn of_source(e: quire::Error, source: &Path) -> Failure {
    if e.path().is_some() || !(e.is_of_host() || e.kind() == quire::ErrorKind::BadInput) {
        return hint(e);
    }
    let path = if source.as_os_str() == "-" { Path::new("standard input") } else { source };
    Failure::host(e.at(path))
}

fn hint(e: quire::Error) -> Failure {
    if e.kind() == quire::ErrorKind::BatchTooLarge {
        return Failure::Failed(format!("{e}; nothing was changed, and --in-steps imports it piece by piece"));
    }
    e.into()
}

/// Write a tree of an image to a tar archive or into a directory.
///
/// A device or a FIFO that has the archive's name is written to; a file is replaced when the new one is complete. Tar
/// has no sockets: each is named on standard error, and the archive is made without it.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire export rootfs.img rootfs.tar
  quire export rootfs.img:/etc - | tar tv
  quire export rootfs.img:/srv srv/               # a directory: it must be new, or empty")]
pub(crate) struct ExportArgs {
    #[arg(value_name = "IMG[:DIR]")]
    target: OsString,
    /// A tar archive (- is standard output), or with / at the end, or if it exists, a directory
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    #[command(flatten)]
    at: At,
}

pub(crate) fn export(args: &ExportArgs) -> ExitCode {
    let (image, path) = split(&args.target);
    let done = || {
        let fs = open(args.at, &image, false)?;
        let is_dir = args.dest.is_dir() || args.dest.as_os_str().as_encoded_bytes().ends_with(b"/");
        if is_dir {
            catch_signals();
            let line = Line::new("exporting");
            return Ok(export_dir_with(&fs, &path, &args.dest, &line.watch_export())?);
        }
        if args.dest.as_os_str() == "-" {
            catch_signals();
            // A reader that goes has no whole archive: that is no success, as it is where lines are printed.
            let failed = |e: std::io::Error| Failure::host(quire::Error::host("standard output", &e));
            return archive(&fs, args, Stream::stdout()?, failed);
        }
        check_not_image(&fs, &args.dest)?;
        // An open of a FIFO waits for its reader: a signal ends the process there.
        let dest = Destination::open(&args.dest, 0o666)?;
        catch_signals();
        let failed = |e: std::io::Error| Failure::host(quire::Error::host(&args.dest, &e));
        match dest {
            Destination::Special(stream) => archive(&fs, args, stream, failed),
            Destination::File(new) => {
                archive(&fs, args, Stream::file(new.file()).map_err(failed)?, failed)?;
                Ok(new.finish()?)
            }
        }
    };
    finish("export", &image, done())
}

fn archive(
    fs: &FileSystem,
    args: &ExportArgs,
    out: Stream,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Result<(), Failure> {
    let (image, path) = split(&args.target);
    let line = Line::new("exporting");
    let shown = line.clone();
    let options = ExportOptions::new().on_left_out(move |socket| {
        let (image, socket) = (printable_name(&image), printable_name(socket));
        shown.print_above(&format!("quire: export: {image}:{socket}: socket ignored"));
    });
    let mut out = ArchiveOutput::new(Counted { out, line: &line, bytes: 0 });
    let exported = export_tar_with(fs, path, &mut out, &options).map_err(|e| match e.path() {
        None if e.is_of_host() => failed(std::io::Error::from_raw_os_error(e.errno())),
        _ => e.into(),
    });
    let done = exported.and_then(|()| out.finish().map_err(failed));
    if done.is_err() {
        // The failure before it is the one to tell.
        out.flush().ok();
        out.get_ref().out.take_back(out.surplus()).ok();
    }
    done
}
