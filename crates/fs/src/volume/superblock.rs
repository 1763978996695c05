//! The primary superblock at home, outside of any transaction: read, written, checked against the device.

use crate::error::Result;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, FlushGate, Mutant, Region};
use quire_journal::Format;
use quire_layout::features::{compat, incompat, ro_compat};
use quire_layout::superblock::{self, Superblock, state};
use quire_layout::{BlockSize, Corrupt, NotExt4, Structure, Unsupported, recognise};

/// Smallest write that covers the superblock on a device with sectors of more than 1 KiB, in bytes.
const LARGE_SECTOR_WRITE: u64 = 2048;

/// Reads the primary superblock. A tear between its sectors is mended in memory.
pub(super) fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let end = superblock::OFFSET + u64::try_from(superblock::SIZE).expect("1024");
    if device.info().size < end {
        return Err(NotExt4::TooSmall.into());
    }
    let raw = device.read(superblock::OFFSET, superblock::SIZE, Region::Superblock)?;
    recognise(&raw)?;
    if Mutant::TornSuperblockRefused.is_on() {
        return Ok(Superblock::decode(&raw)?);
    }
    let (sb, mended) = Superblock::decode_torn(&raw)?;
    if mended {
        tracing::warn!("the superblock was torn between its sectors; its flags are used, its checksum is not");
    }
    Ok(sb)
}

/// Writes the primary superblock at home and makes it durable.
pub(super) fn write_superblock(gate: &FlushGate, sb: &mut Superblock) -> Result<()> {
    sb.seal();
    let sector = u64::from(gate.device().info().logical_sector);
    // On a device with larger sectors the superblock lies in the middle of one. The rest is kept.
    let (start, len) = if sector > 1024 { (0, sector.max(LARGE_SECTOR_WRITE)) } else { (superblock::OFFSET, 1024) };
    let mut buf = if start == 0 {
        gate.device().read(0, usize::try_from(len).expect("small"), Region::Superblock)?
    } else {
        Buf::zeroed(superblock::SIZE)
    };
    let at = usize::try_from(superblock::OFFSET - start).expect("small");
    buf[at..at + superblock::SIZE].copy_from_slice(sb.bytes());
    gate.device().write(start, Arc::new(buf), Region::Superblock)?;
    Ok(gate.flush()?)
}

/// Sets the flags that say that the file system is in use (O1). Only flags may change here: then a tear between them
/// and the checksum can be told from damage. Other fields change by a transaction.
pub(super) fn mark_in_use(sb: &mut Superblock, log: Option<Format>) {
    let mut f = sb.features();
    match log {
        None => sb.set_state(sb.state() & !state::VALID),
        Some(Format::Jbd2) => f.incompat |= incompat::RECOVER,
        // Before the journal's superblock says so, and before the first record (Q8).
        Some(Format::Quire | Format::Nvram) => f.incompat |= incompat::RECOVER | incompat::QUIRE_LOG,
    }
    if f.has_compat(compat::ORPHAN_FILE) {
        f.ro_compat |= ro_compat::ORPHAN_PRESENT;
    }
    sb.set_features(f);
}

/// Clears a feature bit at home.
pub(super) fn clear_incompat(gate: &FlushGate, bits: u32) -> Result<()> {
    let mut sb = read_superblock(&**gate.device())?;
    let mut f = sb.features();
    f.incompat &= !bits;
    sb.set_features(f);
    write_superblock(gate, &mut sb)
}

/// Refuses an image that is cut off, and a device whose sectors are larger than the image's blocks.
pub(super) fn check_device(sb: &Superblock, device: &dyn BlockDevice) -> Result<()> {
    let bs = sb.block_size();
    if device.info().size >> bs.bits() < sb.blocks_count() {
        let why = "the file system is larger than its device (a truncated image, or too small a sizelimit=?)";
        return Err(Corrupt::new(Structure::Superblock, why).at(sb.own_block()).into());
    }
    check_sectors(bs, device)
}

/// Refuses a device, of the file system or of its journal, whose sectors are larger than a block.
pub(super) fn check_sectors(bs: BlockSize, device: &dyn BlockDevice) -> Result<()> {
    let info = device.info();
    if bs.bytes64() < u64::from(info.physical_sector) && !info.read_only {
        let what =
            format!("blocks of {} bytes on a device with physical sectors of {}", bs.bytes(), info.physical_sector);
        return Err(Unsupported::new(what).into());
    }
    if u32::try_from(bs.bytes()).is_ok_and(|b| b < info.logical_sector) {
        let what = format!("blocks of {} bytes on a device with sectors of {}", bs.bytes(), info.logical_sector);
        return Err(Unsupported::new(what).into());
    }
    Ok(())
}
