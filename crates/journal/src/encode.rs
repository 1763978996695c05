//! A closed transaction as jbd2 writes it: whole blocks, built in memory.
//!
//! ```text
//! revoke* ( descriptor image{1..tags_per_block} )*            | commit
//! └────────── body: written first, then a flush ──────────┘     written alone, durable on return
//! ```

use crate::core::InFlight;
use quire_cache::Image;
use quire_device::sync::Arc;
use quire_device::{Buf, Mutant};
use quire_layout::jbd2::{DescriptorBuilder, LogFormat, RevokeBuilder, encode_commit, escape, needs_escape};
use quire_layout::{BlockNo, Tid};
use std::time::Duration;

/// Blocks of log that a transaction takes, the commit block included.
pub(crate) fn log_blocks(format: &LogFormat, images: usize, revokes: usize) -> usize {
    revokes.div_ceil(format.revokes_per_block()) + images.div_ceil(format.tags_per_block()) + images + 1
}

/// Most blocks that a transaction may change so that it takes no more than `log` blocks. Revokes are few beside.
pub(crate) fn images_in(format: &LogFormat, log: usize) -> usize {
    let per = format.tags_per_block();
    (log.saturating_sub(2) * per / (per + 1)).saturating_sub(2)
}

/// The body of a transaction, in the order of the log.
pub(crate) fn body(format: &LogFormat, txn: &InFlight) -> Vec<Image> {
    let size = format.block_size.bytes();
    let mut out = Vec::with_capacity(log_blocks(format, txn.blocks.len(), txn.revokes.len()));
    let revokes = if Mutant::RevokeForgotten.is_on() { &[][..] } else { &txn.revokes };
    for some in revokes.chunks(format.revokes_per_block()) {
        let mut b = RevokeBuilder::new(format, txn.tid, Buf::zeroed(size));
        some.iter().for_each(|home| b.push(*home));
        out.push(Arc::new(b.seal()));
    }
    for some in txn.blocks.chunks(format.tags_per_block()) {
        let mut b = DescriptorBuilder::new(format, txn.tid, Buf::zeroed(size));
        let logged: Vec<Image> =
            some.iter().map(|(home, image)| tagged(format, txn.tid, *home, image, &mut b)).collect();
        out.push(Arc::new(b.seal()));
        out.extend(logged);
    }
    out
}

/// Adds the tag of an image; returns the image as it is logged: itself, or an escaped copy.
fn tagged(format: &LogFormat, tid: Tid, home: BlockNo, image: &Image, b: &mut DescriptorBuilder<Buf>) -> Image {
    let escaped = needs_escape(image) && !Mutant::EscapeForgotten.is_on();
    let logged = if escaped {
        let mut copy = (**image).clone();
        escape(&mut copy);
        Arc::new(copy)
    } else {
        image.clone()
    };
    b.push(home, escaped, format.tag_checksum(tid, &logged));
    logged
}

/// The commit block of transaction `tid`.
pub(crate) fn commit(format: &LogFormat, tid: Tid, now: Duration) -> Image {
    let mut buf = Buf::zeroed(format.block_size.bytes());
    encode_commit(format, &mut buf, tid, now.as_secs(), now.subsec_nanos(), 0);
    Arc::new(buf)
}
