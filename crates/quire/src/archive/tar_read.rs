//! Tar archives as a stream of entries: ustar, GNU (long names, sparse) and PAX (long names, times in nanoseconds,
//! extended attributes of SCHILY and LIBARCHIVE, ACLs, SELinux's labels, sparse 0.0, 0.1 and 1.0, global headers),
//! plain or compressed with gzip or zstd.
//!
//! The crate `tar` decodes the headers. Its own walk is not used, because it splits PAX records at line ends, which
//! binary attributes contain, and does not know PAX's sparse files.
//!
//! *Guarantees*: memory is bounded whatever the archive says: records of an extended header by [`MAX_EXTENDED`], those
//! of all global headers by [`Global`], maps of sparse files by [`MAX_RANGES`].

use super::entry::{Data, Entry, Kind, NoData, Sink, names, shown};
use super::gzip::{self, Gzip};
use super::pax::{Global, Pax, parse_decimal};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{FileType, Timestamp};
use std::io::{BufReader, Read};
use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

const BLOCK: usize = 512;
/// Bytes of an extended header or long name. An attribute has 64 KiB at most, and ext4 stores few of that size.
const MAX_EXTENDED: u64 = 4 << 20;
/// Ranges in the map of one sparse file.
const MAX_RANGES: usize = 1 << 20;
/// Bytes that tell how a stream is compressed.
const MAGIC_BYTES: u64 = 10;
/// A directory with a list of its names as data: of archives that GNU tar makes with `--listed-incremental`.
const GNU_DIRECTORY: EntryType = EntryType::__Nonexhaustive(b'D');

fn bad(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadInput, why)
}

/// The program that unpacks a stream which begins like this, if it is none that is unpacked here.
fn unpacker(magic: &[u8]) -> Option<&'static str> {
    if magic.starts_with(b"\xFD7zXZ\0") {
        return Some("xz");
    }
    // "BZh" alone could be the name of a tar's first entry. Behind it and a digit a block begins, or the end.
    let is_bzip2 = magic.starts_with(b"BZh") && matches!(magic.get(4..), Some(b"1AY&SY" | b"\x17rE8P\x90"));
    is_bzip2.then_some("bzip2")
}

/// A stream, decompressed if it begins like gzip or zstd.
///
/// # Errors
/// It cannot be read. Bad input: it begins like xz or bzip2.
pub(super) fn decompressed<'r>(input: impl Read + 'r) -> Result<Box<dyn Read + 'r>> {
    let mut input = BufReader::with_capacity(1 << 20, input);
    let mut magic = Vec::new();
    (&mut input).take(MAGIC_BYTES).read_to_end(&mut magic).map_err(|e| input_error(&e))?;
    let gzip = magic.starts_with(&[0x1F, 0x8B]);
    let zstd = magic.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]);
    if let Some(name) = unpacker(&magic) {
        return Err(bad(format!("compressed with {name}: `{name} -dc ... | quire create --from -`")));
    }
    let whole = std::io::Cursor::new(magic).chain(input);
    Ok(if gzip {
        Box::new(BufReader::with_capacity(1 << 18, Gzip::new(whole)))
    } else if zstd {
        Box::new(zstd::stream::read::Decoder::new(whole).map_err(|e| input_error(&e))?)
    } else {
        Box::new(whole)
    })
}

fn input_error(e: &std::io::Error) -> Error {
    // One of ours: the caller has ended the work.
    if let Some(own) = e.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return own.clone();
    }
    match e.kind() {
        std::io::ErrorKind::UnexpectedEof => bad("the archive ends in the middle of an entry"),
        _ if e.raw_os_error().is_some() => Error::of_io(e, format!("the archive cannot be read: {e}")),
        std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput | std::io::ErrorKind::Other => {
            bad(format!("the archive cannot be read: {e}"))
        }
        _ => Error::new(ErrorKind::Io, format!("the archive cannot be read: {e}")),
    }
}

