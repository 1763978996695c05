//! `quire recover`: replays the journal and finishes what was interrupted.

use super::at::At;
use crate::exit::{self, fsck};
use crate::progress::Bar;
use crate::undo::UndoDevice;
use quire_device::nvram::{Nvram, NvramMap, NvramOptions};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Clock, FileDevice, OpenOptions, SystemClock};
use quire_fs::recovery::{self, OnDamage, Pending};
use quire_fs::{Devices, Outlook};
use quire_journal::recover::Plan;
use quire_layout::features::{incompat, ro_compat};
use quire_layout::superblock::{Superblock, state};
use quire_layout::{Ino, Structure, Tid};
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
    #[command(flatten)]
    at: At,
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
            let text = format!("{}: {}\n", args.image.display(), outcome.text);
            exit::print(NAME, &text, outcome.code, fsck::OPERATIONAL)
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
    pending: Option<Arc<Pending>>,
    /// What it will be after the replay, by the rules of a mount.
    outlook: quire_fs::Result<Outlook>,
}

impl Needs {
    /// Looks, and writes nothing.
    fn of(devices: &Devices, image: &Path) -> Result<Self, String> {
        let named = |e: quire_fs::Error| format!("{}: {e}", image.display());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let sb = quire_fs::first_superblock(devices, &clock).map_err(named)?;
        let bar = Bar::new();
        let (pending, outlook) = match Pending::find(devices, &clock, &sb, OnDamage::Replay, &mut |p| bar.show(p)) {
            Ok(Some(p)) => {
                let pending = Arc::new(p);
                let outlook = quire_fs::look(devices, Some(&pending), &clock, &sb);
                (Some(pending), outlook)
            }
            Ok(None) => (None, quire_fs::look(devices, None, &clock, &sb)),
            Err(e @ quire_fs::Error::Corrupt(_)) => (None, Err(e)),
            Err(e) => return Err(named(e)),
        };
        match &outlook {
            Ok(_) | Err(quire_fs::Error::Corrupt(_) | quire_fs::Error::Unsupported(_)) => {}
            Err(e) => return Err(named(e.clone())),
        }
        Ok(Needs { sb, pending, outlook })
    }

    /// The log that must be replayed, if one must be.
    fn plan(&self) -> Option<&Plan> {
        self.pending.as_ref().and_then(|p| p.plan())
    }

    /// Files that wait for being freed or truncated.
    fn has_orphans(&self) -> bool {
        has_orphans(&self.sb)
    }

    /// Why the image is left as it is, whatever it needs.
    fn refusal(&self) -> Option<String> {
        let Err(quire_fs::Error::Corrupt(c)) = &self.outlook else { return None };
        let lost = matches!(c.structure, Structure::Superblock | Structure::JournalInode);
        let whole = self.plan().is_some_and(|p| !p.is_damaged());
        let nothing_to_replay = self.plan().is_none();
        (nothing_to_replay || whole && lost).then(|| format!("left as it is: {c}; run e2fsck -f"))
    }

    /// With `journal_only`, what is not the journal's is not asked for.
    fn is_clean(&self, journal_only: bool) -> bool {
        let rest = self.has_orphans() || self.sb.state() & state::ERROR != 0;
        self.plan().is_none() && !self.has_leftovers() && (journal_only || !rest)
    }

    /// What is in the log is not needed, but others may take it for needed.
    fn has_leftovers(&self) -> bool {
        self.pending.as_ref().is_some_and(|p| p.has_leftovers())
    }
}

fn has_orphans(sb: &Superblock) -> bool {
    sb.last_orphan() != Ino(0) || sb.features().has_ro_compat(ro_compat::ORPHAN_PRESENT)
}

