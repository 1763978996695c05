//! A modelled device that one mounter after the other uses, the rounds on it, and what they came to.
//!
//! ```text
//! for each round, for each mounter:
//!   mke2fs, [NVRAM file], mount, prepare, { get ready, sync, count, work, count } for each phase, unmount,
//!   [no NVRAM file]
//! ```
//!
//! The device takes no time for mke2fs and the last unmount, which nothing measures.
//!
//! A study that mounts more than once in a round does so with a [`Fresh`] file system.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::journal_device::{JournalDevice, is_external};
use super::{label, point_of_rounds};
use crate::cmd::{run_tool, text};
use crate::dirty_limit::DirtyLimit;
use crate::interrupt::{self, Folder};
use crate::mounter::{Mounted, Mounter};
use crate::results::Figure;
use crate::served::{Asked, Kind, Looped};
use crate::stats::median;
use crate::turns::turns;

/// What a phase of a workload came to.
pub(super) struct Measured<T> {
    pub(super) of: T,
    pub(super) asked: Asked,
    pub(super) seconds: f64,
}

pub(super) struct Bed {
    disk: Looped,
    journal: Option<JournalDevice>,
    dir: Folder,
    journal_mib: u64,
    dirty_bytes: Option<u64>,
    inode_bytes: Option<&'static str>,
    format: &'static str,
}

impl Bed {
    /// A device of this model of so many MiB, for journals of so many, on it or in NVRAM.
    pub(super) fn new(model: &str, mib: u64, journal_mib: u64) -> Result<Self> {
        let dir = Folder::temporary("quire-mounts-")?;
        let kind: Kind = model.parse()?;
        let disk = Looped::new(&kind, mib << 20, dir.path())?;
        Ok(Bed { disk, journal: None, dir, journal_mib, dirty_bytes: None, inode_bytes: None, format: "ext4" })
    }

    /// Beside it a device of this model for the journals of mounters that have an external one.
    pub(super) fn with_journal_device(self, model: &str) -> Result<Self> {
        let journal = JournalDevice::new(model, self.journal_mib, &self.dir.path().join("journal"))?;
        Ok(Bed { journal: Some(journal), ..self })
    }

    /// File systems have inodes of so many bytes, instead of mke2fs' default.
    pub(super) fn with_inodes_of(self, bytes: &'static str) -> Self {
        Bed { inode_bytes: Some(bytes), ..self }
    }

    /// File systems have this format of mke2fs (`-t`).
    pub(super) fn with_format(self, format: &'static str) -> Self {
        Bed { format, ..self }
    }

    /// The kernel may keep at most so many dirty bytes of each mount in its page cache.
    pub(super) fn limit_dirty(&mut self, bytes: u64) {
        self.dirty_bytes = Some(bytes);
    }

    /// Measures every phase on each mounter once a round. Everything is durable before a phase begins.
    pub(super) fn rounds<P: Copy, T>(
        &self,
        rounds: usize,
        mounters: &[Mounter],
        prepare: impl Fn(&Path) -> Result<()>,
        phases: &[P],
        work: impl Fn(&Path, P) -> Result<T>,
    ) -> Result<Rounds<T>> {
        self.turns(rounds, mounters, prepare, phases, |_, _| Ok(()), |dir, phase, ()| work(dir, phase))
    }

    /// The same, where each phase gets ready just before it is measured, and works with what came of that.
    pub(super) fn rounds_of_ready<P: Copy, S, T>(
        &self,
        rounds: usize,
        mounters: &[Mounter],
        phases: &[P],
        ready: impl Fn(&Path, P) -> Result<S>,
        work: impl Fn(P, S) -> Result<T>,
    ) -> Result<Rounds<T>> {
        self.turns(rounds, mounters, |_| Ok(()), phases, ready, |_, phase, of| work(phase, of))
    }

