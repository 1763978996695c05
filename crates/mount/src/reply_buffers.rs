//! Memory in which replies to large READs are made while no worker has them.
//!
//! ```text
//! 0                 4096-16        4096                           4096 + MAX_WRITE
//! |      ...       | reply header | what the device reads ...    | room for a part of a block |
//! ```
//! The device reads to behind the header, so nothing is copied before the kernel takes the reply.

use crate::policy::SUSPENDED_LARGE_READS;
use crate::wire::Out;
use crate::wire::abi::MAX_WRITE;
use crate::wire::reply::HEADER;
use quire_device::HugeBuf;
use quire_device::sync::{Mutex, lock_unannounced};

/// Where what is read begins: on a page boundary, for direct I/O.
pub(crate) const BODY_AT: usize = 4096;
/// Blocks of up to 64 KiB are read whole.
const LEN: usize = BODY_AT + MAX_WRITE as usize + (64 << 10);

/// Buffers for at most [`SUSPENDED_LARGE_READS`] replies at once, which stay with the mount.
#[derive(Default)]
pub(crate) struct ReplyBuffers(Mutex<Buffers>);

#[derive(Default)]
struct Buffers {
    kept: Vec<HugeBuf>,
    taken: usize,
}

impl ReplyBuffers {
    /// True if another reply may be made here.
    pub(crate) fn have_room(&self) -> bool {
        lock_unannounced(&self.0).taken < SUSPENDED_LARGE_READS
    }

    /// Memory for one reply; `None` if there is none. It is [put](ReplyBuffers::put) back.
    pub(crate) fn take(&self) -> Option<HugeBuf> {
        let mut buffers = lock_unannounced(&self.0);
        let kept = buffers.kept.pop();
        buffers.taken += 1;
        drop(buffers);
        let new = || HugeBuf::new(LEN).inspect_err(|e| tracing::debug!("memory for a reply: {e}")).ok();
        let taken = kept.or_else(new);
        if taken.is_none() {
            self.put(None);
        }
        taken
    }

    /// One that was taken is needed no more; `None`: it is lost.
    pub(crate) fn put(&self, buffer: Option<HugeBuf>) {
        let mut buffers = lock_unannounced(&self.0);
        buffers.taken -= 1;
        // Who looked for room at once with others may have found the same.
        if let Some(buffer) = buffer.filter(|_| buffers.kept.len() < SUSPENDED_LARGE_READS) {
            buffers.kept.push(buffer);
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
        buffers.put(Some(buffer));
        let taken: Vec<_> = (0..SUSPENDED_LARGE_READS).map(|_| buffers.take().unwrap()).collect();
        assert!(taken.iter().any(|buffer| buffer[BODY_AT..][..5] == *b"bytes"), "it is used again");
        assert!(!buffers.have_room());
        buffers.put(None);
        assert!(buffers.have_room());
        taken.into_iter().skip(1).for_each(|buffer| buffers.put(Some(buffer)));
        let b = lock_unannounced(&buffers.0);
        assert_eq!((b.kept.len(), b.taken), (SUSPENDED_LARGE_READS - 1, 0));
    }
}
