//! From a device to a mounted volume.
//!
//! Guarantees: nothing is written before the image is known to be supported, whole, and of blocks no smaller than the
//! device's physical sector; the journal is replayed before anything else is believed; `needs_recovery` is durable before the
//! first transaction (O1).
//!
//! ```text
//! superblock ─> features, size ─> journal's map ─> recovery ─> superblock again ─> marked in use, flush ─> log, descriptors, orphans
//! ```

use crate::alloc::Pool;
use crate::choices::{Choices, LogKind};
use crate::error::{Error, Result};
use crate::file::{Files, Ticks};
use crate::journal_open::{self, OnDamage};
use crate::options::{Options, Route};
use crate::state::FsState;
use crate::volume::{Inner, Volume};
use quire_device::Mutant;
use quire_device::sync::atomic::AtomicBool;
use quire_device::sync::{Arc, Condvar, Mutex};
use quire_device::{BlockDevice, Buf, Clock, FlushGate, Nvram, Pace, Paced, Region};
use quire_journal::recover::Progress;
use quire_journal::{Journal, JournalConfig, Log};
use quire_layout::features::{Access, compat, incompat, ro_compat};
use quire_layout::group_desc::DescChecksum;
use quire_layout::superblock::{self, Superblock, state};
use quire_layout::{Corrupt, Structure, Unsupported, recognise};

/// The devices of a volume.
#[derive(Clone)]
pub struct Devices {
    pub fs: Arc<dyn BlockDevice>,
    /// The journal's, if it is on a device of its own.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// The memory that holds the journal, or is to hold it.
    pub nvram: Option<Arc<dyn Nvram>>,
}

impl Devices {
    #[must_use]
    pub fn one(fs: Arc<dyn BlockDevice>) -> Self {
        Devices { fs, journal: None, nvram: None }
    }

    /// With a memory for the journal.
    #[must_use]
    pub fn with_nvram(self, nvram: Arc<dyn Nvram>) -> Self {
        Devices { nvram: Some(nvram), ..self }
    }
}

impl Volume {
    /// Mounts the file system on a device, or on two: replays its journal, marks it in use, finishes what orphans need. Also a
    /// read-only mount begins so where the journal must be replayed, if the device can be written.
    ///
    /// # Errors
    /// Corrupt or unsupported structures, a truncated image, a journal that needs recovery on a device that cannot be
    /// written, I/O.
    pub fn open(devices: Devices, clock: Arc<dyn Clock>, options: Options) -> Result<Self> {
        Self::open_with(devices, clock, options, &mut |_| {})
    }

