//! An entry of a ring: memory in which the kernel puts one request, and takes its reply.
//!
//! ```text
//! 0                     288        4096-168      4096                        4096 + PAYLOAD
//! | fuse_uring_req_header |  ...  |  a request's head  | payload: data of a request, then of its reply |
//! ```
//! The head of a large request is put before its payload, so that it lies as one read from /dev/fuse would. A reply
//! that is made in place begins 16 bytes before the payload; its header is then copied to where the kernel looks.
//!
//! Guarantees: an [`Entry`] in hand is not the kernel's. A ring that gives one to the kernel keeps it until its
//! completion has come, and leaks it where none comes (M9).

use crate::policy::{COPIED_OUT, GIVEN_BACK};
use crate::wire::Out;
use crate::wire::abi::{MAX_WRITE, opcode, uring};
use crate::wire::reply;
use crate::wire::request;
use quire_device::sync::Arc;
use quire_device::sync::atomic::{AtomicBool, AtomicU32};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

const PAGE: usize = 4096;
/// Bytes of an entry's payload: what the kernel demands for `max_write` and `max_pages`, which are as much.
pub(crate) const PAYLOAD: usize = MAX_WRITE as usize;
const LEN: usize = PAGE + PAYLOAD;
/// Bytes of a request besides its payload, at most.
const HEAD_MAX: usize = request::HEADER + uring::OP_IN_MAX;
const _: () = assert!(uring::HEADER + HEAD_MAX <= PAGE);

/// A thread that gives entries of a queue to the kernel, which copies requests into them when this thread lets it.
#[derive(Default)]
pub(crate) struct Lender {
    /// Entries that the kernel has of it.
    pub(crate) lent: AtomicU32,
    /// It may be inside of a device operation, in which the kernel can copy nothing for it.
    pub(crate) is_blocked: AtomicBool,
}

pub(crate) type Owner = Arc<Lender>;

pub(crate) struct Entry {
    memory: Mapping,
    /// Which of its queue's entries it is.
    pub(crate) slot: usize,
    /// Where the kernel reads the two addresses from when the entry is registered.
    vectors: Box<[libc::iovec; 2]>,
    /// Who gave it to the kernel last.
    pub(crate) owner: Option<Owner>,
    /// Its last reply was large, and takes memory still.
    large_reply: bool,
}

// SAFETY: the addresses in `vectors` are those of `memory`, which the entry owns; they are only handed to the kernel.
unsafe impl Send for Entry {}

/// A request that lies in an entry, and where its reply goes.
pub(crate) struct Split<'a> {
    pub(crate) request: &'a [u8],
    pub(crate) out: Out<'a>,
    /// The address at which a reply that is made in place begins.
    pub(crate) reply_at: usize,
}

impl Entry {
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(slot: usize) -> Result<Entry, Errno> {
        let memory = Mapping::new()?;
        let start = memory.0.cast::<u8>();
        let vectors = Box::new([
            libc::iovec { iov_base: start.cast(), iov_len: uring::HEADER },
            libc::iovec { iov_base: start.wrapping_add(PAGE).cast(), iov_len: PAYLOAD },
        ]);
        Ok(Entry { memory, slot, vectors, owner: None, large_reply: false })
    }

    /// The address of the two `iovec`s.
    pub(crate) fn vectors(&self) -> u64 {
        self.vectors.as_ptr().addr() as u64
    }

    fn number<const N: usize>(&mut self, at: usize) -> [u8; N] {
        let bytes = self.memory.bytes();
        *bytes[at..].first_chunk().expect("within the page of the header")
    }

    /// Names the request in its reply.
    pub(crate) fn unique(&mut self) -> u64 {
        u64::from_ne_bytes(self.number(uring::COMMIT_ID_AT))
    }

    /// The file that the request opens, reads, writes or makes durable; `None` for other requests.
    pub(crate) fn file(&mut self) -> Option<u64> {
        let operation = u32::from_ne_bytes(self.number(4));
        let node = u64::from_ne_bytes(self.number(16));
        let of_a_file = [opcode::OPEN, opcode::READ, opcode::WRITE, opcode::FSYNC, opcode::FALLOCATE];
        of_a_file.contains(&operation).then_some(node)
    }

