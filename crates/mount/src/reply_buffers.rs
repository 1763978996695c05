//! Memory in which replies to large READs are made while no worker has them.
//!
//! ```text
//! 0                 4096-16        4096                           4096 + MAX_WRITE
//! |      ...       | reply header | what the device reads ...    | room for a part of a block |
//! ```
//! The device reads to behind the header, so nothing is copied before the kernel takes the reply.

use crate::policy::KEPT_REPLIES;
use crate::wire::Out;
use crate::wire::abi::MAX_WRITE;
use crate::wire::reply::HEADER;
use quire_device::HugeBuf;
use quire_device::sync::{Mutex, lock_unannounced};

/// Where what is read begins: on a page boundary, for direct I/O.
pub(crate) const BODY_AT: usize = 4096;
/// Blocks of up to 64 KiB are read whole.
const LEN: usize = BODY_AT + MAX_WRITE as usize + (64 << 10);

/// Buffers that no reply is in.
#[derive(Default)]
pub(crate) struct ReplyBuffers(Mutex<Vec<HugeBuf>>);

impl ReplyBuffers {
    /// Memory for one reply; `None` if there is none.
    pub(crate) fn take(&self) -> Option<HugeBuf> {
        let kept = lock_unannounced(&self.0).pop();
        kept.or_else(|| HugeBuf::new(LEN).inspect_err(|e| tracing::debug!("memory for a reply: {e}")).ok())
    }

    /// A reply that was made has been sent.
    pub(crate) fn put(&self, buffer: HugeBuf) {
        let mut kept = lock_unannounced(&self.0);
        if kept.len() < KEPT_REPLIES {
            kept.push(buffer);
        }
    }
}

/// The reply whose body are these many bytes.
pub(crate) fn reply_of(buffer: &mut HugeBuf, bytes: usize) -> Out<'_> {
    let mut out = Out::new(&mut buffer[BODY_AT - HEADER..]);
    out.space(bytes).expect("the device has read into it");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_what_the_device_has_read_behind_a_header() {
        let buffers = ReplyBuffers::default();
        let mut buffer = buffers.take().unwrap();
        buffer[BODY_AT..][..5].copy_from_slice(b"bytes");
        let mut out = reply_of(&mut buffer, 5);
        assert_eq!(out.finish(9, None)[HEADER..], *b"bytes");
        buffers.put(buffer);
        let mut taken: Vec<_> = (0..2 * KEPT_REPLIES).map(|_| buffers.take().unwrap()).collect();
        assert_eq!(taken[0][BODY_AT..][..5], *b"bytes", "it is used again");
        taken.drain(..).for_each(|buffer| buffers.put(buffer));
        assert_eq!(lock_unannounced(&buffers.0).len(), KEPT_REPLIES);
    }
}