    fn turns<P: Copy, S, T>(
        &self,
        rounds: usize,
        mounters: &[Mounter],
        prepare: impl Fn(&Path) -> Result<()>,
        phases: &[P],
        ready: impl Fn(&Path, P) -> Result<S>,
        work: impl Fn(&Path, P, S) -> Result<T>,
    ) -> Result<Rounds<T>> {
        self.each(rounds, mounters, |fresh| {
            let mounted = fresh.mount()?;
            let limit = self.dirty_bytes.map(|bytes| DirtyLimit::set(mounted.dir(), bytes)).transpose()?;
            prepare(mounted.dir())?;
            let measured = phases.iter().map(|phase| {
                let of = ready(mounted.dir(), *phase)?;
                sync(mounted.dir())?;
                fresh.measured(|| work(mounted.dir(), *phase, of))
            });
            let measured = measured.collect::<Result<_>>()?;
            drop(limit);
            self.set_timed(false)?;
            mounted.unmount()?;
            Ok(measured)
        })
    }

    /// Does this once a round with a file system that was made for each mounter.
    pub(super) fn each<T>(
        &self,
        rounds: usize,
        mounters: &[Mounter],
        once: impl Fn(&Fresh<'_>) -> Result<Vec<Measured<T>>>,
    ) -> Result<Rounds<T>> {
        let mut all = Rounds { of: mounters.iter().map(|m| (label(m), Vec::new())).collect() };
        for (_, who) in turns(rounds, mounters.len()) {
            let mounter = &mounters[who];
            let measured = Fresh::make(self, mounter).and_then(|fresh| once(&fresh));
            all.of[who].1.push(measured.with_context(|| mounter.to_string())?);
        }
        Ok(all)
    }

    /// The device of a mounter's journal, if it is another than the file system's.
    fn journal_of(&self, mounter: &Mounter) -> Result<Option<&JournalDevice>> {
        let journal = || self.journal.as_ref().context("an external journal, and no device for it");
        is_external(mounter).then(journal).transpose()
    }

    fn format(&self, mounter: &Mounter) -> Result<()> {
        let mut mke2fs =
            vec!["-q", "-F", "-t", self.format, "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let external = self.journal_of(mounter)?;
        external.map(JournalDevice::format).transpose()?;
        let journal = external.map_or_else(|| format!("size={}", self.journal_mib), JournalDevice::of_mke2fs);
        mke2fs.extend(self.inode_bytes.iter().flat_map(|bytes| ["-I", bytes]));
        match mounter.feature() {
            Some(feature) if feature.starts_with('^') => mke2fs.extend(["-O", feature]),
            Some(feature) => mke2fs.extend(["-O", feature, "-J", &journal]),
            None => mke2fs.extend(["-J", &journal]),
        }
        run_tool("mke2fs", mke2fs.into_iter().chain([text(self.disk.device())])).map(drop)
    }

    /// Whether the devices take their time.
    fn set_timed(&self, timed: bool) -> Result<()> {
        self.disk.set_timed(timed)?;
        self.journal.as_ref().map_or(Ok(()), |journal| journal.set_timed(timed))
    }

    /// What was asked of all devices.
    fn asked(&self) -> Result<Asked> {
        let asked = self.disk.asked()?.context("a device of the machine's counts nothing")?;
        match &self.journal {
            Some(journal) => Ok(asked.plus(journal.asked()?)),
            None => Ok(asked),
        }
    }
}

/// A file system that was made for a mounter, which may mount it more than once.
pub(super) struct Fresh<'a> {
    bed: &'a Bed,
    /// As the study names it.
    mounter: &'a Mounter,
    /// With all options.
    told: Mounter,
    /// Of a simulated NVRAM, if it has one.
    _memory: Option<Folder>,
}

impl<'a> Fresh<'a> {
    fn make(bed: &'a Bed, mounter: &'a Mounter) -> Result<Self> {
        bed.set_timed(false)?;
        bed.format(mounter)?;
        bed.set_timed(true)?;
        let told = bed.journal_of(mounter)?.map_or_else(|| mounter.clone(), |journal| journal.told_to(mounter));
        let (told, _memory) = told.with("noatime").with_memory(bed.journal_mib)?;
        Ok(Fresh { bed, mounter, told, _memory })
    }

    /// The mounter that it was made for.
    pub(super) fn mounter(&self) -> &Mounter {
        self.mounter
    }

    pub(super) fn mount(&self) -> Result<Mounted> {
        self.told.mount(self.bed.disk.device(), &self.bed.dir.path().join("mnt"))
    }