    /// Bytes of the payload that the kernel, or a reply, has filled.
    pub(crate) fn payload_size(&mut self) -> usize {
        usize::try_from(u32::from_ne_bytes(self.number(uring::PAYLOAD_SIZE_AT))).map_or(PAYLOAD, |n| n.min(PAYLOAD))
    }

    /// The request, as one read from /dev/fuse would lie, and where its reply is made: a short request is copied to
    /// `small`, and its reply made in the entry; a long one stays, and its reply is made in `small`.
    ///
    /// # Errors
    /// The kernel's lengths contradict each other.
    pub(crate) fn split<'a>(&'a mut self, small: &'a mut [u8]) -> Result<Split<'a>, Errno> {
        let payload = self.payload_size();
        let total = usize::try_from(u32::from_ne_bytes(self.number(0))).map_err(|_| Errno::PROTO)?;
        let head =
            total.checked_sub(payload).filter(|n| (request::HEADER..=HEAD_MAX).contains(n)).ok_or(Errno::PROTO)?;
        let bytes = self.memory.bytes();
        let from = PAGE - head;
        bytes.copy_within(..request::HEADER, from);
        bytes.copy_within(uring::OP_IN_AT..uring::OP_IN_AT + head - request::HEADER, from + request::HEADER);
        if payload > COPIED_OUT {
            let out = Out::new(small);
            return Ok(Split { request: &bytes[from..PAGE + payload], out, reply_at: 0 });
        }
        let request = small.get_mut(..total).ok_or(Errno::PROTO)?;
        request.copy_from_slice(&bytes[from..PAGE + payload]);
        let reply = &mut bytes[PAGE - reply::HEADER..];
        let reply_at = reply.as_ptr().addr();
        Ok(Split { request, out: Out::new(reply), reply_at })
    }

    /// Puts a reply where the kernel takes it: its bytes, or those that were made in place, so many.
    pub(crate) fn put_reply(&mut self, reply: &Reply) {
        match reply {
            Reply::InPlace(len) => {
                self.memory.bytes().copy_within(PAGE - reply::HEADER..PAGE, 0);
                self.has_reply_of(len.saturating_sub(reply::HEADER));
            }
            Reply::Bytes(reply) => self.put_bytes(reply),
        }
    }

    /// Puts a reply that was made elsewhere where the kernel takes it.
    pub(crate) fn put_bytes(&mut self, reply: &[u8]) {
        let (header, body) = reply.split_at(reply::HEADER);
        let body = &body[..body.len().min(PAYLOAD)];
        let bytes = self.memory.bytes();
        bytes[..reply::HEADER].copy_from_slice(header);
        bytes[PAGE..PAGE + body.len()].copy_from_slice(body);
        self.has_reply_of(body.len());
    }

    /// Tells the kernel that the reply in the entry has so many bytes behind its header.
    fn has_reply_of(&mut self, body: usize) {
        self.large_reply = body > GIVEN_BACK;
        let body = u32::try_from(body).expect("at most the payload");
        self.memory.bytes()[uring::PAYLOAD_SIZE_AT..][..4].copy_from_slice(&body.to_ne_bytes());
    }

    /// Gives the memory of the payload back to the host; it reads as zeros from now on.
    pub(crate) fn drop_payload(&mut self) {
        self.memory.drop_from(PAGE);
    }

    /// Gives back what a large reply has taken, beside a request that has come and is short.
    pub(crate) fn drop_last_reply(&mut self) {
        if self.large_reply && self.payload_size() <= GIVEN_BACK {
            self.memory.drop_from(PAGE + GIVEN_BACK);
        }
    }
}

/// A reply on its way to the entry of its request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Made in the entry: so many bytes with the header.
    InPlace(usize),
    Bytes(Vec<u8>),
}

/// `LEN` bytes of memory.
struct Mapping(*mut libc::c_void);

