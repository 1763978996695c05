//! Screenshots as pixels: base64, and the PNGs that chromium makes of them (8 bits to a channel, RGB or RGBA, rows not
//! interlaced).

use std::io::Read;

use flate2::read::ZlibDecoder;

pub(crate) fn from_base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("no base64: {letter}"),
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for letters in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = letters.iter().fold(0, |bits, letter| bits << 6 | u32::from(value(*letter)));
        let bits = bits << (6 * (4 - letters.len()));
        bytes.extend(&bits.to_be_bytes()[1..letters.len()]);
    }
    bytes
}

/// Colours of red, green and blue.
pub(crate) type Colour = [u8; 3];

/// A rectangle of whole pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub(crate) left: usize,
    pub(crate) top: usize,
    pub(crate) right: usize,
    pub(crate) bottom: usize,
}

pub(crate) struct Pixels {
    width: usize,
    height: usize,
    /// Bytes of a pixel.
    step: usize,
    bytes: Vec<u8>,
}

impl Pixels {
    pub(crate) fn decode(png: &[u8]) -> Self {
        let rest = png.strip_prefix(b"\x89PNG\r\n\x1a\n").expect("no PNG");
        let (mut at, mut header, mut packed) = (0, [0; 13], Vec::new());
        while at + 12 <= rest.len() {
            let size = number(&rest[at..at + 4]);
            let (name, data) = (&rest[at + 4..at + 8], &rest[at + 8..at + 8 + size]);
            match name {
                b"IHDR" => header.copy_from_slice(data),
                b"IDAT" => packed.extend(data),
                _ => {}
            }
            at += 12 + size;
        }
        let step = match header[8..13] {
            [8, 2, 0, 0, 0] => 3,
            [8, 6, 0, 0, 0] => 4,
            _ => panic!("another kind of PNG: {header:?}"),
        };
        let (width, height) = (number(&header[..4]), number(&header[4..8]));
        let mut filtered = Vec::new();
        ZlibDecoder::new(&*packed).read_to_end(&mut filtered).unwrap();
        Pixels { width, height, step, bytes: unfiltered(&filtered, width * step, step) }
    }

    /// How many pixels of an area have this colour, or nearly.
    pub(crate) fn count(&self, area: Area, colour: Colour) -> usize {
        let rows = area.top..area.bottom.min(self.height);
        let near = |a: &[u8]| a.iter().zip(colour).all(|(a, b)| a.abs_diff(b) <= 2);
        let of_row = |y: usize| {
            let (left, right) = (y * self.width + area.left, y * self.width + area.right.min(self.width));
            self.bytes[left * self.step..right * self.step].chunks(self.step).filter(|p| near(&p[..3])).count()
        };
        rows.map(of_row).sum()
    }
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Rows of so many bytes, each behind the number of its filter (PNG specification, section 9).
fn unfiltered(filtered: &[u8], row: usize, step: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(filtered.len());
    for (n, line) in filtered.chunks(row + 1).enumerate() {
        for (i, byte) in line[1..].iter().enumerate() {
            let at = |is_there: bool, back: usize| if is_there { bytes[n * row + i - back] } else { 0 };
            let (left, above) = (at(i >= step, step), at(n > 0, row));
            let corner = at(n > 0 && i >= step, row + step);
            let predicted = match line[0] {
                0 => 0,
                1 => left,
                2 => above,
                3 => left.midpoint(above),
                4 => paeth(left, above, corner),
                filter => panic!("no filter {filter}"),
            };
            bytes.push(byte.wrapping_add(predicted));
        }
    }
    bytes
}

/// The neighbour that is nearest to `left + above - corner`.
fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, above, corner].map(i16::from);
    let distance = |neighbour: i16| (a + b - c - neighbour).abs();
    if distance(a) <= distance(b) && distance(a) <= distance(c) {
        left
    } else if distance(b) <= distance(c) {
        above
    } else {
        corner
    }
}
