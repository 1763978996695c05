//! Metadata that is not in memory, loaded for callers that do not wait.
//!
//! *Guarantees*: the caller of [`load_then`] is told once, whatever the device does; what a load finds is as current as
//! what [`Journal::load`](quire_journal::Journal::load) finds (J3).

use super::handle::{Inner, Volume};
use quire_device::sync::Arc;
use quire_device::{Buf, Region, read_all_then};
use quire_journal::Load;
use quire_layout::BlockNo;

/// Told when a load has ended; false if the device could not read.
type Then = Box<dyn FnOnce(bool) + Send>;

/// Loads the blocks that a call missed ([`Error::Miss`](crate::Error::Miss)). `then` is called once, with false if they
/// could not be read, on a thread that ends other reads, too: it must not wait. Where nothing is to be read it is
/// called on the calling thread.
pub fn load_then(volume: &Volume, blocks: &[BlockNo], then: impl FnOnce(bool) + Send + 'static) {
    match volume.inner.engine.journal.begin_load(blocks) {
        Some(load) => read(&volume.inner, load, Box::new(then)),
        None => then(true),
    }
}

fn read(inner: &Arc<Inner>, load: Load, then: Then) {
    let bs = inner.engine.context.block_size();
    let runs = load.runs().map(|r| (bs.offset(r[0]), Buf::zeroed(r.len() * bs.bytes()).into())).collect();
    let after = inner.clone();
    read_all_then(inner.engine.journal.gate().device(), runs, Region::Metadata, move |read| {
        let is_read = read.is_ok();
        match after.engine.journal.end_load(load, &read.unwrap_or_default()) {
            Some(again) => self::read(&after, again, then),
            None => then(is_read),
        }
    });
}
