//! From a device to a mounted volume.
//!
//! *Guarantees*: nothing is written before the image is known to be supported, whole, and of blocks no smaller than the
//! device's physical sector; the journal is replayed before anything else is used; the root directory and the record of
//! orphans are looked at before the image is marked as in use; `needs_recovery` is durable before the first transaction
//! (O1).
//!
//! ```text
//! superblock ─> features, size ─> journal's map ─> recovery ─> superblock again ─> log,
//! descriptors, root directory, record of orphans ─> marked in use, flush ─> orphans freed
//! ```

use super::assemble;
use super::clean::superblock_written;
use super::devices::Devices;
use super::handle::{Inner, Volume};
use super::preview::{self, only_read, superblock_after};
use super::recovery::{self, OnDamage, Pending};
use super::superblock::{check_device, mark_in_use, read_superblock, write_superblock};
use crate::config::{Choices, Options};
use crate::data::Data;
use crate::engine::{Engine, Misses};
use crate::error::{Error, Result};
use crate::names::{self, Orphans};
use crate::records;
use crate::tables::Pool;
use quire_device::sync::{Arc, Mutex};
use quire_device::{BlockDevice, Clock, FlushGate, Pace, Paced, Region};
use quire_journal::recover::Progress;
use quire_layout::Unsupported;
use quire_layout::features::incompat;
use quire_layout::superblock::{self, Superblock, state};

impl Volume {
    /// Mounts the file system on a device, or on two: replays its journal, marks it in use, and ends what orphans need.
    /// A read-only mount begins in the same way if the journal must be replayed and the device can be written.
    ///
    /// # Errors
    /// Corrupt or unsupported structures, a truncated image, a journal that needs recovery on a device that cannot be
    /// written, I/O.
    pub fn open(devices: Devices, clock: Arc<dyn Clock>, options: Options) -> Result<Self> {
        Self::open_with(devices, clock, options, &mut |_| {})
    }

    /// As [`Volume::open`]; `progress` is called while recovery goes on.
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
                // As the kernel does, this ends what a crash has left, orphans and counts included, before the mount.
                let writing = Options { read_only: false, ..options.clone() };
                let opening = Opening { devices: &devices, clock: &clock, options: &writing, count_mount: false };
                opening.open(progress)?.close()?;
            }
        }
        Opening { devices: &devices, clock: &clock, options: &options, count_mount: true }.open(progress)
    }
}

/// Frees the orphans of an image whose journal is empty, as a mount and an unmount would, but counts no mount.
///
/// # Errors
/// As [`Volume::open`] and [`Volume::close`].
pub fn finish_orphans(devices: &Devices, clock: &Arc<dyn Clock>) -> Result<()> {
    let options = Options::default();
    Opening { devices, clock, options: &options, count_mount: false }.open(&mut |_| {})?.close()
}

/// A volume that is only read, without its journal: for recovery, `info` and `dump`.
///
/// # Errors
/// Corrupt or unsupported superblock, a truncated image, I/O.
pub fn peek(fs: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Volume> {
    let sb = read_superblock(&*fs)?;
    check_device(&sb, &*fs)?;
    Ok(assembled(assemble::read_only_engine(fs, clock, sb), Arc::default(), false))
}

fn assembled(engine: Engine, pace: Arc<Pace>, was_valid: bool) -> Volume {
    let engine = Arc::new(engine);
    let inner = Inner {
        data: Data::new(engine.clone(), pace),
        engine,
        was_valid,
        ticks: Mutex::default(),
        growing: Mutex::default(),
        shutting_down: Mutex::default(),
    };
    Volume { inner: Arc::new(inner), pool: Pool::User, misses: Misses::Load, left: None }
}

/// One mount on its way.
struct Opening<'o> {
    devices: &'o Devices,
    clock: &'o Arc<dyn Clock>,
    options: &'o Options,
    /// Note the mount in the superblock, if it writes.
    count_mount: bool,
}