    /// As [`Volume::open`], telling how far recovery has come.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_with(
        devices: Devices,
        clock: Arc<dyn Clock>,
        options: Options,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        if options.read_only && !options.no_load && !devices.fs.info().read_only {
            let sb = first_superblock(&devices, &clock)?;
            if sb.features().has_incompat(incompat::RECOVER) && only_read(&sb)?.is_none() {
                // As the kernel does it: what a crash has left is finished, orphans and counts, too, before it is only read.
                let writing = Options { read_only: false, ..options.clone() };
                Self::open_once(devices.clone(), clock.clone(), writing, progress, false)?.close()?;
            }
        }
        Self::open_once(devices, clock, options, progress, true)
    }

    /// Mounts; with `counts`, a mount that writes is noted in the superblock.
    fn open_once(
        devices: Devices,
        clock: Arc<dyn Clock>,
        options: Options,
        progress: &mut dyn FnMut(Progress),
        counts: bool,
    ) -> Result<Self> {
        check_choices(options.choices())?;
        let pace = Arc::new(Pace::default());
        let gate = Arc::new(FlushGate::new(Arc::new(Paced::new(devices.fs.clone(), clock.clone(), pace.clone()))));
        let mut sb = first_superblock(&devices, &clock)?;
        check_device(&sb, &*devices.fs)?;
        let mut read_only = only_read(&sb)?;
        if options.read_only {
            read_only = Some("mounted read-only");
        } else if options.no_load {
            read_only = Some("noload: without its journal it must not be changed");
        } else if devices.fs.info().read_only {
            read_only = Some("its source is write-protected");
        }
        let mut log = None;
        let mut writable = read_only.is_none();
        if !options.no_load {
            let clean = journal_open::recover(&devices, &clock, &sb, OnDamage::Refuse, progress)?;
            sb = superblock_again(&sb, &devices)?;
            read_only = read_only.or(only_read(&sb)?);
            writable = read_only.is_none();
            log = clean.filter(|_| writable).map(|c| journal_open::open_log(c, &gate, &sb)).transpose()?;
            if writable && options.choices().log() == Ok(LogKind::Nvram) {
                let log = log
                    .as_mut()
                    .ok_or_else(|| Unsupported::new("a journal in NVRAM for a file system without has_journal"))?;
                journal_open::put_in_nvram(log, &devices, &sb, options.choices())?;
            }
        }
        let was_valid = sb.state() & state::VALID != 0;
        if writable {
            let log = if log.is_some() { options.choices().log().unwrap_or(LogKind::None) } else { LogKind::None };
            mark_in_use(&mut sb, log);
        }
        let mut marked = sb.clone();
        let volume = Self::assemble(gate.clone(), pace, sb, clock, options, log, read_only, was_valid);
        volume.load_space()?;
        if writable {
            // Nothing is written before what a mount needs to know has been read.
            write_superblock(&gate, &mut marked)?;
            volume.superblock_written();
            if counts {
                volume.note_mount()?;
            }
            volume.start_orphans()?;
        }
        Ok(volume)
    }

    /// A volume that is only read, without looking at the journal: for recovery, `info` and `dump`.
    ///
    /// # Errors
    /// Corrupt or unsupported superblock, a truncated image, I/O.
    pub fn peek(fs: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Self> {
        let sb = read_superblock(&*fs)?;
        check_device(&sb, &*fs)?;
        Ok(Self::look(fs, clock, sb))
    }

    /// As [`Volume::peek`], with a superblock that was read already.
    pub(crate) fn look(fs: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>, sb: Superblock) -> Self {
        let options = Options { read_only: true, no_load: true, ..Options::default() };
        let (gate, pace) = (Arc::new(FlushGate::new(fs)), Arc::default());
        Self::assemble(gate, pace, sb, clock, options, None, Some("only looked at"), false)
    }

    #[allow(clippy::too_many_arguments)]
    fn assemble(
        gate: Arc<FlushGate>,
        pace: Arc<Pace>,
        sb: Superblock,
        clock: Arc<dyn Clock>,
        options: Options,
        log: Option<Log>,
        read_only: Option<&'static str>,
        was_valid: bool,
    ) -> Self {
        // Half for block images, half for file pages.
        let config = JournalConfig::new(sb.block_size(), clock.clone(), options.cache_bytes / 2);
        let config = JournalConfig { style: options.choices().style(), ..config };
        let journal = match log {
            Some(log) if options.route != Route::None => Journal::with_log(gate, log, config),
            _ => Journal::without_log(gate, config),
        };
        let inner = Inner {
            desc_sums: DescChecksum::of(&sb),
            inode_seed: sb.features().metadata_csum().then(|| sb.checksum_seed()),
            files: Files::new(options.cache_bytes, sb.block_size().bytes(), journal.gate().clone()),
            journal,
            pace,
            clock,
            was_valid,
            state: Mutex::new(FsState::default()),
            stopped: AtomicBool::new(read_only.is_some()),
            read_only: Mutex::new(read_only),
            frozen: Mutex::new(false),
            thawed: Condvar::new(),
            ticks: Mutex::new(Ticks::default()),
            options,
            sb,
        };
        Volume { inner: Arc::new(inner), account: Pool::User }
    }

    /// The superblock at home was written, and is durable: what memory holds of its block is old (Q3).
    pub(crate) fn superblock_written(&self) {
        self.inner.journal.written_in_place([(self.inner.superblock_at().0, 1)]);
    }

    /// Notes in the superblock when and where it was mounted.
    fn note_mount(&self) -> Result<()> {
        self.run(|op| {
            let now = u64::try_from(op.now().secs).unwrap_or(0);
            let sb = op.superblock_mut()?;
            sb.set_mount_time(now);
            sb.set_write_time(now);
            sb.set_mount_count(sb.mount_count().wrapping_add(1));
            let place = &self.inner.options.mounted_on;
            if !place.is_empty() {
                sb.set_last_mounted(place.as_bytes());
            }
            Ok(())
        })
    }

    /// Frees what the last mount left unlinked, and ends its truncates.
    fn start_orphans(&self) -> Result<()> {
        match self.process_orphans() {
            Ok(done) if done.deleted + done.truncated > 0 => {
                tracing::info!(done.deleted, done.truncated, "orphans of the last mount are gone");
            }
            Ok(_) => {}
            // Who cannot trust the list must not add to it.
            Err(e @ Error::Corrupt(_)) => {
                self.note_error(&e);
                self.inner.turn_read_only("the record of orphans is corrupt");
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// A message that lives as long as the process: made once a mount.
fn leak(s: String) -> &'static str {
    Box::leak(s.into_boxed_str())
}

/// The primary superblock as a mount first sees it. If it is torn beyond what its flags explain, the journal's copy serves: its
/// replay will bring it home.
///
/// # Errors
/// Corrupt, where neither serves; I/O.
pub fn first_superblock(devices: &Devices, clock: &Arc<dyn Clock>) -> Result<Superblock> {
    let torn = match read_superblock(&*devices.fs) {
        Err(Error::Corrupt(c)) => c,
        other => return other,
    };
    let raw = devices.fs.read(superblock::OFFSET, superblock::SIZE, Region::Superblock)?;
    let Ok(guess) = Superblock::decode_unverified(&raw) else { return Err(torn.into()) };
    let from_log = || -> Result<Option<Superblock>> {
        let Some(found) = journal_open::find_journal(devices, clock, &guess)? else { return Ok(None) };
        let plan = journal_open::scan(&found.log, &guess, &mut |_| {})?;
        Ok(found.log.superblock_image(&plan)?)
    };
    match from_log() {
        Ok(Some(sb)) => {
            tracing::warn!("the superblock was torn; the journal's copy serves");
            Ok(sb)
        }
        _ => Err(torn.into()),
    }
}

/// Reads the primary superblock; a tear between its sectors is mended in memory.
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let raw = device.read(superblock::OFFSET, superblock::SIZE, Region::Superblock)?;
    recognise(&raw)?;
    if Mutant::TornSuperblockRefused.is_on() {
        return Ok(Superblock::decode(&raw)?);
    }
    let (sb, mended) = Superblock::decode_torn(&raw)?;
    if mended {
        tracing::warn!("the superblock was torn between its sectors; its flags are believed");
    }
    Ok(sb)
}

/// The superblock after recovery, which may have replaced it: it has to be as good as the first, and the same file system's.
fn superblock_again(before: &Superblock, devices: &Devices) -> Result<Superblock> {
    let sb = read_superblock(&*devices.fs)?;
    let same = |sb: &Superblock| (sb.block_size(), sb.inode_size(), sb.journal_ino(), sb.first_data_block());
    if same(&sb) != same(before) {
        return Err(Corrupt::new(Structure::Superblock, "the journal held another file system's").into());
    }
    check_device(&sb, &*devices.fs)?;
    Ok(sb)
}

/// Why the image's features allow no writes, if so.
fn only_read(sb: &Superblock) -> Result<Option<&'static str>> {
    Ok(match sb.features().access()? {
        Access::ReadOnly(names) => {
            Some(leak(format!("Quire only reads the image's feature{} {}", plural(&names), names.join(", "))))
        }
        Access::ReadWrite => None,
    })
}

/// The four choices go together.
fn check_choices(choices: Choices) -> Result<()> {
    choices.log().map(drop).map_err(|illegal| Unsupported::new(illegal.to_string()).into())
}

fn plural(names: &[String]) -> &'static str {
    if names.len() == 1 { "" } else { "s" }
}

