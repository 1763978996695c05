//! Where a partition lies, by the image's GPT or MBR. Only read.

use crate::error::{Error, ErrorKind, Result};
use std::io::{Read, Seek, SeekFrom};

/// Bytes of a sector, by which an MBR counts.
const SECTOR: u64 = 512;
/// Bytes of a sector, by which a GPT counts: its header is in the second sector, of one size or the other.
const GPT_SECTORS: [u64; 2] = [SECTOR, 4096];
/// Bytes of a GPT's header, and of an entry, that are looked at.
const GPT_HEADER: usize = 92;
const GPT_ENTRY: usize = 128;
/// The type of the entry of an MBR that protects a GPT.
const PROTECTIVE: u8 = 0xEE;
/// Entries of a GPT that are looked at; every known tool makes 128.
const MAX_GPT_ENTRIES: u32 = 1024;
/// Logical partitions that are looked at, so that a chain that goes in a circle ends.
const MAX_LOGICAL: u32 = 128;

/// Start and length of partition `n` of a disk image (from 1, as the kernel counts), in bytes. For programs that read
/// the image themselves; [`OpenOptions::partition`](crate::OpenOptions::partition) opens the file system in one.
///
/// # Errors
/// Invalid: no partition table, no such partition, or the table cannot be read.
///
/// # Examples
/// ```no_run
/// let mut disk = std::fs::File::open("sdcard.img")?;
/// let (start, bytes) = quire::find_partition(&mut disk, 2)?;
/// println!("partition 2: {bytes} bytes from byte {start} on");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn find(image: &mut (impl Read + Seek), n: u32) -> Result<(u64, u64)> {
    let first = sector(image, 0)?;
    // Any of the four, as in Linux: a hybrid MBR has it where it likes.
    let has_gpt = (0..4).any(|i| entry(&first, i).kind == PROTECTIVE);
    if first[510..] != [0x55, 0xAA] {
        return Err(bad("the image has no partition table"));
    }
    let found = if has_gpt { gpt(image, n)? } else { mbr(image, &first, n)? };
    found.filter(|(_, len)| *len > 0).ok_or_else(|| bad(&format!("the image has no partition {n}")))
}

fn bad(why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, why)
}

/// What the image has at a byte.
fn at<const N: usize>(image: &mut (impl Read + Seek), byte: Option<u64>) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let byte = byte.ok_or_else(|| bad("the partition table leads out of the image"))?;
    let read = image.seek(SeekFrom::Start(byte)).and_then(|_| image.read_exact(&mut bytes));
    read.map_err(|e| bad(&format!("the partition table cannot be read: {e}")))?;
    Ok(bytes)
}

fn sector(image: &mut (impl Read + Seek), n: u64) -> Result<[u8; 512]> {
    at(image, n.checked_mul(SECTOR))
}

/// An entry of an MBR or of an extended boot record.
struct Entry {
    kind: u8,
    start: u64,
    len: u64,
}

fn entry(sector: &[u8; 512], i: usize) -> Entry {
    let e = &sector[446 + 16 * i..][..16];
    Entry { kind: e[4], start: le32(e, 8).into(), len: le32(e, 12).into() }
}

fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn le64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

fn mbr(image: &mut (impl Read + Seek), first: &[u8; 512], n: u32) -> Result<Option<(u64, u64)>> {
    let bytes = |start: u64, len: u64| (start * SECTOR, len * SECTOR);
    if let 1..=4 = n {
        let e = entry(first, usize::try_from(n - 1).expect("small"));
        return Ok((e.kind != 0).then(|| bytes(e.start, e.len)));
    }
    let Some(extended) = (0..4).map(|i| entry(first, i)).find(|e| matches!(e.kind, 0x05 | 0x0F | 0x85)) else {
        return Ok(None);
    };
    let mut at = extended.start;
    for logical in 5..5 + MAX_LOGICAL {
        let record = sector(image, at)?;
        let (own, next) = (entry(&record, 0), entry(&record, 1));
        if logical == n {
            return Ok((own.kind != 0).then(|| bytes(at + own.start, own.len)));
        }
        if next.kind == 0 || next.start == 0 {
            break;
        }
        at = extended.start + next.start;
    }
    Ok(None)
}

fn gpt(image: &mut (impl Read + Seek), n: u32) -> Result<Option<(u64, u64)>> {
    let (header, sector) = gpt_header(image)?;
    let (table, count, size) = (le64(&header, 72), le32(&header, 80), u64::from(le32(&header, 84)));
    if n == 0 || n > count.min(MAX_GPT_ENTRIES) || !(128..=sector).contains(&size) || !sector.is_multiple_of(size) {
        return Ok(None);
    }
    let byte = table.checked_mul(sector).and_then(|start| start.checked_add(u64::from(n - 1) * size));
    let e: [u8; GPT_ENTRY] = at(image, byte)?;
    let (first, last) = (le64(&e, 32), le64(&e, 40));
    let bytes = || {
        let len = last.checked_sub(first)?.checked_add(1)?.checked_mul(sector)?;
        Some((first.checked_mul(sector)?, len))
    };
    Ok(bytes().filter(|_| e[..16] != [0; 16]))
}

