//! A journal on a device of its own.

use crate::error::Error;
use crate::geometry::LogGeometry;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Region};
use quire_layout::bytes::{le16, le32};
use quire_layout::checksum::crc32c;
use quire_layout::features::{incompat, ro_compat};
use quire_layout::superblock::{MAGIC, SIZE};
use quire_layout::{BlockNo, BlockSize, Corrupt, Structure};

/// Opens the device of a journal and checks that it is the one that the file system names (`s_journal_uuid`).
///
/// # Errors
/// Device; corrupt: not a journal device, another block size, another UUID, a checksum that does not match, or a
/// length that does not fit.
pub fn open_external(
    device: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    journal_uuid: [u8; 16],
) -> Result<LogGeometry, Error> {
    let bad = |why| Corrupt::new(Structure::JournalSuperblock, why).at(BlockNo(0));
    // The first 4 KiB hold it for every block size, and suit every sector size.
    let head = device.read(0, 4096, Region::LogSuperblock)?;
    let sb = &head[1024..1024 + SIZE];
    if le16(sb, 0x38) != MAGIC || le32(sb, 0x60) & incompat::JOURNAL_DEV == 0 {
        return Err(bad("not a journal device").into());
    }
    if le32(sb, 0x64) & ro_compat::METADATA_CSUM != 0 && le32(sb, 0x3FC) != crc32c(!0, &sb[..0x3FC]) {
        return Err(bad("checksum of the journal device does not match").into());
    }
    if BlockSize::from_log(le32(sb, 0x18)) != Some(block_size) {
        return Err(bad("block size of the journal device is not the file system's").into());
    }
    if sb[0x68..0x78] != journal_uuid {
        return Err(bad("the journal device belongs to another file system: its UUID is not the one named").into());
    }
    LogGeometry::external(device, block_size, le32(sb, 0x04))
}
