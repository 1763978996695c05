//! Replies, built in a buffer that a worker keeps.

use crate::fail::Fail;
use quire_fs::Attr;
use quire_layout::Ino;
use quire_layout::inode::Timestamp;
use rustix::io::Errno;
use std::time::Duration;

/// Bytes of a reply's header.
pub(crate) const HEADER: usize = 16;
/// Bytes of `fuse_entry_out` and `fuse_dirent`.
const ENTRY: usize = 128;
const DIRENT: usize = 24;

/// The notice that the kernel is to ask for an inode's attributes again; its pages stay.
pub(crate) fn forget_attributes(ino: Ino) -> [u8; HEADER + 24] {
    // An offset below zero: attributes only.
    invalidate(ino, -1, 0)
}

/// The notice that the kernel is to drop an inode's pages, after it has written the dirty ones. Sending it waits for
/// the replies to those WRITE requests.
pub(crate) fn drop_pages(ino: Ino) -> [u8; HEADER + 24] {
    drop_pages_from(ino, 0)
}

/// The same of the pages from this offset on.
pub(crate) fn drop_pages_from(ino: Ino, offset: i64) -> [u8; HEADER + 24] {
    // With the length 0: to the end.
    invalidate(ino, offset, 0)
}

/// The same of the first `len` bytes, more than 0.
pub(crate) fn drop_first_pages(ino: Ino, len: i64) -> [u8; HEADER + 24] {
    invalidate(ino, 0, len)
}

/// `FUSE_NOTIFY_RETRIEVE` of nothing: the kernel sends a request of this number, NOTIFY_REPLY, to the queue of the CPU
/// that sends the notice. The node is a regular file that the kernel knows.
pub(crate) fn ask_for_a_request(unique: u64, node: u64) -> [u8; HEADER + 32] {
    const RETRIEVE: i32 = 5;
    let mut out = [0; HEADER + 32];
    let len = u32::try_from(out.len()).expect("small");
    out[..4].copy_from_slice(&len.to_ne_bytes());
    out[4..8].copy_from_slice(&RETRIEVE.to_ne_bytes());
    out[HEADER..HEADER + 8].copy_from_slice(&unique.to_ne_bytes());
    out[HEADER + 8..HEADER + 16].copy_from_slice(&node.to_ne_bytes());
    out
}

/// `FUSE_NOTIFY_INVAL_INODE`.
fn invalidate(ino: Ino, offset: i64, len: i64) -> [u8; HEADER + 24] {
    const INVAL_INODE: i32 = 2;
    let mut out = [0; HEADER + 24];
    let whole = u32::try_from(out.len()).expect("small");
    out[..4].copy_from_slice(&whole.to_ne_bytes());
    out[4..8].copy_from_slice(&INVAL_INODE.to_ne_bytes());
    out[HEADER..HEADER + 8].copy_from_slice(&node_of(ino).to_ne_bytes());
    out[HEADER + 8..HEADER + 16].copy_from_slice(&offset.to_ne_bytes());
    out[HEADER + 16..].copy_from_slice(&len.to_ne_bytes());
    out
}

/// The user and group that all files seem to belong to, in place of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ShownOwner {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl ShownOwner {
    /// The owner that a caller sees.
    pub(crate) fn of(self, a: &Attr) -> [u32; 2] {
        [self.uid.unwrap_or(a.uid), self.gid.unwrap_or(a.gid)]
    }
}

/// A reply under construction: room for the header, then the body.
pub(crate) struct Out<'a> {
    buf: &'a mut [u8],
    len: usize,
    owner: ShownOwner,
}

impl<'a> Out<'a> {
    /// Replies that `buf` has room for.
    pub(crate) fn new(buf: &'a mut [u8]) -> Self {
        Out { buf, len: HEADER, owner: ShownOwner::default() }
    }

    /// Attributes are shown with this owner from now on.
    pub(crate) fn show_owner(&mut self, owner: ShownOwner) {
        self.owner = owner;
    }

    pub(crate) fn clear(&mut self) {
        self.len = HEADER;
    }

    /// The whole reply: with an error number its body is dropped.
    pub(crate) fn finish(&mut self, unique: u64, error: Option<&Fail>) -> &[u8] {
        if error.is_some() {
            self.len = HEADER;
        }
        let code = error.map_or(0, |e| -e.errno());
        let reply = &mut self.buf[..self.len];
        reply[..4].copy_from_slice(&u32::try_from(self.len).expect("bounded by the buffer").to_ne_bytes());
        reply[4..8].copy_from_slice(&code.to_ne_bytes());
        reply[8..16].copy_from_slice(&unique.to_ne_bytes());
        reply
    }