/// Reads an archive to its end.
///
/// # Errors
/// Bad input; outside root; those of the sink.
pub(super) fn read(input: &mut dyn Read, sink: &mut dyn Sink) -> Result<()> {
    let mut stream = Stream { input, begun: false, left: 0, padding: 0 };
    let (mut pax, mut long_name, mut long_link) = (Pax::default(), None, None);
    let mut global = Global::default();
    while let Some(header) = stream.header()? {
        let field = |e: std::io::Error| {
            bad(format!("a header of the archive is malformed: {e}")).at(shown(&header.path_bytes()))
        };
        let size = number_in(&header.as_old().size, header.entry_size()).map_err(field)?;
        match header.entry_type() {
            EntryType::GNULongName => long_name = Some(text(stream.extended(size)?)),
            EntryType::GNULongLink => long_link = Some(text(stream.extended(size)?)),
            EntryType::XHeader => pax = Pax::parse(&stream.extended(size)?)?,
            EntryType::XGlobalHeader => global.add(Pax::parse(&stream.extended(size)?)?)?,
            _ => {
                let pax = std::mem::take(&mut pax).over(&global);
                let name = pax.path().or(long_name.take()).unwrap_or_else(|| header.path_bytes().into_owned());
                let link = pax.link().or(long_link.take());
                let link = link.or_else(|| header.link_name_bytes().map(|l| l.into_owned())).unwrap_or_default();
                let done = one(&mut stream, &header, pax, &name, link, sink);
                done.map_err(|e| e.at(shown(&name)))?;
            }
        }
    }
    Ok(())
}

fn text(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

/// A number of a header, as the crate reads it. A field of nothing but zero bytes, which some programs write, is 0.
fn number_in<N: Default>(field: &[u8], read: std::io::Result<N>) -> std::io::Result<N> {
    if field.iter().all(|b| *b == 0) { Ok(N::default()) } else { read }
}

/// Bytes of data behind the header of an entry. Directories, links and nodes have none, whatever size is named: POSIX
/// gives the size of a directory another meaning, and some programs write that of a link's target.
fn stored_bytes(header: &Header, pax: &Pax) -> Result<u64> {
    use EntryType::{Block, Char, Directory, Fifo, Link, Symlink};
    if matches!(header.entry_type(), Directory | Link | Symlink | Char | Block | Fifo) {
        return Ok(0);
    }
    let field = |e: std::io::Error| bad(format!("the header is malformed: {e}"));
    match pax.size()? {
        Some(size) => Ok(size),
        None => number_in(&header.as_old().size, header.entry_size()).map_err(field),
    }
}

/// One entry behind its extended headers.
fn one(
    stream: &mut Stream<'_>,
    header: &Header,
    pax: Pax,
    name: &[u8],
    link: Vec<u8>,
    sink: &mut dyn Sink,
) -> Result<()> {
    let field = |e: std::io::Error| bad(format!("the header is malformed: {e}"));
    let (stored, old) = (stored_bytes(header, &pax)?, header.as_old());
    stream.begin(stored)?;
    let mut sparse = None;
    let kind = match header.entry_type() {
        EntryType::Directory | GNU_DIRECTORY => Kind::Dir,
        EntryType::Symlink => Kind::Symlink(link),
        EntryType::Link => Kind::HardLink(names(&link)?),
        EntryType::Char => Kind::Node(FileType::CharDevice, device(header)?),
        EntryType::Block => Kind::Node(FileType::BlockDevice, device(header)?),
        EntryType::Fifo => Kind::Node(FileType::Fifo, (0, 0)),
        EntryType::GNUSparse => {
            let (map, real) = stream.gnu_sparse(header)?;
            sparse = Some(map);
            Kind::File(real)
        }
        EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => Kind::Dir,
        EntryType::Regular | EntryType::Continuous => match pax.sparse_size()? {
            Some(real) => {
                sparse = Some(if pax.is_sparse_1() { stream.pax_sparse()? } else { pax.sparse_map(MAX_RANGES)? });
                Kind::File(real)
            }
            None => Kind::File(stored),
        },
        // What only some programs know of, such as a volume's label, is no object.
        EntryType::__Nonexhaustive(b'V') => return stream.skip(),
        other => return Err(bad(format!("an entry of the unknown type {:?}", char::from(other.as_byte())))),
    };
    let id = |value: Option<u64>, stored: std::io::Result<u64>| {
        let n = value.map_or_else(|| stored.map_err(field), Ok)?;
        u32::try_from(n).map_err(|_| bad("an owner does not fit 32 bits"))
    };
    let entry = Entry {
        path: names(name)?,
        permissions: number_in(&old.mode, header.mode()).map_err(field)? & 0o7777,
        uid: id(pax.number("uid")?, number_in(&old.uid, header.uid()))?,
        gid: id(pax.number("gid")?, number_in(&old.gid, header.gid()))?,
        modified: match pax.time("mtime")? {
            Some(t) => t,
            // Base-256 may be negative: what the crate reads as a huge number.
            None => Timestamp::new(number_in(&old.mtime, header.mtime()).map_err(field)?.cast_signed(), 0),
        },
        accessed: pax.time("atime")?,
        xattrs: pax.attributes(&kind)?,
        kind,
    };
    match entry.kind {
        Kind::File(size) => {
            let ranges = sparse.unwrap_or_else(|| vec![(0, stored)]);
            check_map(&ranges, stream.left, size)?;
            let mut data = TarData { stream, ranges: ranges.into_iter(), now: (0, 0) };
            sink.entry(&entry, &mut data)?;
        }
        _ => sink.entry(&entry, &mut NoData)?,
    }
    stream.skip()
}

/// A map must be in order, inside of the file, and describe what is stored.
fn check_map(ranges: &[(u64, u64)], stored: u64, size: u64) -> Result<()> {
    let (mut at, mut sum) = (0, 0_u64);
    for (start, len) in ranges {
        let end = start.checked_add(*len).filter(|end| *start >= at && *end <= size);
        at = end.ok_or_else(|| bad("the map of a sparse file is malformed"))?;
        sum = sum.saturating_add(*len);
    }
    if sum > stored { Err(bad("the map of a sparse file names more data than there is")) } else { Ok(()) }
}

fn device(header: &Header) -> Result<(u32, u32)> {
    let number = |n: std::io::Result<Option<u32>>| n.ok().flatten().ok_or_else(|| bad("a device has no numbers"));
    Ok((number(header.device_major())?, number(header.device_minor())?))
}

/// The bytes of an archive, with what is left of the entry that is read.
struct Stream<'r> {
    input: &'r mut dyn Read,
    /// A header has been read.
    begun: bool,
    left: u64,
    /// Bytes between the entry's end and the next header.
    padding: u64,
}

