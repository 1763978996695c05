//! `copy_file_range`: bytes from one file to another, or within one.

use super::write::WriteFlags;
use crate::error::{Error, Result};
use crate::volume::Volume;
use quire_layout::Ino;

impl Volume {
    /// Copies up to `len` bytes; returns how many. Less are copied at the end of the source, or when an error stops it
    /// after some.
    ///
    /// # Errors
    /// Invalid: overlapping ranges of one file; otherwise as [`Volume::read`] and [`Volume::write`].
    pub fn copy_range(&self, src: Ino, src_offset: u64, dst: Ino, dst_offset: u64, len: u64) -> Result<u64> {
        src_offset.checked_add(len).ok_or(Error::TooLarge)?;
        // What the copy itself adds to the source is not copied.
        let len = len.min(self.getattr(src)?.size.saturating_sub(src_offset));
        let src_end = src_offset + len;
        let dst_end = dst_offset.checked_add(len).ok_or(Error::TooLarge)?;
        if len > 0 && src == dst && src_offset < dst_end && dst_offset < src_end {
            return Err(Error::Invalid("overlapping ranges of one file"));
        }
        let request = self.request_bytes();
        let mut buf = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(request)];
        let mut done = 0;
        while done < len {
            let n = usize::try_from(len - done).unwrap_or(usize::MAX).min(request);
            let copied = self.copy_part(src, src_offset + done, dst, dst_offset + done, &mut buf[..n]);
            match copied {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn copy_part(&self, src: Ino, from: u64, dst: Ino, to: u64, buf: &mut [u8]) -> Result<u64> {
        let n = self.read(src, from, buf)?;
        if n == 0 {
            return Ok(0);
        }
        Ok(self.write(dst, to, &buf[..n], WriteFlags::default())? as u64)
    }
}