fn recover(args: &Args) -> Result<Outcome, String> {
    let how = OpenOptions { read_only: args.dry_run, ..OpenOptions::default() };
    let fs: Arc<dyn BlockDevice> = Arc::new(args.at.device(&args.image, how)?);
    let journal = match &args.journal_path {
        Some(path) => Some(Arc::new(FileDevice::open(path, how).map_err(|e| e.to_string())?) as Arc<dyn BlockDevice>),
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
    if let Some(why) = needs.refusal() {
        return outcome(fsck::UNCORRECTED, why);
    }
    if needs.is_clean(args.journal_only) {
        return outcome(0, if args.journal_only { "the journal is empty" } else { "clean, nothing to do" });
    }
    if args.dry_run {
        return outcome(fsck::UNCORRECTED, forecast(&needs));
    }
    let Some(path) = &args.undo else { return work(args, &devices, &needs) };
    if devices.journal.is_some() {
        return Err("--undo works for journals inside the image only".to_owned());
    }
    let (offset, _) = args.at.range(&args.image).map_err(|e| e.to_string())?;
    let undo = UndoDevice::new(devices.fs.clone(), path, needs.sb.block_size(), offset);
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
    let recover =
        || recovery::recover(devices, &clock, &needs.sb, OnDamage::Replay, &mut |p| bar.show(p)).map_err(named);
    if let Some(plan) = needs.plan() {
        let clean = recover()?;
        done.push(format!("{} transactions replayed, {} blocks written", plan.transactions, plan.images().len()));
        if let Some(clean) = clean.filter(|c| !c.damage().is_none()) {
            done.push(format!("the journal was damaged ({}): run e2fsck -f", damage(plan)));
            drop(clean);
            return outcome(fsck::UNCORRECTED, done.join("; "));
        }
    } else if needs.has_leftovers() {
        recover()?;
        done.push("a log that is not needed was emptied".to_owned());
    }
    bar.clear();
    if args.journal_only {
        return outcome(fsck::CORRECTED, done.join("; "));
    }
    let sb = quire_fs::first_superblock(devices, &clock).map_err(named)?;
    let orphans = has_orphans(&sb);
    let why_left = why_orphans_stay(&sb, &needs.outlook);
    // What Quire does not write keeps its free counts as well; they are hints that e2fsck sets right.
    if why_left.is_none() && (orphans || needs.plan().is_some()) {
        quire_fs::finish_orphans(devices, &clock).map_err(named)?;
    }
    let sb = quire_fs::first_superblock(devices, &clock).map_err(named)?;
    if let Err(quire_fs::Error::Corrupt(c)) = &needs.outlook {
        done.push(format!("{c}: run e2fsck -f"));
    } else if orphans && has_orphans(&sb) {
        let why = why_left.unwrap_or_else(|| "some are damaged".to_owned());
        done.push(format!("deleted and truncated files are left ({why}): run e2fsck -f"));
    } else if sb.state() & state::ERROR != 0 {
        done.push("errors were recorded in the file system: run e2fsck -f".to_owned());
    } else {
        if orphans {
            done.push("deleted and truncated files finished".to_owned());
        }
        return outcome(fsck::CORRECTED, done.join("; "));
    }
    outcome(fsck::UNCORRECTED, done.join("; "))
}

/// Why deleted and truncated files are not finished, if they are not. Where errors are recorded the kernel leaves them
/// to e2fsck, too.
fn why_orphans_stay(sb: &Superblock, outlook: &quire_fs::Result<Outlook>) -> Option<String> {
    match outlook {
        _ if sb.state() & state::ERROR != 0 => Some("errors are recorded".to_owned()),
        Ok(o) => o.why_read_only(),
        Err(e) => Some(e.to_string()),
    }
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
    if let Some(plan) = needs.plan() {
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
    } else if needs.sb.features().has_incompat(incompat::RECOVER) {
        all.push("needs_recovery to be cleared".to_owned());
    } else if needs.has_leftovers() {
        all.push("a log that is not needed to be emptied".to_owned());
    }
    if let Err(quire_fs::Error::Corrupt(c)) = &needs.outlook {
        all.push(format!("then {c}: run e2fsck -f"));
    }
    if needs.has_orphans() {
        all.push(match why_orphans_stay(&needs.sb, &needs.outlook) {
            None => "deleted or truncated files to be finished".to_owned(),
            Some(why) => format!("deleted or truncated files will be left ({why}): run e2fsck -f"),
        });
    }
    if needs.sb.state() & state::ERROR != 0 {
        all.push("errors are recorded: run e2fsck -f".to_owned());
    }
    all.join("; ")
}