/// The image is whole, and no block is smaller than what the device writes at once.
fn check_device(sb: &Superblock, device: &dyn BlockDevice) -> Result<()> {
    let (info, bs) = (device.info(), sb.block_size());
    if info.size >> bs.bits() < sb.blocks_count() {
        let why = "the file system is larger than its device (a truncated image, or too small a sizelimit=?)";
        return Err(Corrupt::new(Structure::Superblock, why).at(sb.own_block()).into());
    }
    if bs.bytes64() < u64::from(info.physical_sector) && !info.read_only {
        let what =
            format!("blocks of {} bytes on a device with physical sectors of {}", bs.bytes(), info.physical_sector);
        return Err(Unsupported::new(what).into());
    }
    if u32::try_from(bs.bytes()).is_ok_and(|b| b < info.logical_sector) {
        let what = format!("blocks of {} bytes on a device with sectors of {}", bs.bytes(), info.logical_sector);
        return Err(Unsupported::new(what).into());
    }
    Ok(())
}

/// Writes the primary superblock at home and makes it durable.
pub(crate) fn write_superblock(gate: &FlushGate, sb: &mut Superblock) -> Result<()> {
    sb.seal();
    let sector = u64::from(gate.device().info().logical_sector);
    // The superblock lies in the middle of a larger sector: the rest is kept.
    let (start, len) = if sector > 1024 { (0, sector.max(2048)) } else { (superblock::OFFSET, 1024) };
    let mut buf = if start == 0 {
        gate.device().read(0, usize::try_from(len).expect("small"), Region::Superblock)?
    } else {
        Buf::zeroed(superblock::SIZE)
    };
    let at = usize::try_from(superblock::OFFSET - start).expect("small");
    buf[at..at + superblock::SIZE].copy_from_slice(sb.bytes());
    gate.device().write(start, Arc::new(buf), Region::Superblock)?;
    Ok(gate.flush()?)
}

/// Sets what says that the file system is in use (O1). Only flags may change here: then a tear between them and the checksum
/// can be told from damage. The rest goes through a transaction ([`Volume::note_mount`]).
pub(crate) fn mark_in_use(sb: &mut Superblock, log: LogKind) {
    let mut f = sb.features();
    match log {
        LogKind::None => sb.set_state(sb.state() & !state::VALID),
        LogKind::Jbd2 => f.incompat |= incompat::RECOVER,
        // Before the journal's superblock says so, and before the first record (Q8).
        LogKind::Quire | LogKind::Nvram => f.incompat |= incompat::RECOVER | incompat::QUIRE_LOG,
    }
    if f.has_compat(compat::ORPHAN_FILE) {
        f.ro_compat |= ro_compat::ORPHAN_PRESENT;
    }
    sb.set_features(f);
}