// SAFETY: the memory belongs to the mapping alone, whichever thread has it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new() -> Result<Mapping, Errno> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new anonymous mapping, where the kernel likes.
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), LEN, rights, flags) }.map(Mapping)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `LEN` readable and writable bytes as long as `self` lives, and `self` is borrowed
        // exclusively; the kernel writes to them only while a ring has the entry.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), LEN) }
    }

    /// From this offset, of a page, to the end.
    fn drop_from(&mut self, offset: usize) {
        // SAFETY: the range is part of the mapping, to which `&mut self` is the only way; it reads as zeros afterwards.
        unsafe { rustix::mm::madvise(self.0.wrapping_byte_add(offset), LEN - offset, Advice::LinuxDontNeed) }.ok();
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing else refers to the mapping, which is ours.
        unsafe { rustix::mm::munmap(self.0, LEN) }.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts a request as the kernel would.
    fn filled(entry: &mut Entry, op_in: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut header = vec![7; request::HEADER];
        let total = request::HEADER + op_in.len() + payload.len();
        header[..4].copy_from_slice(&u32::try_from(total).unwrap().to_ne_bytes());
        let bytes = entry.memory.bytes();
        bytes[..request::HEADER].copy_from_slice(&header);
        bytes[uring::OP_IN_AT..][..op_in.len()].copy_from_slice(op_in);
        bytes[PAGE..][..payload.len()].copy_from_slice(payload);
        let size = u32::try_from(payload.len()).unwrap();
        bytes[uring::PAYLOAD_SIZE_AT..][..4].copy_from_slice(&size.to_ne_bytes());
        [&header, op_in, payload].concat()
    }

    #[test]
    fn a_request_lies_as_if_it_was_read_whether_it_is_short_or_long() {
        let mut entry = Entry::new(0).unwrap();
        for (op_in, payload) in [(0, 4), (128, 0), (40, COPIED_OUT), (40, COPIED_OUT + 1), (40, PAYLOAD)] {
            let whole = filled(&mut entry, &vec![1; op_in], &vec![2; payload]);
            let mut small = vec![0; 8192];
            let split = entry.split(&mut small).unwrap();
            assert!(split.request == whole, "{op_in} bytes and {payload} of payload");
            assert_eq!(split.reply_at != 0, payload <= COPIED_OUT, "{payload}");
        }
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        for (total, payload) in [(39, 0), (40, 1), (40 + 129, 0), (u32::MAX, 0), (100, u32::MAX)] {
            let mut entry = Entry::new(0).unwrap();
            let bytes = entry.memory.bytes();
            bytes[..4].copy_from_slice(&u32::to_ne_bytes(total));
            bytes[uring::PAYLOAD_SIZE_AT..][..4].copy_from_slice(&u32::to_ne_bytes(payload));
            let mut small = [0; 8192];
            assert_eq!(
                entry.split(&mut small).map(|s| s.request.len()).unwrap_err(),
                Errno::PROTO,
                "{total} {payload}"
            );
        }
    }

    #[test]
    fn a_reply_lies_where_the_kernel_takes_it() {
        let mut entry = Entry::new(0).unwrap();
        filled(&mut entry, &[], b"name\0");
        let mut small = [0; 8192];
        let mut split = entry.split(&mut small).unwrap();
        split.out.bytes(b"body").unwrap();
        let len = split.out.finish(9, None).len();
        entry.put_reply(&Reply::InPlace(len));
        let in_place =
            (entry.memory.bytes()[..16].to_vec(), entry.payload_size(), entry.memory.bytes()[PAGE..][..4].to_vec());
        entry.drop_payload();
        assert_eq!(entry.memory.bytes()[PAGE], 0);
        let copied = [&in_place.0[..], b"body"].concat();
        entry.put_reply(&Reply::Bytes(copied));
        assert_eq!(in_place, (entry.memory.bytes()[..16].to_vec(), 4, b"body".to_vec()));
        assert_eq!(&entry.memory.bytes()[PAGE..][..4], b"body");
    }
}
