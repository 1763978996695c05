//! JoJ's cases on the library ([`crate::work::vfs`]), on a modelled device in virtual time: what passes is what the
//! device takes, and what the database's thread computes, SQLite and the file system. A page cache stands between them
//! as on a mount, but nothing of the kernel's counts, and no other program's work.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use quire_device::Clock;
use quire_device::sync::Arc;
use quire_fs::{CommitMode, Error, Route};
use quire_layout::Ino;
use quire_testkit::Model;

use super::plan::{IMAGE_MIB, Plan, Series};
use crate::mounter::{Mounter, Who};
use crate::rig::{self, Body, Rig};
use crate::served::Kind;
use crate::work::sqlite::{DATABASE, Load, SUFFIXES, run_on};
use crate::work::vfs::Vfs;

/// Size of a journal, also in NVRAM.
const JOURNAL_MIB: u64 = 128;

/// The device to model.
pub(super) fn device(kind: &Kind) -> Result<Model> {
    match kind {
        Kind::Own => bail!("virtual time wants a modelled device: --device {}", Model::NAMES.join(", ")),
        // The page cache above keeps what was read.
        Kind::Modelled { model, .. } => Ok(Model { cached: true, ..*model }),
    }
}

/// The rig of a competitor, which is a profile.
fn plan_of(mounter: &Mounter, model: Model) -> Result<rig::Plan> {
    let how = mounter.options.strip_prefix("profile=").filter(|_| mounter.who == Who::Quire);
    let how = how.ok_or_else(|| anyhow!("{mounter}: in virtual time want quire:profile=NAME"))?;
    let (name, changes) = how.split_once(',').unwrap_or((how, ""));
    let base = rig::Plan::new(model, rig::profile(name)?);
    let mut choices = base.options.choices();
    // Without a journal, ext4_sync_file of Linux 3.1 writes and does not flush.
    let flush = if choices.route == Route::None { Duration::ZERO } else { model.flush };
    for change in changes.split(',').filter(|c| !c.is_empty()) {
        match change.split_once('=') {
            Some(("commit_mode", value)) => choices.commit = value.parse()?,
            Some(("checkpoint", value)) => choices.checkpoint = value.parse()?,
            _ => bail!("{mounter}: in virtual time a profile may have commit_mode= and checkpoint= besides"),
        }
    }
    choices.log().map_err(|e| anyhow!("{mounter}: {e}"))?;
    let in_nvram = choices.commit == CommitMode::Nvram;
    Ok(rig::Plan {
        mib: IMAGE_MIB,
        journal_mib: JOURNAL_MIB,
        nvram: in_nvram.then_some(Duration::ZERO),
        options: base.options.clone().with(choices),
        model: Model { flush, ..model },
        ..base
    })
}

/// The times of one round.
pub(super) fn one(plan: &Plan, series: &Series, model: Model) -> Result<Vec<f64>> {
    let rig = Rig::new(&plan_of(&series.mounter, model)?)?;
    let vfs = Vfs::like_a_mount("quire", rig.volume.clone(), Arc::new(rig.world.clone()))?;
    let body: Body<'_, Result<Vec<f64>>> = Box::new(|| {
        let mut times = Vec::new();
        for protection in &series.protections {
            for load in plan.loads(*protection) {
                times.extend(case(&rig, &vfs, load)?);
            }
        }
        Ok(times)
    });
    let times = rig.run(vec![body]).pop().expect("one thread")?;
    drop(vfs);
    rig.close().context("after the cases")?;
    Ok(times)
}

fn case(rig: &Rig, vfs: &Vfs, load: Load) -> Result<[f64; 3]> {
    for suffix in SUFFIXES {
        match rig.volume.unlink(Ino::ROOT, format!("{DATABASE}{suffix}").as_bytes()) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let db = vfs.open(DATABASE)?;
    vfs.charge().start();
    run_on(&db, load, &|| {
        vfs.charge().pass();
        rig.world.monotonic()
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan::STOCK_JOURNAL;
    use super::*;
    use crate::work::sqlite::{PAGE_OF_2013, Protection};
    use quire_fs::Checkpoint;

    fn plan() -> Plan {
        Plan {
            kinds: vec!["ssd".parse().unwrap()],
            mounters: Vec::new(),
            rounds: 1,
            small: 20,
            large: 100,
            page: PAGE_OF_2013,
            of_paper: Vec::new(),
            figure4: false,
            on_library: true,
            work: "/".into(),
        }
    }

    #[test]
    fn every_case_takes_its_flushes_on_the_library() {
        let plan = plan();
        let model = device(&plan.kinds[0]).unwrap();
        let flush = model.flush.as_secs_f64() * 1e3;
        let protections = vec![Protection::Wal, Protection::Delete];
        let run = |name: &str| {
            let mounter = Mounter::quire(&format!("profile={name}"));
            one(&plan, &Series { mounter, protections: protections.clone() }, model).unwrap()
        };
        let (none, single, djfs) = (run("ext4-none"), run("single-io"), run("djfs"));
        // What this costs in time is within the noise of the processor, which these times include.
        let stock = plan_of(&Mounter::quire(STOCK_JOURNAL), model).unwrap();
        assert_eq!(stock.options.choices().checkpoint, Checkpoint::Fsync, "stock ext4 writes home at each fsync");
        // One fdatasync to a transaction of a write-ahead log, three and one of the directory with a rollback journal;
        // that one finds the name durable.
        for (flushes, cases) in [(1.0, 0..3), (3.0, 6..9)] {
            assert!(single[cases.clone()].iter().all(|ms| *ms >= flushes * flush), "{single:?}");
            assert!(none[cases.clone()].iter().all(|ms| *ms < flush), "without a journal nothing is flushed: {none:?}");
            assert!(djfs[cases].iter().all(|ms| *ms < flush), "{djfs:?}");
        }
        assert!(device(&Kind::Own).is_err());
        for odd in ["kernel:data=ordered", "quire:profile=joj,record=range", "quire:profile=joj,checkpoint=regions:2"] {
            assert!(plan_of(&odd.parse().unwrap(), model).is_err(), "{odd}");
        }
    }

    /// JoJ, section 3.1: "once vs. four times".
    #[test]
    fn a_transaction_syncs_once_with_a_write_ahead_log_and_four_times_with_a_rollback_journal() {
        let plan = plan();
        let model = device(&plan.kinds[0]).unwrap();
        for (protection, each) in [(Protection::Wal, 1), (Protection::Delete, 4)] {
            let rig = Rig::new(&plan_of(&Mounter::quire("profile=joj"), model).unwrap()).unwrap();
            let vfs = Vfs::like_a_mount("quire", rig.volume.clone(), Arc::new(rig.world.clone())).unwrap();
            let syncs = |rows| {
                let before = vfs.syncs();
                let load = Load { protection, operations: 1, rows, page: PAGE_OF_2013 };
                let body: Body<'_, Result<[f64; 3]>> = Box::new(|| case(&rig, &vfs, load));
                rig.run(vec![body]).pop().unwrap().unwrap();
                vfs.syncs() - before
            };
            // Three steps of 30 transactions more; what begins and ends a case is the same in both.
            let (few, more) = (syncs(10), syncs(40));
            assert_eq!(more - few, each * 3 * 30, "{protection:?}");
            drop(vfs);
            rig.close().unwrap();
        }
    }
}
