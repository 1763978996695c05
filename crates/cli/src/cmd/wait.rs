//! `quire wait`: returns when an image is not in use any more.

use super::at::At;
use crate::exit;
use quire_device::{BlockDevice, FileDevice, OpenError, OpenOptions, Region};
use quire_layout::features::incompat;
use quire_layout::superblock::{self, Superblock};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Wait until an image is unmounted and clean.
///
/// For scripts that do not unmount themselves, or that unmount by fusermount3 -u or umount(8), which return while the
/// daemon may still write.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 clean, 1 wrong usage or still in use after --timeout, 32 not clean, or no ext4 image.

Example:
  fusermount3 -u mnt && quire wait disk.img && cp --reflink disk.img copy.img"
)]
pub(crate) struct Args {
    /// The image file or block device
    pub image: PathBuf,
    #[command(flatten)]
    pub at: At,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
}

const NAME: &str = "wait";
/// How long an image that is in use is left alone before it is tried again.
const RETRY: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &Args) -> ExitCode {
    // One beyond the clock's range is none.
    let until = args.timeout.and_then(|s| Instant::now().checked_add(Duration::from_secs(s)));
    let fail = |code, what: String| exit::fail(NAME, code, what);
    loop {
        match open(args) {
            Ok(device) => {
                return match unclean(&device) {
                    None => ExitCode::SUCCESS,
                    Some(why) => fail(exit::FAILURE, format!("{}: {why}", args.image.display())),
                };
            }
            Err(Unopened::Busy(why)) if until.is_some_and(|u| Instant::now() >= u) => {
                return fail(exit::USAGE, why);
            }
            Err(Unopened::Busy(_)) => std::thread::sleep(RETRY),
            Err(Unopened::Failed(why)) => return fail(exit::FAILURE, why),
        }
    }
}

/// Why the image is not open, with its name.
enum Unopened {
    Busy(String),
    Failed(String),
}

impl From<OpenError> for Unopened {
    fn from(e: OpenError) -> Self {
        match e {
            OpenError::Busy { .. } => Unopened::Busy(e.to_string()),
            e => Unopened::Failed(e.to_string()),
        }
    }
}

/// Opens the image as one that nobody else writes.
fn open(args: &Args) -> Result<FileDevice, Unopened> {
    let image = &args.image;
    // A daemon that still writes holds a lease: the time limit is ours, not the host's.
    let probe = rustix::fs::open(image, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    if matches!(probe, Err(Errno::AGAIN)) {
        return Err(OpenError::Busy { path: image.clone(), holder: quire_device::Holder::Unknown }.into());
    }
    let (offset, size) = args.at.range(image).map_err(|e| Unopened::Failed(e.to_string()))?;
    let how = OpenOptions { read_only: true, offset, size, ..OpenOptions::default() };
    Ok(FileDevice::open(image, how)?)
}

/// Why the image is not clean, if it is not.
fn unclean(device: &FileDevice) -> Option<String> {
    let raw = match device.read(superblock::OFFSET, superblock::SIZE, Region::Superblock) {
        Ok(raw) => raw,
        Err(e) => return Some(e.to_string()),
    };
    match Superblock::decode(&raw) {
        Err(e) => Some(e.to_string()),
        Ok(sb) if sb.features().has_incompat(incompat::RECOVER) => {
            Some("not in use, and not clean: run quire recover".to_owned())
        }
        Ok(_) => None,
    }
}
