//! Streams of gzip, read as gzip(1) reads them: members one after the other, and zeros behind the last one are padding.
//!
//! Source: gzip.c of GNU gzip, `get_method`.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, ErrorKind, Read};

/// What each member begins with.
const MAGIC: [u8; 2] = [0x1F, 0x8B];

/// What a stream has behind its last member, if it is neither a member nor zeros. All of the data has been read then.
#[derive(Debug, thiserror::Error)]
#[error("what follows the compressed data is not gzip")]
struct Garbage;

/// True for the error of a stream that is whole, and has something else behind its end.
pub(super) fn is_garbage(e: &io::Error) -> bool {
    e.get_ref().is_some_and(|inner| inner.is::<Garbage>())
}

/// The data of a stream.
pub(super) struct Gzip<R> {
    /// The member that is read; `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    pub(super) fn new(input: R) -> Self {
        Gzip { member: Some(GzDecoder::new(input)) }
    }
}

/// Goes to the next member; false: the stream ends here.
///
/// # Errors
/// The input cannot be read; it has [`Garbage`].
fn is_followed(input: &mut impl BufRead) -> io::Result<bool> {
    let mut has_zeros = false;
    loop {
        let bytes = match input.fill_buf() {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            filled => filled?,
        };
        match bytes {
            [] => return Ok(false),
            // Of a lone byte at the end of the buffer the second one is not known.
            [first, rest @ ..] if !has_zeros && *first == MAGIC[0] && rest.first().is_none_or(|b| *b == MAGIC[1]) => {
                return Ok(true);
            }
            zeros if zeros.iter().all(|b| *b == 0) => {
                has_zeros = true;
                let n = zeros.len();
                input.consume(n);
            }
            _ => return Err(io::Error::new(ErrorKind::InvalidData, Garbage)),
        }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let n = member.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            let input = self.member.take().map(GzDecoder::into_inner);
            if let Some(mut input) = input
                && is_followed(&mut input)?
            {
                self.member = Some(GzDecoder::new(input));
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::GzEncoder;

    fn packed(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        GzEncoder::new(data, Compression::fast()).read_to_end(&mut out).unwrap();
        out
    }

    /// What is read, and the error at the end. With a small buffer, so that a member ends in the middle of it.
    fn read(stream: &[u8]) -> (Vec<u8>, Option<io::Error>) {
        let mut gzip = Gzip::new(io::BufReader::with_capacity(7, stream));
        let mut data = Vec::new();
        let error = gzip.read_to_end(&mut data).err();
        (data, error)
    }

    #[test]
    fn members_are_read_one_after_the_other_and_zeros_behind_them_are_no_error() {
        for zeros in [0, 1, 6, 700] {
            let stream = [packed(b"one "), packed(b""), packed(b"two"), vec![0; zeros]].concat();
            let (data, error) = read(&stream);
            assert!(data == b"one two" && error.is_none(), "{zeros}: {data:?}, {error:?}");
        }
    }

    #[test]
    fn what_is_neither_zeros_nor_gzip_is_told_behind_the_data() {
        for behind in [&b"x"[..], b"\x1Fx", b"\0\0x", &[0; 7], &[&[0; 9][..], &packed(b"no")].concat()] {
            let (data, error) = read(&[&packed(b"data")[..], behind].concat());
            assert_eq!(data, b"data", "{behind:?}");
            assert_eq!(error.as_ref().is_some_and(is_garbage), behind != [0; 7], "{behind:?}: {error:?}");
        }
    }

    #[test]
    fn a_member_that_is_damaged_or_cut_off_is_an_error_and_no_garbage() {
        let whole = packed(b"some data that has a checksum");
        let mut damaged = whole.clone();
        let crc = whole.len() - 8;
        damaged[crc] ^= 1;
        for stream in [&whole[..whole.len() - 1], &whole[..12], &damaged, &[&whole[..], b"\x1F\x8B"].concat()] {
            let (_, error) = read(stream);
            assert!(error.as_ref().is_some_and(|e| !is_garbage(e)), "{error:?}");
        }
    }
}
