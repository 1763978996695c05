//! `quire recover`: replays the journal and finishes what was interrupted.

use crate::exit::{self, fsck};
use crate::progress::Bar;
use crate::undo::UndoDevice;
use quire_device::nvram::{Nvram, NvramMap, NvramOptions};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Clock, FileDevice, OpenOptions, SystemClock};
use quire_fs::recovery::{self, FoundJournal, OnDamage, find_journal};
use quire_fs::{Devices, Options, Volume};
use quire_journal::recover::Plan;
use quire_layout::features::{incompat, ro_compat};
use quire_layout::superblock::{Superblock, state};
use quire_layout::{Ino, Tid};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Replay an image's journal, and free what deleted or truncated files have left.
///
/// `quire mount` does this by itself; this is for images that are to be copied, checked or mounted by others.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes as fsck(8): 0 nothing to do, 1 recovered, 4 left as it is or still damaged (run e2fsck), 8 error,
16 wrong usage.

Examples:
  quire recover disk.img
  quire recover --dry-run disk.img
  quire recover --undo before.e2undo disk.img; e2undo before.e2undo disk.img
  quire recover --nvram /dev/dax0.0 disk.img"
)]
pub(crate) struct Args {
    /// The image file or block device
    image: PathBuf,
    /// Say what would be done, and change nothing
    #[arg(long, conflicts_with = "undo")]
    dry_run: bool,
    /// Save what is overwritten in this new file; e2undo takes the recovery back with it
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
    /// Only replay the journal, as e2fsck -E journal_only does
    #[arg(long)]
    journal_only: bool,
    /// The journal's device, if it is not in the image
    #[arg(long, value_name = "PATH")]
    journal_path: Option<PathBuf>,
    /// The memory that holds the journal, if it is in NVRAM
    #[arg(long, value_name = "PATH")]
    nvram: Option<PathBuf>,
    /// The NVRAM with the journal is lost: go on without it. Everything that was not written home since the last
    /// checkpoint is given up, and the file system needs e2fsck -f. With --nvram, what that memory holds is given up,
    /// too
    #[arg(long, conflicts_with_all = ["dry_run", "undo"])]
    discard_nvram: bool,
    /// Where the file system starts in the image, in bytes
    #[arg(long, default_value_t = 0)]
    offset: u64,
}

const NAME: &str = "recover";

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Err(e) = crate::log::to_stderr("warn") {
        return exit::fail(NAME, fsck::OPERATIONAL, format_args!("cannot start the log: {e}"));
    }
    let recovered = recover(args);
    crate::log::flush();
    match recovered {
        Ok(outcome) => {
            println!("{}: {}", args.image.display(), outcome.text);
            outcome.code.into()
        }
        Err(what) => exit::fail(NAME, fsck::OPERATIONAL, what),
    }
}

struct Outcome {
    text: String,
    code: u8,
}

fn outcome(code: u8, text: impl Into<String>) -> Result<Outcome, String> {
    Ok(Outcome { text: text.into(), code })
}

/// What an image needs.
struct Needs {
    sb: Superblock,
    journal: Option<(FoundJournal, Plan)>,
}

impl Needs {
    fn of(devices: &Devices, image: &Path) -> Result<Self, String> {
        let named = |e: quire_fs::Error| format!("{}: {e}", image.display());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let sb = quire_fs::first_superblock(devices, &clock).map_err(named)?;
        let found = find_journal(devices, &clock, &sb).map_err(named)?;
        let bar = Bar::new();
        let journal = match found {
            Some(found) if found.needed => {
                let plan = recovery::scan(&found.log, &sb, &mut |p| bar.show(p)).map_err(named)?;
                Some((found, plan))
            }
            _ => None,
        };
        Ok(Needs { sb, journal })
    }

    /// Files that wait for being freed or truncated.
    fn has_orphans(&self) -> bool {
        let f = self.sb.features();
        self.sb.last_orphan() != Ino(0) || f.has_ro_compat(ro_compat::ORPHAN_PRESENT)
    }

    fn is_clean(&self) -> bool {
        self.journal.is_none() && !self.has_orphans() && self.sb.state() & state::ERROR == 0
    }
}

fn recover(args: &Args) -> Result<Outcome, String> {
    let open = |path: &Path, offset| {
        let how = OpenOptions { read_only: args.dry_run, offset, ..OpenOptions::default() };
        FileDevice::open(path, how).map_err(|e| e.to_string())
    };
    let fs: Arc<dyn BlockDevice> = Arc::new(open(&args.image, args.offset)?);
    super::info::read(&*fs).map_err(|e| format!("{}: {e}", args.image.display()))?;
    let journal = match &args.journal_path {
        Some(path) => Some(Arc::new(open(path, 0)?) as Arc<dyn BlockDevice>),
        None => None,
    };
    let nvram = match &args.nvram {
        Some(path) => {
            let how = NvramOptions { read_only: args.dry_run, ..NvramOptions::default() };
            Some(Arc::new(NvramMap::open_any(path, how).map_err(|e| e.to_string())?) as Arc<dyn Nvram>)
        }
        None => None,
    };
    let devices = Devices { fs, journal, nvram };
    if args.discard_nvram {
        return discard_nvram(args, &devices);
    }
    let needs = Needs::of(&devices, &args.image)?;
    if needs.is_clean() {
        return outcome(0, "clean, nothing to do");
    }
    if args.dry_run {
        return outcome(fsck::UNCORRECTED, forecast(&needs));
    }
    let Some(path) = &args.undo else { return work(args, &devices, &needs) };
    if devices.journal.is_some() {
        return Err("--undo works for journals inside the image only".to_owned());
    }
    let undo = UndoDevice::new(devices.fs.clone(), path, needs.sb.block_size(), args.offset);
    let undo = Arc::new(undo.map_err(|e| format!("{}: {e}", path.display()))?);
    let done = work(args, &Devices::one(undo.clone()), &needs)?;
    undo.finish().map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(done)
}

