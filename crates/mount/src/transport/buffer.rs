//! The request buffer of a worker: one request and its reply.
//!
//! ```text
//! 0     4096-80          4096                1 MiB + 4096     +16 up to      1 MiB + 8192
//! |  ...  | request header | data of a WRITE ...   |  ...  | reply header | data of a READ ...
//!         └ fuse_in_header, fuse_write_in                      └ fuse_out_header
//! ```
//! The data of large requests lies on page boundaries and, but for its end, in one huge page: direct I/O takes it as it
//! is.

use crate::wire::Out;
use crate::wire::abi::MAX_WRITE;
use crate::wire::reply::HEADER;
use quire_device::HugeBuf;

const PAGE: usize = 4096;
const DATA: usize = MAX_WRITE as usize;
/// Where the data of a WRITE begins in its request: behind `fuse_in_header` and `fuse_write_in`.
const WRITE_DATA: usize = 80;
const REQUEST_AT: usize = PAGE - WRITE_DATA;
const REPLY_AT: usize = DATA + 2 * PAGE - HEADER;
/// READDIR may ask for a little more than a READ.
const END: usize = 2 * DATA + 4 * PAGE;

/// Memory for a request and a reply.
pub(crate) struct RequestBuffer(HugeBuf);

impl RequestBuffer {
    /// # Errors
    /// There is no memory.
    pub(crate) fn new() -> std::io::Result<Self> {
        HugeBuf::new(END).map(RequestBuffer)
    }

    /// All of it: for a request that is copied here, or a reply to one that lies elsewhere.
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub(crate) fn parts(&mut self) -> (&mut [u8], Out<'_>) {
        let (request, reply) = self.0.split_at_mut(REPLY_AT);
        (&mut request[REQUEST_AT..], Out::new(reply))
    }
}
