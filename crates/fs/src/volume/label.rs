//! The label of the file system, which may change while it is mounted.

use super::maintenance::Maintenance;
use crate::error::{Error, Result};
use crate::records;
use quire_layout::superblock::LABEL_BYTES;

impl Maintenance<'_> {
    /// The label as it is now, up to its first NUL.
    ///
    /// # Errors
    /// Corrupt; I/O.
    pub fn label(&self) -> Result<Vec<u8>> {
        self.volume.inner.engine.run(|op| Ok(records::superblock(op)?.label().to_vec()))
    }

    /// Gives the file system another label.
    ///
    /// # Errors
    /// Invalid: longer than 16 bytes. Read-only; I/O.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let Some(padding) = LABEL_BYTES.checked_sub(label.len()) else {
            return Err(Error::Invalid("a label has at most 16 bytes"));
        };
        let _pass = self.volume.inner.enter()?;
        let full = [label, &vec![0; padding]].concat().try_into().expect("16 bytes together");
        self.volume.inner.engine.run(|op| {
            records::superblock_mut(op)?.set_label(full);
            Ok(())
        })
    }
}