    /// The next `n` bytes, to be filled; they hold anything.
    pub(crate) fn space(&mut self, n: usize) -> Result<&mut [u8], Fail> {
        let end = self.len.checked_add(n).filter(|end| *end <= self.buf.len()).ok_or(Fail::of(Errno::NOMEM))?;
        let from = std::mem::replace(&mut self.len, end);
        Ok(&mut self.buf[from..end])
    }

    /// Gives back what was not filled: the body ends after `n` bytes.
    pub(crate) fn truncate(&mut self, n: usize) {
        self.len = self.len.min(HEADER + n);
    }

    /// The body so far.
    pub(crate) fn body(&self) -> &[u8] {
        &self.buf[HEADER..self.len]
    }

    /// Bytes of the body so far.
    pub(crate) fn body_len(&self) -> usize {
        self.len - HEADER
    }

    pub(crate) fn bytes(&mut self, b: &[u8]) -> Result<(), Fail> {
        self.space(b.len())?.copy_from_slice(b);
        Ok(())
    }

    pub(crate) fn u16(&mut self, v: u16) -> Result<(), Fail> {
        self.bytes(&v.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, v: u32) -> Result<(), Fail> {
        self.bytes(&v.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, v: u64) -> Result<(), Fail> {
        self.bytes(&v.to_ne_bytes())
    }

    fn zeros(&mut self, n: usize) -> Result<(), Fail> {
        self.space(n)?.fill(0);
        Ok(())
    }

    /// `fuse_attr_out`.
    pub(crate) fn attr(&mut self, a: &Attr, valid: Duration) -> Result<(), Fail> {
        self.u64(valid.as_secs())?;
        self.u32(valid.subsec_nanos())?;
        self.u32(0)?;
        self.plain_attr(a)
    }

    /// `fuse_entry_out`: the kernel gets one reference on the inode. How long it may believe the name, and the
    /// attributes.
    pub(crate) fn entry(&mut self, a: &Attr, name: Duration, valid: Duration) -> Result<(), Fail> {
        self.u64(node_of(a.ino))?;
        // The kernel has made its root before it asks, with this generation, and gives up a root with another.
        self.u64(if a.ino == Ino::ROOT { 0 } else { u64::from(a.generation) })?;
        self.u64(name.as_secs())?;
        self.u64(valid.as_secs())?;
        self.u32(name.subsec_nanos())?;
        self.u32(valid.subsec_nanos())?;
        self.plain_attr(a)
    }

    /// `fuse_attr`.
    fn plain_attr(&mut self, a: &Attr) -> Result<(), Fail> {
        for v in [u64::from(a.ino.0), a.size, a.sectors] {
            self.u64(v)?;
        }
        for t in [a.atime, a.mtime, a.ctime] {
            self.u64(t.secs.cast_unsigned())?;
        }
        let [uid, gid] = self.owner.of(a);
        for v in [a.atime.nanos, a.mtime.nanos, a.ctime.nanos, u32::from(a.mode), a.links, uid, gid] {
            self.u32(v)?;
        }
        for v in [encode_device(a.device), a.block_size, 0] {
            self.u32(v)?;
        }
        Ok(())
    }

    /// `fuse_statx_out`.
    pub(crate) fn statx(&mut self, a: &Attr, valid: Duration) -> Result<(), Fail> {
        const BASIC: u32 = 0x7FF;
        const BTIME: u32 = 0x800;
        self.u64(valid.as_secs())?;
        self.u32(valid.subsec_nanos())?;
        self.u32(0)?;
        self.zeros(16)?;
        self.u32(if a.crtime.is_some() { BASIC | BTIME } else { BASIC })?;
        self.u32(a.block_size)?;
        self.u64(0)?; // attributes
        let [uid, gid] = self.owner.of(a);
        for v in [a.links, uid, gid] {
            self.u32(v)?;
        }
        self.u16(a.mode)?;
        self.u16(0)?;
        for v in [u64::from(a.ino.0), a.size, a.sectors, 0] {
            self.u64(v)?;
        }
        for t in [a.atime, a.crtime.unwrap_or_default(), a.ctime, a.mtime] {
            let Timestamp { secs, nanos } = t;
            self.u64(secs.cast_unsigned())?;
            self.u32(nanos)?;
            self.u32(0)?;
        }
        for v in [a.device.0, a.device.1, 0, 0] {
            self.u32(v)?;
        }
        self.zeros(14 * 8)
    }

    /// One `fuse_dirent` with what goes before it in READDIRPLUS (`plus`: attributes, or none for an entry without a
    /// reference). False if it does not fit into `limit` bytes of body.
    pub(crate) fn dirent(&mut self, d: &Dirent<'_>, plus: Plus<'_>, limit: usize) -> bool {
        let head = if matches!(plus, Plus::Off) { DIRENT } else { ENTRY + DIRENT };
        let size = (head + d.name.len()).next_multiple_of(8);
        if self.body_len() + size > limit.min(self.buf.len() - HEADER) {
            return false;
        }
        let start = self.len;
        let written = (|| {
            match plus {
                Plus::Off => {}
                Plus::Nameless => self.zeros(ENTRY)?,
                Plus::Entry(a, name, valid) => self.entry(a, name, valid)?,
            }
            self.u64(d.ino)?;
            self.u64(d.cookie)?;
            self.u32(u32::try_from(d.name.len()).expect("at most 255"))?;
            self.u32(d.kind)?;
            self.bytes(d.name)?;
            self.zeros(size - head - d.name.len())
        })();
        if written.is_err() {
            self.len = start;
        }
        written.is_ok()
    }
}

/// A directory entry on its way out.
pub(crate) struct Dirent<'a> {
    pub ino: u64,
    /// Where to go on after this entry.
    pub cookie: u64,
    /// `DT_*`.
    pub kind: u32,
    pub name: &'a [u8],
}

/// What READDIRPLUS says about an entry.
#[derive(Clone, Copy)]
pub(crate) enum Plus<'a> {
    /// Plain READDIR.
    Off,
    /// No attributes, no reference.
    Nameless,
    /// Attributes; the kernel gets one reference. How long it may believe the name, and the attributes.
    Entry(&'a Attr, Duration, Duration),
}

/// The kernel's number for an inode: its root is 1, ext4's is 2.
pub(crate) fn node_of(ino: Ino) -> u64 {
    if ino == Ino::ROOT { super::abi::ROOT_NODE } else { u64::from(ino.0) }
}

/// The 32-bit device number of the protocol: 12 bits major, 20 bits minor.
fn encode_device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xFF) | (major & 0xFFF) << 8 | (minor & 0xF_FF00) << 12
}