/// Goes on without a journal in NVRAM.
fn discard_nvram(args: &Args, devices: &Devices) -> Result<Outcome, String> {
    let named = |e: quire_fs::Error| format!("{}: {e}", args.image.display());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let sb = quire_fs::first_superblock(devices, &clock).map_err(named)?;
    let lost = recovery::discard_nvram(devices, &clock, &sb).map_err(named)?;
    if let Some(memory) = &devices.nvram {
        quire_journal::nvram::forget(&**memory).map_err(|e| e.to_string())?;
    }
    match lost {
        None => outcome(0, "its journal is not in NVRAM: nothing was discarded in the image"),
        Some(first) => {
            let what = "is lost if it was not written home: some of it may be there and some not";
            outcome(
                fsck::UNCORRECTED,
                format!(
                    "the journal in NVRAM is given up: everything from transaction {} on {what}; run e2fsck -f",
                    first.0
                ),
            )
        }
    }
}

fn work(args: &Args, devices: &Devices, needs: &Needs) -> Result<Outcome, String> {
    let named = |e: quire_fs::Error| format!("{}: {e}", args.image.display());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let bar = Bar::new();
    let mut done = Vec::new();
    if let Some((_, plan)) = &needs.journal {
        let clean =
            recovery::recover(devices, &clock, &needs.sb, OnDamage::Replay, &mut |p| bar.show(p)).map_err(named)?;
        done.push(format!("{} transactions replayed, {} blocks written", plan.transactions, plan.images().len()));
        if let Some(clean) = clean.filter(|c| !c.damage().is_none()) {
            done.push(format!("the journal was damaged ({}): run e2fsck -f", damage(plan)));
            drop(clean);
            return outcome(fsck::UNCORRECTED, done.join("; "));
        }
    }
    bar.clear();
    if args.journal_only {
        return outcome(fsck::CORRECTED, if done.is_empty() { "the journal is empty".into() } else { done.join("; ") });
    }
    // Mounting and unmounting finishes what orphans need, and brings the superblock's free counts up to the
    // descriptors'.
    let sb = quire_fs::first_superblock(devices, &clock).map_err(named)?;
    let orphans = Ino(0) != sb.last_orphan() || sb.features().has_ro_compat(ro_compat::ORPHAN_PRESENT);
    match Volume::open(devices.clone(), clock.clone(), Options::default()) {
        Ok(volume) => volume.close().map_err(named)?,
        // What cannot be mounted keeps its counts; they are hints that e2fsck sets right.
        Err(quire_fs::Error::Unsupported { .. }) if !orphans => {}
        Err(e) => return Err(named(e)),
    }
    if orphans {
        done.push("deleted and truncated files finished".to_owned());
    }
    let sb = quire_fs::first_superblock(devices, &clock).map_err(named)?;
    if sb.state() & state::ERROR != 0 {
        done.push("errors were recorded in the file system: run e2fsck -f".to_owned());
        return outcome(fsck::UNCORRECTED, done.join("; "));
    }
    outcome(fsck::CORRECTED, done.join("; "))
}

fn damage(plan: &Plan) -> String {
    let tid = |t: Option<Tid>| t.map(|t| format!("commit of {t} does not match"));
    let mut all: Vec<String> = plan.bad.iter().take(3).map(ToString::to_string).collect();
    if plan.bad.len() > 3 {
        all.push(format!("{} more", plan.bad.len() - 3));
    }
    all.extend(tid(plan.failed_commit));
    all.join(", ")
}

/// What a recovery would do.
fn forecast(needs: &Needs) -> String {
    let mut all = Vec::new();
    if let Some((_, plan)) = &needs.journal {
        all.push(format!(
            "{} transactions to replay ({} to {}): {} blocks to write, {} logged, {} revoked",
            plan.transactions,
            plan.start.0,
            plan.end.0.wrapping_sub(1),
            plan.images().len(),
            plan.logged,
            plan.revoked
        ));
        if plan.is_damaged() {
            all.push(format!("the journal is damaged: {}", damage(plan)));
        }
        if let Err(e) = plan.check_supported() {
            all.push(e.to_string());
        }
    } else if needs.sb.features().has_incompat(incompat::RECOVER) {
        all.push("needs_recovery to be cleared".to_owned());
    }
    if needs.has_orphans() {
        all.push("deleted or truncated files to be finished".to_owned());
    }
    if needs.sb.state() & state::ERROR != 0 {
        all.push("errors are recorded: run e2fsck -f".to_owned());
    }
    all.join("; ")
}