impl Stream<'_> {
    fn exact(&mut self, buf: &mut [u8]) -> Result<()> {
        self.input.read_exact(buf).map_err(|e| input_error(&e))
    }

    /// The next header; `None` at the end.
    ///
    /// # Errors
    /// Bad input: there is no byte at all, as of a program that has failed before it wrote an archive.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut block = [0; BLOCK];
        let mut got = 0;
        while got < BLOCK {
            match self.input.read(&mut block[got..]).map_err(|e| input_error(&e))? {
                0 if got == 0 && !self.begun => return Err(bad("the archive is empty")),
                // Some programs end an archive without its two blocks of zeros.
                0 if got == 0 => return Ok(None),
                0 => return Err(bad("the archive ends in the middle of a header")),
                n => got += n,
            }
        }
        self.begun = true;
        if block.iter().all(|b| *b == 0) {
            // The rest is padding; a writer on the other side of a pipe must not fail.
            return match std::io::copy(self.input, &mut std::io::sink()) {
                Err(e) if !gzip::is_garbage(&e) => Err(input_error(&e)),
                // As with gzip and tar it does not matter what follows a whole archive.
                _ => Ok(None),
            };
        }
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(&block);
        let sum: u32 =
            block.iter().enumerate().map(|(i, b)| u32::from(if (148..156).contains(&i) { b' ' } else { *b })).sum();
        if header.cksum().ok() != Some(sum) {
            return Err(bad("this is no tar archive, or a header of it is damaged (checksum)"));
        }
        Ok(Some(header))
    }

    fn begin(&mut self, size: u64) -> Result<()> {
        let padded = size.checked_next_multiple_of(BLOCK as u64).ok_or_else(|| bad("an entry is too large"))?;
        (self.left, self.padding) = (size, padded - size);
        Ok(())
    }

    /// The contents of an extended header.
    fn extended(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > MAX_EXTENDED {
            return Err(bad(format!("an extended header of {size} bytes")));
        }
        self.begin(size)?;
        let mut bytes = Vec::new();
        (&mut *self.input).take(size).read_to_end(&mut bytes).map_err(|e| input_error(&e))?;
        self.left -= bytes.len() as u64;
        self.skip()?;
        Ok(bytes)
    }

    /// Goes to the next header.
    fn skip(&mut self) -> Result<()> {
        let rest = self.left + self.padding;
        let skipped = std::io::copy(&mut (&mut *self.input).take(rest), &mut std::io::sink());
        if skipped.map_err(|e| input_error(&e))? < rest {
            return Err(bad("the archive ends in the middle of an entry"));
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let want = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.input.read(&mut buf[..want]).map_err(|e| input_error(&e))?;
        if n == 0 && want > 0 {
            return Err(bad("the archive ends in the middle of an entry"));
        }
        self.left -= n as u64;
        Ok(n)
    }

    /// The map and size of a file in GNU's old sparse format: more of the map may follow the header.
    fn gnu_sparse(&mut self, header: &Header) -> Result<(Vec<(u64, u64)>, u64)> {
        let malformed = |_| bad("the map of a sparse file is malformed");
        let gnu = header.as_gnu().ok_or_else(|| bad("a sparse file without GNU's header"))?;
        let mut map = Vec::new();
        let mut add = |blocks: &[GnuSparseHeader]| -> Result<()> {
            for b in blocks.iter().filter(|b| !b.is_empty()) {
                map.push((b.offset().map_err(malformed)?, b.length().map_err(malformed)?));
                if map.len() > MAX_RANGES {
                    return Err(bad("the map of a sparse file is too long"));
                }
            }
            Ok(())
        };
        add(&gnu.sparse)?;
        let mut more = gnu.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            self.exact(block.as_mut_bytes())?;
            add(&block.sparse)?;
            more = block.is_extended();
        }
        Ok((map, gnu.real_size().map_err(malformed)?))
    }

    /// The map of PAX's sparse format 1.0, which begins the data: numbers in lines, padded to whole blocks.
    fn pax_sparse(&mut self) -> Result<Vec<(u64, u64)>> {
        let mut block = [0; BLOCK];
        let mut at = BLOCK;
        let mut number = |stream: &mut Self| -> Result<u64> {
            let mut digits = Vec::new();
            loop {
                if at == BLOCK {
                    let mut got = 0;
                    while got < BLOCK {
                        match stream.read(&mut block[got..])? {
                            0 => return Err(bad("the map of a sparse file is cut off")),
                            n => got += n,
                        }
                    }
                    at = 0;
                }
                let b = block[at];
                at += 1;
                match b {
                    b'\n' => return parse_decimal(&digits).ok_or_else(|| bad("the map of a sparse file is malformed")),
                    _ if digits.len() < 20 => digits.push(b),
                    _ => return Err(bad("the map of a sparse file is malformed")),
                }
            }
        };
        let count = number(self)?;
        if count > MAX_RANGES as u64 {
            return Err(bad("the map of a sparse file is too long"));
        }
        let mut map = Vec::new();
        for _ in 0..count {
            map.push((number(self)?, number(self)?));
        }
        Ok(map)
    }
}

/// The data of a file in the archive.
struct TarData<'s, 'r> {
    stream: &'s mut Stream<'r>,
    ranges: std::vec::IntoIter<(u64, u64)>,
    /// What is left of the range that is read: start and length.
    now: (u64, u64),
}

impl Data for TarData<'_, '_> {
    fn next(&mut self, buf: &mut [u8]) -> Result<Option<(u64, usize)>> {
        while self.now.1 == 0 {
            match self.ranges.next() {
                Some(range) => self.now = range,
                None => return Ok(None),
            }
        }
        // A whole buffer, if there is that much: the image likes large pieces.
        let want = buf.len().min(usize::try_from(self.now.1).unwrap_or(usize::MAX));
        let mut got = 0;
        while got < want {
            got += self.stream.read(&mut buf[got..want])?;
        }
        let at = self.now.0;
        self.now = (at + got as u64, self.now.1 - got as u64);
        Ok(Some((at, got)))
    }

    fn ranges(&mut self, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.ranges.by_ref().filter(|(_, len)| *len > 0).for_each(|(start, len)| each(start, len));
        Ok(())
    }
}