/// The inverse of the kernel's encoding of a device number.
pub(crate) fn decode_device(dev: u32) -> (u32, u32) {
    ((dev >> 8) & 0xFFF, (dev & 0xFF) | (dev >> 12) & 0xF_FF00)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr() -> Attr {
        let t = Timestamp { secs: -5, nanos: 6 };
        Attr {
            ino: Ino(12),
            generation: 3,
            mode: 0o100_644,
            links: 1,
            uid: 4,
            gid: 5,
            device: (0, 0),
            size: 10,
            sectors: 8,
            block_size: 4096,
            flags: 0,
            atime: t,
            mtime: t,
            ctime: t,
            crtime: Some(t),
        }
    }

    #[test]
    fn structures_have_the_sizes_of_the_protocol() {
        let mut buf = vec![0; 1 << 12];
        let mut out = Out::new(&mut buf);
        out.attr(&attr(), Duration::from_secs(1)).unwrap();
        assert_eq!(out.body_len(), 104);
        out.clear();
        out.entry(&attr(), Duration::from_secs(1), Duration::from_secs(1)).unwrap();
        assert_eq!(out.body_len(), ENTRY);
        out.clear();
        out.statx(&attr(), Duration::from_secs(1)).unwrap();
        assert_eq!(out.body_len(), 32 + 256);
        out.clear();
        let d = Dirent { ino: 1, cookie: 2, kind: 4, name: b"name" };
        assert!(out.dirent(&d, Plus::Off, 4096));
        assert_eq!(out.body_len(), 32);
        assert!(out.dirent(&d, Plus::Entry(&attr(), Duration::ZERO, Duration::ZERO), 4096));
        assert_eq!(out.body_len(), 32 + 160);
        assert!(!out.dirent(&d, Plus::Off, 32 + 160 + 31), "no room");
        assert_eq!(out.body_len(), 32 + 160);
    }

    #[test]
    fn the_root_has_the_generation_with_which_the_kernel_makes_it() {
        for (ino, generation) in [(Ino::ROOT, 0), (Ino(12), 3)] {
            let mut buf = [0; 1 << 10];
            let mut out = Out::new(&mut buf);
            out.entry(&Attr { ino, ..attr() }, Duration::ZERO, Duration::ZERO).unwrap();
            let bytes = out.finish(9, None);
            assert_eq!(u64::from_ne_bytes(bytes[HEADER + 8..HEADER + 16].try_into().unwrap()), generation, "{ino:?}");
        }
    }

    #[test]
    fn an_error_has_no_body() {
        let mut buf = [0; 64 + HEADER];
        let mut out = Out::new(&mut buf);
        out.u64(1).unwrap();
        let bytes = out.finish(9, Some(&Fail::of(Errno::NOENT)));
        assert_eq!(bytes.len(), 16);
        assert_eq!(i32::from_ne_bytes(bytes[4..8].try_into().unwrap()), -2);
    }

    #[test]
    fn device_numbers_survive() {
        for d in [(8, 1), (259, 300), (0xFFF, 0xF_FFFF)] {
            assert_eq!(decode_device(encode_device(d)), d);
        }
    }
}
