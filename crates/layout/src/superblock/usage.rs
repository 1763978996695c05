//! What changes while a file system is used: free counts, times, its state, the orphan list and the record of errors;
//! and what stands beside them, who may use the last blocks and what an error does.

use super::record::Superblock;
use super::{OnError, state};
use crate::bytes::{hi32, le16, le32, le64, lo32, put_le16, put_le32, put_le64};
use crate::units::{BlockNo, Ino};

impl Superblock {
    /// Blocks that only root may use.
    #[must_use]
    pub fn reserved_blocks(&self) -> u64 {
        self.split(0x08, 0x154)
    }

    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.split(0x0C, 0x158)
    }

    pub fn set_free_blocks(&mut self, n: u64) {
        put_le32(self.raw_mut(), 0x0C, lo32(n));
        if self.is_64bit() {
            put_le32(self.raw_mut(), 0x158, hi32(n));
        }
    }

    #[must_use]
    pub fn free_inodes(&self) -> u32 {
        le32(self.bytes(), 0x10)
    }

    pub fn set_free_inodes(&mut self, n: u32) {
        put_le32(self.raw_mut(), 0x10, n);
    }

    /// Seconds since the epoch, 40 bits.
    #[must_use]
    pub fn mount_time(&self) -> u64 {
        u64::from(le32(self.bytes(), 0x2C)) | u64::from(self.bytes()[0x275]) << 32
    }

    pub fn set_mount_time(&mut self, secs: u64) {
        put_le32(self.raw_mut(), 0x2C, lo32(secs));
        self.raw_mut()[0x275] = hi32(secs).to_le_bytes()[0];
    }

    #[must_use]
    pub fn write_time(&self) -> u64 {
        u64::from(le32(self.bytes(), 0x30)) | u64::from(self.bytes()[0x274]) << 32
    }

    pub fn set_write_time(&mut self, secs: u64) {
        put_le32(self.raw_mut(), 0x30, lo32(secs));
        self.raw_mut()[0x274] = hi32(secs).to_le_bytes()[0];
    }

    #[must_use]
    pub fn mount_count(&self) -> u16 {
        le16(self.bytes(), 0x34)
    }

    pub fn set_mount_count(&mut self, n: u16) {
        put_le16(self.raw_mut(), 0x34, n);
    }

    #[must_use]
    pub fn state(&self) -> u16 {
        le16(self.bytes(), 0x3A)
    }

    /// Sets the label, filled up with NULs.
    pub fn set_label(&mut self, label: [u8; super::LABEL_BYTES]) {
        self.raw_mut()[0x78..0x78 + super::LABEL_BYTES].copy_from_slice(&label);
    }

    pub fn set_state(&mut self, s: u16) {
        put_le16(self.raw_mut(), 0x3A, s);
    }

    /// `s_errors`; an unknown value means continue, as in the kernel.
    #[must_use]
    pub fn on_error(&self) -> OnError {
        match le16(self.bytes(), 0x3C) {
            2 => OnError::RemountReadOnly,
            3 => OnError::Panic,
            _ => OnError::Continue,
        }
    }

    /// User and group that may use reserved blocks (besides root).
    #[must_use]
    pub fn reserved_for(&self) -> (u16, u16) {
        (le16(self.bytes(), 0x50), le16(self.bytes(), 0x52))
    }

    /// Where it was last mounted, up to the first NUL.
    #[must_use]
    pub fn last_mounted(&self) -> &[u8] {
        let l = &self.bytes()[0x88..0xC8];
        &l[..l.iter().position(|b| *b == 0).unwrap_or(l.len())]
    }

    pub fn set_last_mounted(&mut self, path: &[u8]) {
        let n = path.len().min(63);
        self.raw_mut()[0x88..0xC8].fill(0);
        self.raw_mut()[0x88..0x88 + n].copy_from_slice(&path[..n]);
    }

    /// Head of the orphan list, or `Ino(0)`.
    #[must_use]
    pub fn last_orphan(&self) -> Ino {
        Ino(le32(self.bytes(), 0xE8))
    }

    pub fn set_last_orphan(&mut self, ino: Ino) {
        put_le32(self.raw_mut(), 0xE8, ino.0);
    }

    #[must_use]
    pub fn kbytes_written(&self) -> u64 {
        le64(self.bytes(), 0x178)
    }

    #[must_use]
    pub fn error_count(&self) -> u32 {
        le32(self.bytes(), 0x194)
    }

    /// Records an error found at `now` (seconds) about `ino` and `block` in `place` (a function or check),
    /// as the kernel's `save_error_info` does.
    pub fn record_error(&mut self, now: u64, ino: Ino, block: BlockNo, place: &str) {
        let mut put = |time: usize, time_hi: usize, ino_at: usize, block_at: usize, func: usize, line: usize| {
            put_le32(self.raw_mut(), time, lo32(now));
            self.raw_mut()[time_hi] = hi32(now).to_le_bytes()[0];
            put_le32(self.raw_mut(), ino_at, ino.0);
            put_le64(self.raw_mut(), block_at, block.0);
            self.raw_mut()[func..func + 32].fill(0);
            let n = place.len().min(31);
            self.raw_mut()[func..func + n].copy_from_slice(&place.as_bytes()[..n]);
            put_le32(self.raw_mut(), line, 0);
        };
        put(0x1CC, 0x279, 0x1D0, 0x1D8, 0x1E0, 0x1D4);
        if le32(self.bytes(), 0x198) == 0 {
            let mut put_first = |now: u64| {
                put_le32(self.raw_mut(), 0x198, lo32(now));
                self.raw_mut()[0x278] = hi32(now).to_le_bytes()[0];
                put_le32(self.raw_mut(), 0x19C, ino.0);
                put_le64(self.raw_mut(), 0x1A0, block.0);
                self.raw_mut()[0x1A8..0x1C8].fill(0);
                let n = place.len().min(31);
                self.raw_mut()[0x1A8..0x1A8 + n].copy_from_slice(&place.as_bytes()[..n]);
            };
            put_first(now);
        }
        let count = self.error_count().saturating_add(1);
        put_le32(self.raw_mut(), 0x194, count);
        self.set_state(self.state() | state::ERROR);
    }
}
