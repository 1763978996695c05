//! Real applications on a mount whose device loses power: the bank on SQLite, the storm of names and the appenders work
//! on a Quire mount over a device that records every write and flush. Crash images are then cut out of the recording,
//! before and after every flush and at random moments, with any part of what was not flushed lost, torn or reordered.
//! Each is recovered; e2fsck must call it clean, and nothing may be missing that was acknowledged before the cut.
//!
//! ```text
//! workers (processes) ── FUSE ── quire_mount::run_on ── Volume ── Steps ── PowerLossDevice: recording
//!     └── acknowledged "line @steps" <── file "steps" <───────────────┘
//! ```
//! A worker reads the number of device steps *after* its call returned: so a line with number n was acknowledged, at
//! the latest, after n steps, and a cut after n steps or more must keep it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use quire_device::sync::{Mutex, lock, thread};
use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, Io, SystemClock, Ticket};
use quire_fs::{Devices, Options, Volume};
use quire_layout::Ino;
use quire_layout::inode::mode;
use quire_mount::{Mount, MountOptions};
use quire_testkit::{Crash, Image, PowerLossDevice, PowerLossOptions, Recording};

use crate::cmd;
use crate::work::{STEPS, append, bank, storm};
use quire_testkit::rng::Rng;

const BANKERS: u64 = 2;
const STORMS: u64 = 2;
const APPENDERS: u64 = 2;
/// One in so many of the other moments is cut, too.
const OTHERS: u64 = 40;

/// What is done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Mount options: `data=journal`, ...
    pub options: String,
    pub seed: u64,
    /// The applications work so long.
    pub work: Duration,
    /// States are looked at so long; spread over the recording when that is too short for all.
    pub check: Duration,
}

impl Plan {
    /// The command that does the same.
    #[must_use]
    pub fn again(&self) -> String {
        let (work, check) = (self.work.as_secs_f64(), self.check.as_secs());
        let (options, seed) = (&self.options, self.seed);
        format!(
            "again: quire-lab powercut --options '{options}' --seed {seed} --seconds {work} --check-seconds {check}"
        )
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { steps, flushes, cut_at_flush, states, lost, torn, reordered, transfers, durable_steps, bytes } =
            self;
        write!(f, "{steps} steps recorded; {states} states at {cut_at_flush} of {flushes} flushes and between, ")?;
        write!(f, "{lost} lost, {reordered} reordered, {torn} torn; ")?;
        write!(f, "{transfers} transfers, {durable_steps} steps, {bytes} bytes acknowledged, none missing")
    }
}

/// What was found to be right.
#[derive(Debug, Default, Clone, Copy)]
pub struct Report {
    /// Writes and flushes recorded.
    pub steps: u64,
    /// Moments next to a flush, and how many of them were looked at.
    pub flushes: u64,
    pub cut_at_flush: u64,
    pub states: u64,
    pub lost: u64,
    pub torn: u64,
    pub reordered: u64,
    /// Acknowledged, in all, at the end of the recording.
    pub transfers: usize,
    pub durable_steps: u64,
    pub bytes: u64,
}

/// A device that tells a file how many steps it has completed.
struct Steps {
    device: Arc<PowerLossDevice>,
    told: Mutex<File>,
}

impl Steps {
    /// Before anybody is told that an operation is complete, its step is in the file; the number there never falls.
    fn tell(&self) {
        let file = lock(&self.told);
        file.write_all_at(&self.device.completed().to_le_bytes(), 0).expect("a file in memory");
    }
}

impl BlockDevice for Steps {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let ticket = self.device.submit(batch);
        self.tell();
        ticket
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        let done = self.device.wait(ticket);
        self.tell();
        done
    }
}

/// Works, records, cuts and checks.
pub fn run(dir: &Path, plan: &Plan) -> Result<Report> {
    let mut rng = Rng::from_parts(&[plan.seed, 21]);
    let block = ["1024", "4096", "4096"][rng.index(3)];
    let journal = if rng.one_in(2) { bank::Journal::Wal } else { bank::Journal::Delete };
    let what = format!("SQLite in {journal:?} mode, blocks of {block}");
    let recorded = record(dir, plan, block, journal).with_context(|| what.clone())?;
    cut(dir, plan, &recorded).context(what)
}

struct Recorded {
    recording: Recording,
    /// Steps before the applications began.
    from: u64,
    logs: PathBuf,
}

