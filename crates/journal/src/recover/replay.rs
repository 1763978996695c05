//! The third pass: images go home.

use super::clean::{CleanLog, Damage, empty_log, superblock_place};
use super::images::Made;
use super::load::{load, load_all};
use super::plan::{Plan, Planned};
use super::progress::{Phase, Progress};
use super::runs::Bodies;
use super::undo::{SavedFrom, Undo};
use super::unrecovered::UnrecoveredLog;
use crate::error::Error;
use crate::geometry::LogWindow;
use crate::policy::{BLOCKS_TO_A_TRANSFER, IMAGES_AT_ONCE, REPLAYED_AT_ONCE};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Io, Region};
use quire_layout::BlockNo;
use quire_layout::superblock::Superblock;

impl UnrecoveredLog {
    /// Writes the plan's images home, flushes, and empties the log. Interrupted anywhere, it may be run again from
    /// the start (R1). Damage that the plan reports does not stop it: the caller looks at [`Plan::is_damaged`] first.
    ///
    /// # Errors
    /// Unsupported: fast commits; then nothing has been written. Device: the log is as it was.
    pub fn replay(
        mut self,
        mut plan: Plan,
        home: &Arc<dyn BlockDevice>,
        mut undo: Option<&mut dyn Undo>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CleanLog, Error> {
        plan.check_supported()?;
        if self.is_clean() {
            // The power went when a damaged log had been emptied, and the memory that held it was yet to be given up.
            if let Some(memory) = self.nvram.as_ref().filter(|_| self.superblock.errno() != 0) {
                memory.give_up(self.superblock.sequence())?;
            }
            return Ok(self.into_clean().expect("it is clean"));
        }
        let total = u64::try_from(plan.images.len()).expect("bounded by the log");
        self.images_home(&mut plan, home, &mut undo, &mut |done| {
            progress(Progress { phase: Phase::Replay, done, total });
        })?;
        if plan.nvram_end.is_some() {
            self.expect_next(plan.end, &mut undo)?;
        }
        // R2: home first, then the log may forget.
        home.run(vec![Io::Flush])?;
        if let (Some(end), Some(memory)) = (plan.nvram_end, &self.nvram) {
            crate::nvram::move_tail(&*memory.memory, end, plan.end)?;
        }
        let damage = Damage { bad: plan.bad, failed_commit: plan.failed_commit };
        let next = plan.last_used.next();
        let gives_up = self.nvram.clone().filter(|_| plan.nvram_end.is_some() && !damage.is_none());
        let clean = empty_log(self, next, damage, &mut undo)?;
        if let Some(memory) = gives_up {
            memory.give_up(next)?;
        }
        Ok(clean)
    }

    /// Writes home the images that were made when the log was judged, or makes them anew, some at a time. Bad images
    /// are left out: the plan reports them.
    fn images_home(
        &self,
        plan: &mut Plan,
        home: &Arc<dyn BlockDevice>,
        undo: &mut Option<&mut dyn Undo>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Error> {
        let bs = self.format.block_size;
        let mut done = 0;
        let mut go_home = |blocks: &[(BlockNo, Arc<Buf>)], of: usize| -> Result<(), Error> {
            write_home(home, bs, blocks, undo)?;
            done += u64::try_from(of).expect("bounded by the log");
            progress(done);
            Ok(())
        };
        if let Some(ready) = plan.ready.take() {
            return go_home(&ready, ready.len());
        }
        let mut window = LogWindow::new(&self.geometry, self.superblock.end());
        let all: Vec<_> = plan.chains.iter().map(|(b, c)| (*b, c)).collect();
        for batch in all.chunks(IMAGES_AT_ONCE >> bs.bits()) {
            let made = self.make_images(home, batch, &Bodies::default(), &mut window)?;
            let image = |((b, _), made): (&(BlockNo, _), Made)| match made {
                Made::Image(image) => Some((*b, image)),
                Made::AtHome | Made::Bad(_) => None,
            };
            let blocks: Vec<(BlockNo, Arc<Buf>)> = batch.iter().zip(made).filter_map(image).collect();
            go_home(&blocks, batch.len())?;
        }
        if !self.is_quire() {
            plan.images.sort_unstable_by_key(|p| p.log);
            for chunk in plan.images.chunks(REPLAYED_AT_ONCE >> bs.bits()) {
                go_home(&load_all(&mut window, chunk)?, chunk.len())?;
            }
        }
        Ok(())
    }

    /// The file system's superblock as the log has it, if the plan writes it: what serves when the one at home is
    /// torn beyond [`Superblock::decode_torn`] ([`Superblock::decode_unverified`] finds the journal then).
    ///
    /// # Errors
    /// Device; corrupt: the log's copy is no superblock.
    pub fn superblock_image(&self, plan: &Plan) -> Result<Option<Superblock>, Error> {
        let (at, offset) = superblock_place(self.format.block_size);
        let Some(p) = plan.image_of(at) else { return Ok(None) };
        let image = self.image(plan, p)?;
        let (sb, _) = Superblock::decode_torn(&image[offset..]).map_err(|e| e.at(at))?;
        Ok(Some(sb))
    }

    /// The content that a replay would give a block. What the plan does not hold is read, and no more than that: the
    /// next block that is asked for may stand anywhere.
    ///
    /// # Errors
    /// Device.
    pub fn image(&self, plan: &Plan, p: &Planned) -> Result<Buf, Error> {
        if let Some(image) = plan.ready_image(p.home) {
            return Ok(Buf::clone(image));
        }
        let mut window = LogWindow::without_reading_ahead(&self.geometry);
        if let Some(chain) = plan.chains.get(&p.home) {
            let chains = [(p.home, chain)];
            let made = self.make_images(&self.home_device(), &chains, &Bodies::default(), &mut window)?;
            return Ok(match made.into_iter().next() {
                Some(Made::Image(image)) => Buf::clone(&image),
                _ => Buf::zeroed(self.format.block_size.bytes()),
            });
        }
        load(&mut window, p).map(|(_, image)| Buf::copy_of(&image))
    }
}

/// Writes blocks that are sorted by place, neighbours together.
fn write_home(
    home: &Arc<dyn BlockDevice>,
    bs: quire_layout::BlockSize,
    blocks: &[(BlockNo, Arc<Buf>)],
    undo: &mut Option<&mut dyn Undo>,
) -> Result<(), Error> {
    let runs: Vec<&[(BlockNo, Arc<Buf>)]> =
        blocks.chunk_by(|a, b| a.0.0 + 1 == b.0.0).flat_map(|run| run.chunks(BLOCKS_TO_A_TRANSFER)).collect();
    if let Some(undo) = undo {
        let reads = runs.iter().map(|run| Io::Read {
            at: bs.offset(run[0].0),
            buf: Buf::zeroed(run.len() * bs.bytes()),
            region: Region::Metadata,
        });
        let old = home.run(reads.collect())?.reads;
        let split = |(run, old): (&&[(BlockNo, Arc<Buf>)], &Buf)| -> Vec<(BlockNo, Buf)> {
            run.iter().map(|(at, _)| *at).zip(old.chunks_exact(bs.bytes()).map(Buf::copy_of)).collect()
        };
        let old: Vec<_> = runs.iter().zip(&old).flat_map(split).collect();
        undo.save(SavedFrom::Home, &old)?;
    }
    let writes = runs.iter().map(|run| Io::Write {
        at: bs.offset(run[0].0),
        data: run.iter().map(|(_, image)| Arc::clone(image)).collect(),
        region: Region::Metadata,
        fua: false,
    });
    home.run(writes.collect())?;
    Ok(())
}