/// The header of the GPT, and the bytes of a sector.
fn gpt_header(image: &mut (impl Read + Seek)) -> Result<([u8; GPT_HEADER], u64)> {
    for sector in GPT_SECTORS {
        let header: [u8; GPT_HEADER] = at(image, Some(sector))?;
        if &header[..8] == b"EFI PART" {
            return Ok((header, sector));
        }
    }
    Err(bad("the image has a protective MBR, but no GPT"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn mbr_image(entries: &[(usize, u8, u32, u32)], sectors: usize) -> Vec<u8> {
        let mut image = vec![0; sectors * 512];
        put(&mut image, 0, entries);
        image
    }

    fn put(image: &mut [u8], at: usize, entries: &[(usize, u8, u32, u32)]) {
        let s = &mut image[at * 512..][..512];
        s[510..].copy_from_slice(&[0x55, 0xAA]);
        for &(i, kind, start, len) in entries {
            let e = &mut s[446 + 16 * i..][..16];
            e[4] = kind;
            e[8..12].copy_from_slice(&start.to_le_bytes());
            e[12..].copy_from_slice(&len.to_le_bytes());
        }
    }

    #[test]
    fn primary_and_logical_partitions_of_an_mbr_are_found() {
        let mut image = mbr_image(&[(0, 0x83, 2, 8), (1, 0x05, 20, 40)], 64);
        put(&mut image, 20, &[(0, 0x83, 1, 5), (1, 0x05, 10, 9)]);
        put(&mut image, 30, &[(0, 0x83, 2, 7)]);
        let at = |n| find(&mut Cursor::new(&image), n).map_err(|e| e.to_string());
        assert_eq!(at(1), Ok((1024, 4096)));
        assert_eq!(at(5), Ok((21 * 512, 5 * 512)));
        assert_eq!(at(6), Ok((32 * 512, 7 * 512)));
        assert_eq!(at(3).unwrap_err(), "the image has no partition 3");
        assert_eq!(at(7).unwrap_err(), "the image has no partition 7");
    }

    #[test]
    fn a_chain_of_logical_partitions_in_a_circle_ends() {
        let mut image = mbr_image(&[(1, 0x05, 20, 40)], 64);
        put(&mut image, 20, &[(0, 0x83, 1, 5), (1, 0x05, 10, 9)]);
        put(&mut image, 30, &[(0, 0x83, 2, 7), (1, 0x05, 10, 9)]);
        assert!(find(&mut Cursor::new(&image), 4000).is_err());
    }

    /// A GPT behind an MBR with these entries: its partition 2 has so many sectors from one on.
    fn gpt_image(entries: &[(usize, u8, u32, u32)], sector: usize, first: u64, len: u64) -> Vec<u8> {
        let mut image = mbr_image(entries, 64 * sector / 512);
        let header = &mut image[sector..];
        header[..8].copy_from_slice(b"EFI PART");
        header[72..80].copy_from_slice(&2u64.to_le_bytes());
        header[80..84].copy_from_slice(&128u32.to_le_bytes());
        header[84..88].copy_from_slice(&128u32.to_le_bytes());
        let e = &mut image[2 * sector + 128..];
        e[0] = 1;
        e[32..40].copy_from_slice(&first.to_le_bytes());
        e[40..48].copy_from_slice(&(first + len - 1).to_le_bytes());
        image
    }

    #[test]
    fn a_partition_of_a_gpt_is_found_and_nonsense_is_refused() {
        let mut image = gpt_image(&[(0, 0xEE, 1, 63)], 512, 40, 10);
        assert_eq!(find(&mut Cursor::new(&image), 2).unwrap(), (40 * 512, 10 * 512));
        assert!(find(&mut Cursor::new(&image), 1).is_err());
        let e = 1024 + 128;
        image[e + 40..e + 48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(find(&mut Cursor::new(&image), 2).is_err());
        assert!(find(&mut Cursor::new(&[0; 100]), 1).is_err());
    }

    #[test]
    fn a_gpt_counts_whichever_entry_of_a_hybrid_mbr_protects_it() {
        for i in 0..4 {
            let others = (0..4).filter(|other| *other != i).map(|other| (other, 0x83, 50, 5));
            let entries: Vec<_> = others.chain([(i, 0xEE, 1, 39)]).collect();
            let image = gpt_image(&entries, 512, 40, 10);
            assert_eq!(find(&mut Cursor::new(&image), 2).unwrap(), (40 * 512, 10 * 512), "entry {i}");
        }
    }

    #[test]
    fn a_gpt_of_a_disk_with_sectors_of_4_kib_is_found_and_counts_by_them() {
        let mut image = gpt_image(&[(0, 0xEE, 1, 63)], 4096, 40, 10);
        assert_eq!(find(&mut Cursor::new(&image), 2).unwrap(), (40 * 4096, 10 * 4096));
        image[4096] = 0;
        let error = find(&mut Cursor::new(&image), 2).unwrap_err();
        assert_eq!(error.to_string(), "the image has a protective MBR, but no GPT");
    }
}