fn record(dir: &Path, plan: &Plan, block: &str, journal: bank::Journal) -> Result<Recorded> {
    let (logs, dir_mounted, steps) = (dir.join("logs"), dir.join("mnt"), dir.join("steps"));
    fs::create_dir_all(&logs)?;
    fs::create_dir_all(&dir_mounted)?;
    let file = dir.join("image");
    crate::image::Image::make(&file, 48 << 20, &["-b", block, "-J", "size=4"])?;
    let image = Image::load(&file)?;
    fs::remove_file(&file)?;
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(image, options));
    let told = Mutex::new(File::create(&steps)?);
    let steps_device: Arc<dyn BlockDevice> = Arc::new(Steps { device: device.clone(), told });

    let options = MountOptions::parse(&plan.options)?;
    let mount = Mount { image: "recording".into(), dir: dir_mounted.clone(), options };
    let (ready, is_ready) = std::sync::mpsc::channel();
    let serving = thread::spawn(move || quire_mount::run_on(&mount, steps_device, || ready.send(()).expect("awaited")));
    if is_ready.recv().is_err() {
        return match serving.join() {
            Ok(Err(e)) => Err(e.into()),
            _ => Err(anyhow!("the mount did not come about")),
        };
    }
    let worked = at_work(&dir_mounted, &logs, &steps, plan, journal, &device);
    let unmounted = cmd::run_tool(if cmd::is_root() { "umount" } else { "fusermount3" }, {
        let dir = path_text(&dir_mounted);
        if cmd::is_root() { vec![dir] } else { vec!["-u".to_owned(), dir] }
    });
    let from = worked?;
    unmounted?;
    serving.join().map_err(|_| anyhow!("the mount panicked"))??;
    Ok(Recorded { recording: device.recording().expect("it records"), from, logs })
}

/// Lets the applications work; returns the number of steps before.
fn at_work(
    mount: &Path,
    logs: &Path,
    steps: &Path,
    plan: &Plan,
    journal: bank::Journal,
    device: &PowerLossDevice,
) -> Result<u64> {
    let lab = || -> Result<Command> {
        let mut lab = Command::new(std::env::current_exe()?);
        lab.env(STEPS, steps).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
        Ok(lab)
    };
    let mode = if journal == bank::Journal::Wal { "wal" } else { "delete" };
    let mut create = lab()?;
    cmd::run(create.args(["bank", "create", "--journal", mode, "--dir"]).arg(mount).arg("--log").arg(logs))?;
    cmd::run_tool("sync", ["-f", &path_text(mount)])?;
    let from = device.completed();
    let seconds = plan.work.as_secs_f64().to_string();
    let mut workers = Vec::new();
    for (kind, count) in [("bank", BANKERS), ("storm", STORMS), ("append", APPENDERS)] {
        for worker in 0..count {
            let mut work = lab()?;
            work.args(["work", kind, "--worker", &worker.to_string(), "--seconds", &seconds]);
            work.args(["--seed", &plan.seed.to_string(), "--dir"]).arg(mount).arg("--log").arg(logs);
            let child = work.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
            workers.push((kind, child));
        }
    }
    for (kind, child) in workers {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("{kind} failed: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(from)
}

fn cut(dir: &Path, plan: &Plan, recorded: &Recorded) -> Result<Report> {
    let (recording, from) = (&recorded.recording, recorded.from);
    let mut report = Report { steps: recording.len() as u64, ..Report::default() };
    report.flushes = count_flushes(recording, from);
    let begin = Instant::now();
    let mut rng = Rng::from_parts(&[plan.seed, 22]);
    let mut seen = 0_u64;
    let total = report.flushes.max(1);
    let at_flush = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = at_flush.clone();
    let moments = recording.crash_points_at(move |at, flush| {
        if at < from {
            return false;
        }
        if !flush {
            return rng.one_in(OTHERS) && due(begin, plan.check, seen, total);
        }
        seen += 1;
        let due = due(begin, plan.check, seen, total);
        counted.set(counted.get() + u64::from(due));
        due
    });
    for (steps, point) in moments {
        let crash = point.crash(plan.seed ^ steps.rotate_left(20));
        report.lost += u64::from(crash.lost > 0);
        report.torn += u64::from(crash.torn > 0);
        report.reordered += u64::from(crash.reordered > 0);
        report.states += 1;
        let found = check(dir, plan, recorded, steps, crash)
            .with_context(|| format!("power cut after {steps} of {} steps", recording.len()))?;
        (report.transfers, report.durable_steps, report.bytes) = found;
    }
    report.cut_at_flush = at_flush.get();
    ensure!(report.transfers > 0 && report.durable_steps > 0 && report.bytes > 0, "a workload got nothing done");
    Ok(report)
}

/// Whether the time spent so far allows to look at moment `n` of `total`.
fn due(begin: Instant, budget: Duration, n: u64, total: u64) -> bool {
    begin.elapsed().as_nanos() * u128::from(total) <= budget.as_nanos() * u128::from(n)
}

fn count_flushes(recording: &Recording, from: u64) -> u64 {
    let count = std::cell::Cell::new(0);
    let none = recording.crash_points_at(|at, flush| {
        count.set(count.get() + u64::from(flush && at >= from));
        false
    });
    assert_eq!(none.count(), 0);
    count.get()
}

/// Recovers one state and checks everything about it.
fn check(dir: &Path, plan: &Plan, recorded: &Recorded, steps: u64, crash: Crash) -> Result<(usize, u64, u64)> {
    let device = Arc::new(PowerLossDevice::from_image(crash.image.clone(), PowerLossOptions::default()));
    let volume = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), Options::default())
        .context("mounting the crash image")?;
    let (tree, logs) = (dir.join("tree"), dir.join("logs-then"));
    for old in [&tree, &logs] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
        fs::create_dir_all(old)?;
    }
    extract(&volume, Ino::ROOT, &tree).context("reading the recovered tree")?;
    volume.close().context("unmounting the survivor")?;
    let file = dir.join("recovered");
    device.live().save(&file)?;
    let clean = crate::image::Image::open(&file).check_clean();
    let judged = clean.and_then(|()| {
        logs_then(&recorded.logs, &logs, steps)?;
        check_tree(&tree, &logs, plan.seed)
    });
    if judged.is_err() {
        let kept = std::env::temp_dir().join(format!("powercut-{}-{steps}.img", plan.seed));
        crash.image.save(&kept)?;
        return judged.with_context(|| format!("the crash image is kept: {}", kept.display()));
    }
    judged
}

