//! The calls of whoever runs the volume: freeze, thaw, unmount, commits and checkpoints.

use super::clean::{mark_clean, mark_used};
use super::handle::{Inner, Volume};
use super::lifetime;
use super::trim;
use crate::config::RuntimeOptions;
use crate::data;
use crate::engine::lifecycle::{Event, Phase, Quiescent};
use crate::error::{Error, Result};
use crate::names::evict;
use quire_device::{Latencies, Mutant};
use quire_journal::{JournalLatencies, JournalStats};

/// The upkeep of a volume.
#[derive(Clone, Copy)]
pub struct Maintenance<'v> {
    pub(super) volume: &'v Volume,
}

/// How long the work of a volume took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeLatencies {
    /// Calls of fsync and fdatasync, and others that are made durable as such: from the call to its end.
    pub fsync: Latencies,
    pub journal: JournalLatencies,
}

impl Volume {
    /// Freeze, thaw, commits, checkpoints and background work.
    #[must_use]
    pub fn maintenance(&self) -> Maintenance<'_> {
        Maintenance { volume: self }
    }

    /// Unmounts. Calls that are under way end first, later ones are refused as read-only, and callers that wait for a
    /// thaw are refused, too. Afterwards the image is clean. A second call waits for the first and does nothing.
    ///
    /// # Errors
    /// Something could not be made durable; the image then needs recovery, as after a crash.
    pub fn close(&self) -> Result<()> {
        let inner = &*self.inner;
        let Some(before) = inner.engine.lifecycle.begin(Event::Close)? else { return Ok(()) };
        let quiescent = inner.engine.lifecycle.drain();
        let done = close(inner, before, &quiescent);
        inner.engine.write_gate.unmount();
        inner.engine.lifecycle.end(quiescent, done.is_ok());
        done
    }
}

fn close(inner: &Inner, before: Phase, quiescent: &Quiescent<'_>) -> Result<()> {
    let (engine, d) = (&inner.engine, &inner.data);
    if before != Phase::Frozen {
        engine.settle_error();
    }
    if let Err(read_only) = engine.write_gate.check() {
        return check_nothing_lost(inner, read_only);
    }
    if before == Phase::Frozen {
        if engine.tables().orphans.all().is_empty() && !engine.has_unrecorded_error() {
            return Ok(()); // It is clean, and nothing has changed since.
        }
        mark_used(engine, quiescent)?;
        engine.record_late();
    }
    lifetime::free_all(engine, d);
    // Lost data of a file is reported, and does not keep the image from being clean.
    let synced = data::sync(d);
    mark_clean(engine, inner.was_valid, quiescent)?;
    synced
}

/// The end of a volume that cannot be written to any more, for the reason `read_only`.
///
/// # Errors
/// Something that was accepted is not durable.
fn check_nothing_lost(inner: &Inner, read_only: Error) -> Result<()> {
    let (engine, d) = (&inner.engine, &inner.data);
    // What a shutdown has left is for the next mount.
    if engine.write_gate.is_shut_down() {
        return Ok(());
    }
    if let Some(e) = engine.journal.failure() {
        return Err(e.into());
    }
    data::check_any_error(d)?;
    let is_pending = d.unwritten_bytes() > 0 || engine.journal.has_changes();
    if is_pending { Err(read_only) } else { Ok(()) }
}

