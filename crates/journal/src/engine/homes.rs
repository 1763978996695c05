//! Images from and to the blocks' homes.

use super::shared::Shared;
use crate::choices::Record;
use crate::error::Error;
use crate::log::Log;
use quire_cache::Image;
use quire_device::sync::{Arc, lock, wait};
use quire_device::{Buf, Io, Region};
use quire_layout::{BlockNo, Tid};

/// Blocks to a device read or write, at most.
const RUN: usize = 256;

impl Shared {
    /// Reads blocks, in order, from their homes. Neighbours are read at once.
    pub(crate) fn read_home(&self, sorted: &[BlockNo]) -> Result<Vec<(BlockNo, Image)>, Error> {
        let bs = self.config.block_size;
        let runs: Vec<&[BlockNo]> = sorted.chunk_by(|a, b| a.0 + 1 == b.0).flat_map(|r| r.chunks(RUN)).collect();
        let batch = (runs.iter())
            .map(|r| Io::Read { at: bs.offset(r[0]), buf: Buf::zeroed(r.len() * bs.bytes()), region: Region::Metadata })
            .collect();
        let done = self.gate.device().run(batch)?;
        let mut images = Vec::with_capacity(sorted.len());
        for (run, buf) in runs.iter().zip(&done.reads) {
            for (b, bytes) in run.iter().zip(buf.chunks_exact(bs.bytes())) {
                images.push((*b, Arc::new(Buf::copy_of(bytes))));
            }
        }
        Ok(images)
    }

    /// The images to write, and the floor under which freed blocks may be reused meanwhile (J9), taken at one moment: a
    /// commit takes out what it revokes under the core's lock before it raises `durable`.
    pub(crate) fn begin_home_writes(&self, upto: Tid) -> Vec<(BlockNo, Image)> {
        let mut core = lock(&self.core);
        // A commit under way may write a delta over an image whose chain would end here. It holds no lock that we hold.
        // With regions no chain leaves its region, and none that is under way begins in one that is passed (V6).
        let regions = self.config.choices.by_regions();
        while core.chosen && !regions && self.config.choices.record == Record::Delta {
            core = wait(&self.unchosen, core);
        }
        let mut commit = lock(&self.commits);
        commit.checkpoint_floor = Some(commit.durable);
        core.home_writes(upto)
    }

    /// Writes images to their homes, neighbours at once; complete, not durable.
    pub(crate) fn write_home(&self, blocks: &[(BlockNo, Image)]) -> Result<(), Error> {
        let bs = self.config.block_size;
        let runs = blocks.chunk_by(|a, b| a.0.0 + 1 == b.0.0).flat_map(|r| r.chunks(RUN));
        let batch: Vec<Io> = runs
            .map(|r| Io::Write {
                at: bs.offset(r[0].0),
                data: r.iter().map(|(_, image)| image.clone()).collect(),
                region: Region::Metadata,
                fua: false,
            })
            .collect();
        if !batch.is_empty() {
            self.gate.device().run(batch)?;
        }
        Ok(())
    }

    /// Flushes the file system's device, and the log's if that is another.
    pub(crate) fn flush_with(&self, log: &Log) -> Result<(), Error> {
        self.gate.flush()?;
        if !Arc::ptr_eq(&self.gate, &log.gate) {
            log.gate.flush()?;
        }
        Ok(())
    }
}