fn check_tree(tree: &Path, logs: &Path, seed: u64) -> Result<(usize, u64, u64)> {
    let transfers = bank::check(&tree.join("bank.db"), logs, BANKERS)?.acknowledged;
    let (mut steps, mut bytes) = (0, 0);
    for worker in 0..STORMS {
        steps += storm::check(tree, logs, worker, seed)?;
    }
    for worker in 0..APPENDERS {
        bytes += append::check(tree, logs, worker, seed)?;
    }
    Ok((transfers, steps, bytes))
}

/// The logs as they were when the device had completed so many steps.
fn logs_then(from: &Path, to: &Path, steps: u64) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let text = fs::read_to_string(entry.path())?;
        let mut then = String::new();
        for line in text.split_inclusive('\n') {
            let (said, at) = line.trim_end().rsplit_once(" @").with_context(|| format!("no steps: {line}"))?;
            if at.parse::<u64>()? > steps {
                break;
            }
            then.push_str(said);
            then.push('\n');
        }
        fs::write(to.join(entry.file_name()), then)?;
    }
    Ok(())
}

/// Copies a directory of a volume, with what is in it.
pub(crate) fn extract(v: &Volume, dir: Ino, to: &Path) -> Result<()> {
    let mut names = Vec::new();
    v.readdir(dir, 0, &mut |item| {
        names.push(item.name.to_vec());
        true
    })?;
    for name in names {
        let text = std::str::from_utf8(&name)?.to_owned();
        if [".", "..", "lost+found"].contains(&text.as_str()) {
            continue;
        }
        let a = v.lookup(dir, &name)?;
        let path = to.join(&text);
        match a.mode & mode::FMT {
            mode::DIR => {
                fs::create_dir(&path)?;
                extract(v, a.ino, &path)?;
            }
            mode::LNK => {
                use std::os::unix::ffi::OsStrExt;
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&v.readlink(a.ino)?), &path)?;
            }
            _ => {
                let mut data = vec![0; usize::try_from(a.size)?];
                let n = v.read(a.ino, 0, &mut data)?;
                ensure!(n == data.len(), "{text}: {n} of {} bytes", data.len());
                fs::write(&path, data)?;
            }
        }
        v.forget(a.ino, 1);
    }
    Ok(())
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