    /// Measures this work, and what it asks of the devices.
    pub(super) fn measured<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<Measured<T>> {
        interrupt::check()?;
        let (before, began) = (self.bed.asked()?, Instant::now());
        let of = work()?;
        let (seconds, asked) = (began.elapsed().as_secs_f64(), self.bed.asked()?.since(before));
        eprintln!("{}: {seconds:.1} s; {}", self.mounter, asked.to_string().trim_end().replace('\n', ", "));
        Ok(Measured { of, asked, seconds })
    }
}

/// Makes everything on a mount durable.
pub(super) fn sync(dir: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(std::fs::File::open(dir)?)?)
}

/// What each mounter came to: its name, and of each round the phases.
pub(super) struct Rounds<T> {
    of: Vec<(String, Vec<Vec<Measured<T>>>)>,
}

impl<T> Rounds<T> {
    /// Of these names and rounds.
    #[cfg(test)]
    pub(super) fn of(of: Vec<(String, Vec<Vec<Measured<T>>>)>) -> Self {
        Rounds { of }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.of.iter().map(|(name, _)| &**name)
    }

    /// A figure of each round of a mounter in a phase; none if that mounter did not run.
    pub(super) fn values(&self, name: &str, phase: usize, value: impl Fn(&Measured<T>) -> f64) -> Vec<f64> {
        let rounds = self.of.iter().filter(|(of, _)| of == name).flat_map(|(_, rounds)| rounds);
        rounds.map(|phases| value(&phases[phase])).collect()
    }

    /// Their median; NaN if that mounter did not run.
    pub(super) fn median(&self, name: &str, phase: usize, value: impl Fn(&Measured<T>) -> f64) -> f64 {
        median(&self.values(name, phase, value))
    }

    /// A place on the figure for each mounter, with a series for each of these phases.
    pub(super) fn drawn(&self, mut figure: Figure, phases: &[usize], value: impl Fn(&Measured<T>) -> f64) -> Figure {
        for name in self.names() {
            let points = phases.iter().map(|phase| point_of_rounds(self.values(name, *phase, &value)));
            figure.place(name, points.collect::<Vec<_>>());
        }
        figure
    }

    /// The same with a series for each mounter, and with the phases as places, by these names.
    pub(super) fn drawn_along(
        &self,
        figure: Figure,
        phases: &[(usize, String)],
        value: impl Fn(&Measured<T>) -> f64,
    ) -> Figure {
        let mut figure = figure.of_series(self.names());
        for (phase, place) in phases {
            let points = self.names().map(|name| point_of_rounds(self.values(name, *phase, &value)));
            figure.place(place, points.collect::<Vec<_>>());
        }
        figure
    }

    /// The same with a series for each of these values of one phase.
    pub(super) fn drawn_by(&self, mut figure: Figure, phase: usize, values: &[fn(&Measured<T>) -> f64]) -> Figure {
        for name in self.names() {
            let points = values.iter().map(|value| point_of_rounds(self.values(name, phase, value)));
            figure.place(name, points.collect::<Vec<_>>());
        }
        figure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_the_medians_of_a_mounters_rounds_and_a_missing_mounter_has_none() {
        let measured = |seconds| Measured { of: (), asked: Asked::default(), seconds };
        let rounds = [[1.0, 10.0], [3.0, 30.0], [2.0, 50.0]].map(|round| round.map(measured).into()).into();
        let all = Rounds { of: vec![("kernel none".into(), rounds)] };
        let figure = all.drawn(Figure::bars("f", "", "", "", "s").of_series(["a"]), &[1], |m| m.seconds);
        let point = figure.series[0].points[0].unwrap();
        assert_eq!((&*figure.places[0], point.value, point.deviation), ("kernel none", 30.0, Some(20.0)));
        let along = all.drawn_along(Figure::lines("f", "", "", "", "s"), &[(0, "x".into())], |m| m.seconds);
        assert_eq!((&*along.series[0].name, &*along.places[0]), ("kernel none", "x"));
        assert_eq!(along.series[0].points[0].unwrap().value, 2.0);
        assert!((all.median("kernel none", 0, |m| m.seconds) - 2.0).abs() < 1e-9);
        assert!(all.median("quire auto", 0, |m| m.seconds).is_nan());
    }
}
