//! Parts of tar archives, byte by byte, so that a test can make those that no program would write.
//!
//! Guarantees: what is made here is a valid ustar or PAX header; a test that changes one puts the checksum in anew
//! ([`seal`]). Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block".

/// Bytes of a header; data is padded to a multiple of it.
pub const BLOCK: usize = 512;

/// A header (ustar) with its checksum, of an entry with so many bytes of data.
///
/// # Panics
/// If the name is longer than a header.
#[must_use]
pub fn header(name: &str, kind: u8, size: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    put(257, "ustar\x0000");
    block[156] = kind;
    seal(&mut block);
    block
}

/// Puts the checksum into a header.
///
/// # Panics
/// If it is shorter than a header.
pub fn seal(header: &mut [u8]) {
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// A header of a link with this target: hard (`1`) or symbolic (`2`).
///
/// # Panics
/// If the target is longer than a header.
#[must_use]
pub fn link(name: &str, kind: u8, target: &str) -> Vec<u8> {
    let mut block = header(name, kind, 0);
    block[157..157 + target.len()].copy_from_slice(target.as_bytes());
    seal(&mut block);
    block
}

/// Data as it follows a header.
#[must_use]
pub fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// An entry: its header and its data.
#[must_use]
pub fn entry(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    [header(name, kind, data.len() as u64), padded(data.to_vec())].concat()
}

/// A PAX header with these records, in front of what it speaks of.
///
/// # Panics
/// If a record has 1000 bytes or more.
#[must_use]
pub fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let len = (1..4).map(|digits| rest.len() + digits).find(|len| len.to_string().len() + rest.len() == *len);
        text.push_str(&format!("{}{rest}", len.expect("a record of less than 1000 bytes")));
    }
    entry("pax", b'x', text.as_bytes())
}