impl Maintenance<'_> {
    /// Brings the image into a clean, consistent state and keeps it there: calls that would change it wait for
    /// [`Maintenance::thaw`]. Calls that are under way end first.
    ///
    /// # Errors
    /// As [`Volume::close`]; busy if the volume is frozen or being frozen; read-only.
    pub fn freeze(&self) -> Result<()> {
        let inner = &*self.volume.inner;
        inner.engine.write_gate.check()?;
        // Most is written while calls are still admitted, so that they wait a short time.
        if let Ok(_pass) = self.volume.inner.try_enter() {
            data::write_back_all(&inner.data);
        }
        inner.engine.lifecycle.begin(Event::Freeze)?;
        let quiescent = inner.engine.lifecycle.drain();
        let done = freeze(inner, &quiescent);
        inner.engine.lifecycle.end(quiescent, done.is_ok());
        if done.is_err()
            && let Ok(_pass) = inner.try_enter()
        {
            inner.engine.settle_error();
        }
        done
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// Invalid: the volume is not frozen. Read-only: unmounted. I/O: the volume stays frozen.
    pub fn thaw(&self) -> Result<()> {
        let v = self.volume;
        v.inner.engine.lifecycle.begin(Event::Thaw)?;
        let quiescent = v.inner.engine.lifecycle.drain();
        // A volume that is shut down stays clean.
        let skips = Mutant::ThawUnmarked.is_on() || v.inner.engine.write_gate.is_shut_down();
        let done = if skips { Ok(()) } else { mark_used(&v.inner.engine, &quiescent) };
        v.inner.engine.lifecycle.end(quiescent, done.is_ok());
        done?;
        if let Ok(_pass) = v.inner.try_enter() {
            v.inner.engine.settle_error();
            lifetime::free_unused(&v.inner.engine, &v.inner.data);
        }
        Ok(())
    }

    /// Waits while the volume is frozen.
    ///
    /// # Errors
    /// Read-only: unmounted.
    pub fn until_thawed(&self) -> Result<()> {
        self.volume.inner.enter().map(drop)
    }

    /// Writes back all data, so that the running transaction has the blocks, sizes and times of everything written so
    /// far. Nothing becomes durable.
    ///
    /// # Errors
    /// Something could not be written, now or earlier.
    pub fn write_back(&self) -> Result<()> {
        let inner = &*self.volume.inner;
        if let Some(_pass) = inner.enter_unless_frozen()? {
            data::write_back_all(&inner.data);
        }
        data::check_any_error(&inner.data)
    }

    /// Makes everything durable that operations have changed so far. Data in pages stays there.
    ///
    /// # Errors
    /// The commit failed; the journal is then aborted.
    pub fn commit(&self) -> Result<()> {
        match self.volume.inner.enter_unless_frozen()? {
            Some(_pass) => self.volume.inner.engine.commit_all(),
            None => Ok(()),
        }
    }

    /// Writes everything home that is durable only in the log, so that recovery after a crash is short.
    ///
    /// # Errors
    /// I/O; the journal is then aborted.
    pub fn checkpoint(&self) -> Result<()> {
        match self.volume.inner.enter_unless_frozen()? {
            Some(_pass) => Ok(self.volume.inner.engine.journal.checkpoint_now()?),
            None => Ok(()),
        }
    }

    /// Discards free space between byte `start` and `start + len`, in runs of at least `min` bytes. Returns the bytes
    /// discarded.
    ///
    /// # Errors
    /// Invalid range; not supported by the device; read-only; corrupt bitmaps; I/O.
    pub fn trim(&self, start: u64, len: u64, min: u64) -> Result<u64> {
        let _pass = self.volume.inner.enter()?;
        trim::trim(&self.volume.inner.engine, start, len, min)
    }

    /// The options that can change, as they are now.
    #[must_use]
    pub fn options(&self) -> RuntimeOptions {
        self.volume.inner.engine.context.runtime()
    }

    /// Changes options of a volume in use. Calls that are under way may still go by the old ones.
    pub fn set_options(&self, options: RuntimeOptions) {
        self.volume.inner.engine.context.set_runtime(options);
        // The background waits for as long as the old interval said.
        self.volume.inner.engine.journal.wake();
    }

    /// How long fsync, commits and checkpoints took since the mount.
    #[must_use]
    pub fn latencies(&self) -> VolumeLatencies {
        let inner = &self.volume.inner;
        VolumeLatencies { fsync: inner.data.fsync.snapshot(), journal: inner.engine.journal.latencies() }
    }

    /// Bytes that callers wrote and that wait in memory for writeback.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        self.volume.inner.data.unwritten_bytes()
    }

    /// The journal's statistics since the mount.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        self.volume.inner.engine.journal.stats()
    }
}

fn freeze(inner: &Inner, quiescent: &Quiescent<'_>) -> Result<()> {
    let engine = &inner.engine;
    evict::free_pending(engine);
    data::write_back_all(&inner.data);
    engine.settle_error();
    engine.write_gate.check()?;
    let done = mark_clean(engine, inner.was_valid, quiescent);
    if done.is_err() && engine.write_gate.check().is_ok() {
        // The image may be marked clean already. A volume must not be written to behind such a mark (L1).
        if let Err(e) = mark_used(engine, quiescent) {
            engine.note_error(&e);
            engine.write_gate.turn_read_only("a freeze failed, and the image may be marked clean");
        }
    }
    done
}
