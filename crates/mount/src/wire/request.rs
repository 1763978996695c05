//! A request as the kernel sent it: a header and a body that is read field by field.

use crate::fail::Fail;
use rustix::io::Errno;

/// Bytes of a request's header.
pub(crate) const HEADER: usize = 40;

/// The header of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub opcode: u32,
    /// Names the request in its reply.
    pub unique: u64,
    pub node: u64,
    pub uid: u32,
    pub gid: u32,
    /// The caller's process; 0 if it is none that we can see.
    pub pid: u32,
    /// No part of the request: its answer waits for metadata that is not in memory.
    pub waits: bool,
}

/// The fields of a request, from the front. A request that ends too early is `EIO`.
#[derive(Clone, Copy)]
pub(crate) struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Body(bytes)
    }

    /// The header of a whole request.
    pub(crate) fn header(&mut self) -> Result<Header, Fail> {
        let len = self.u32()?;
        let opcode = self.u32()?;
        let (unique, node) = (self.u64()?, self.u64()?);
        let h = Header { opcode, unique, node, uid: self.u32()?, gid: self.u32()?, pid: self.u32()?, waits: false };
        self.skip(4)?; // length of extensions
        let rest = usize::try_from(len).ok().and_then(|n| n.checked_sub(HEADER)).ok_or(SHORT)?;
        self.0 = self.0.get(..rest).ok_or(SHORT)?;
        Ok(h)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fail> {
        let (head, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Fail> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Fail> {
        self.take().map(u64::from_ne_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Fail> {
        self.take().map(i64::from_ne_bytes)
    }

    pub(crate) fn skip(&mut self, n: usize) -> Result<(), Fail> {
        self.0 = self.0.get(n..).ok_or(SHORT)?;
        Ok(())
    }

    /// A string up to its NUL.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Fail> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(SHORT)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(name)
    }

    /// The next `n` bytes, which stay the next.
    pub(crate) fn rest(&self, n: u32) -> Result<&'a [u8], Fail> {
        let n = usize::try_from(n).map_err(|_| SHORT)?;
        self.0.get(..n).ok_or(SHORT)
    }

    /// The next `n` bytes.
    pub(crate) fn bytes(&mut self, n: u32) -> Result<&'a [u8], Fail> {
        let n = usize::try_from(n).map_err(|_| SHORT)?;
        let (head, rest) = self.0.split_at_checked(n).ok_or(SHORT)?;
        self.0 = rest;
        Ok(head)
    }
}

const SHORT: Fail = Fail::of(Errno::IO);

#[cfg(test)]
mod tests {
    use super::*;

    fn request(len: u32, body: &[u8]) -> Vec<u8> {
        let mut b = Vec::new();
        for word in [len, 1] {
            b.extend_from_slice(&word.to_ne_bytes());
        }
        for long in [7u64, 1] {
            b.extend_from_slice(&long.to_ne_bytes());
        }
        b.extend_from_slice(&[0; 16]);
        b.extend_from_slice(body);
        b
    }

    #[test]
    fn a_lookup_is_a_header_and_a_name() {
        let bytes = request(44, b"abc\0");
        let mut body = Body::new(&bytes);
        let h = body.header().unwrap();
        assert_eq!((h.opcode, h.unique, h.node), (1, 7, 1));
        assert_eq!(body.name().unwrap(), b"abc");
        assert!(body.u32().is_err());
    }

    #[test]
    fn a_request_that_lies_about_its_length_is_refused() {
        for len in [0, 39, 45] {
            assert!(Body::new(&request(len, b"abc\0")).header().is_err(), "{len}");
        }
        let bytes = request(43, b"abc\0");
        let mut body = Body::new(&bytes);
        body.header().unwrap();
        assert!(body.name().is_err(), "no NUL within the length");
    }
}