impl Opening<'_> {
    fn open(&self, progress: &mut dyn FnMut(Progress)) -> Result<Volume> {
        let (devices, clock, options) = (self.devices, self.clock, self.options);
        check_choices(options.choices())?;
        let pace = Arc::new(Pace::default());
        let gate = Arc::new(FlushGate::new(Arc::new(Paced::new(devices.fs.clone(), clock.clone(), pace.clone()))));
        let before = first_superblock(devices, clock)?;
        check_device(&before, &*devices.fs)?;
        let mut read_only = self.why_read_only(&before)?;
        let pending = match options.no_load {
            false => Pending::find(devices, clock, &before, OnDamage::Refuse, progress)?.map(Arc::new),
            true => None,
        };
        // What a mount needs has been read before the first write.
        let outlook = preview::look(devices, pending.as_ref(), clock, &before)?;
        if read_only.is_none() && outlook.only_read.is_none() {
            recovery::check_log(pending.as_deref(), devices, &before, options.choices())?;
        }
        let mut sb = before.clone();
        let mut log = None;
        if !options.no_load {
            let pending = pending.map(|p| Arc::into_inner(p).expect("whoever looked has let go"));
            let clean = pending.map(|p| p.carry_out(devices, progress)).transpose()?;
            sb = superblock_after(&*devices.fs, &before)?;
            read_only = read_only.or(only_read(&sb)?);
            let clean = clean.filter(|_| read_only.is_none());
            log = clean.map(|c| recovery::open_log(c, &gate, &sb)).transpose()?;
            if read_only.is_none() {
                recovery::put_in_nvram(log.as_mut(), devices, &sb, options.choices())?;
            }
        }
        let was_valid = sb.state() & state::VALID != 0;
        let writable = read_only.is_none();
        let as_found = sb.clone();
        if writable && outlook.orphans.is_ok() {
            let kind = log.as_ref().and_then(|_| options.choices().log().ok());
            mark_in_use(&mut sb, kind.unwrap_or(None));
        }
        let mut marked = sb.clone();
        let engine = assemble::engine(gate.clone(), sb, clock.clone(), options.clone(), log, read_only);
        assemble::load_space(&engine)?;
        match outlook.orphans {
            _ if !writable => {}
            Ok(orphans) => {
                write_superblock(&gate, &mut marked)?;
                superblock_written(&engine);
                if self.count_mount {
                    note_mount(&engine)?;
                }
                end_orphans(&engine, &orphans)?;
            }
            Err(damage) => leave_orphans(&engine, as_found, &damage)?,
        }
        Ok(assembled(engine, pace, was_valid))
    }

    /// Why this mount does not write, if there is a reason.
    fn why_read_only(&self, sb: &Superblock) -> Result<Option<String>> {
        let by_feature = only_read(sb)?;
        Ok(if self.options.read_only {
            Some("mounted read-only".into())
        } else if self.options.no_load {
            Some("noload: a file system must not be changed without its journal".into())
        } else if self.devices.fs.info().read_only {
            Some("its source is write-protected".into())
        } else {
            by_feature
        })
    }
}

/// Notes in the superblock when and where it was mounted.
fn note_mount(engine: &Engine) -> Result<()> {
    engine.run(|op| {
        let now = u64::try_from(op.now().secs).unwrap_or(0);
        let sb = records::superblock_mut(op)?;
        sb.set_mount_time(now);
        sb.set_write_time(now);
        sb.set_mount_count(sb.mount_count().wrapping_add(1));
        let place = &engine.context.options.mounted_on;
        if !place.is_empty() {
            sb.set_last_mounted(place.as_bytes());
        }
        Ok(())
    })
}

/// Frees the inodes that the last mount left unlinked, and ends its truncates.
fn end_orphans(engine: &Engine, found: &Orphans) -> Result<()> {
    let done = names::finish_orphans(engine, found)?;
    if done.deleted + done.truncated > 0 {
        tracing::info!(done.deleted, done.truncated, "freed the orphans of the last mount");
    }
    Ok(())
}

/// Makes a mount read-only that cannot use the record of orphans, because it must not add to it. The image is not
/// marked as in use; that it has an error is all that is written, and only a flag changes (O1).
fn leave_orphans(engine: &Engine, mut sb: Superblock, damage: &Error) -> Result<()> {
    tracing::error!("{damage}");
    let is = if matches!(damage, Error::Corrupt(_)) { "is corrupt" } else { "cannot be read" };
    engine.write_gate.turn_read_only(&format!("the record of orphans {is} ({damage}): run e2fsck"));
    if sb.state() & state::ERROR == 0 {
        sb.set_state(sb.state() | state::ERROR);
        write_superblock(engine.journal.gate(), &mut sb)?;
        superblock_written(engine);
    }
    Ok(())
}

/// The primary superblock as a mount first sees it. If it is torn beyond what its flags explain, the journal's copy is
/// used: the replay will bring it home.
///
/// # Errors
/// Corrupt: neither can be used. I/O.
pub fn first_superblock(devices: &Devices, clock: &Arc<dyn Clock>) -> Result<Superblock> {
    let torn = match read_superblock(&*devices.fs) {
        Err(Error::Corrupt(c)) => c,
        other => return other,
    };
    let raw = devices.fs.read(superblock::OFFSET, superblock::SIZE, Region::Superblock)?;
    let Ok(guess) = Superblock::decode_unverified(&raw) else { return Err(torn.into()) };
    let from_log = || -> Result<Option<Superblock>> {
        let Some(found) = recovery::find_journal(devices, clock, &guess)? else { return Ok(None) };
        let plan = recovery::scan(&found.log, &guess, &mut |_| {})?;
        Ok(found.log.superblock_image(&plan)?)
    };
    match from_log() {
        Ok(Some(sb)) => {
            tracing::warn!("the superblock was torn; the copy in the journal is used");
            Ok(sb)
        }
        _ => Err(torn.into()),
    }
}

/// Refuses choices that do not go together.
fn check_choices(choices: Choices) -> Result<()> {
    choices.log().map(drop).map_err(|illegal| Unsupported::new(illegal.to_string()).into())
}
