//! An archive on its way out, which looks whole only when it is.
//!
//! Most programs take a tar that ends between two entries as whole, and leave out a header of which only a part is
//! there. All refuse one that ends in the data of an entry, such as a file or the records in front of one. So what goes
//! out before the end stops in data.
//!
//! *Guarantees*: until [`ArchiveOutput::finish`] the bytes that have gone out end in data, also if the process is
//! killed. A write to a pipe that is nearly full takes a part: either the write and all its parts stop in data, or it
//! has at most [`WHOLE_BYTES`], and a pipe takes it as a whole. A regular file can end elsewhere if its file system
//! becomes full ([`ArchiveOutput::surplus`]), or if the process is killed while such a write passes the end of a page.
//!
//! *Relies on*: `export_tar` has data within each [`WHOLE_BYTES`].

use std::collections::VecDeque;
use std::io::{self, Write};
use std::ops::Range;

/// Bytes of a block of a tar archive.
const BLOCK_BYTES: usize = 512;
/// How much is kept at most.
const BUFFER_BYTES: usize = 1 << 20;
/// What a pipe takes as a whole or not at all (pipe(7), PIPE_BUF).
const WHOLE_BYTES: u64 = 4096;
/// Where a header has the size of the data behind it.
const SIZE_FIELD: Range<usize> = 124..136;

/// Output of an archive, buffered.
pub(super) struct ArchiveOutput<W> {
    out: W,
    /// What has not gone out.
    kept: Vec<u8>,
    /// Bytes that have gone out.
    sent: u64,
    /// How many of them end in data.
    stopped: u64,
    data: DataRanges,
}

impl<W: Write> ArchiveOutput<W> {
    pub(super) fn new(out: W) -> Self {
        let kept = Vec::with_capacity(BUFFER_BYTES);
        ArchiveOutput { out, kept, sent: 0, stopped: 0, data: DataRanges::default() }
    }

    /// All of the archive is here: its end goes out.
    ///
    /// # Errors
    /// Those of the output.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.send(self.end())?;
        self.out.flush()
    }

    /// Bytes that have gone out behind the last stop in data. Without them the archive does not look whole.
    pub(super) fn surplus(&self) -> u64 {
        self.sent - self.stopped
    }

    pub(super) fn get_ref(&self) -> &W {
        &self.out
    }

    fn end(&self) -> u64 {
        self.sent + self.kept.len() as u64
    }

    /// Sends what can go out before the end of the archive is here.
    fn send_to_data(&mut self) -> io::Result<()> {
        let end = self.end();
        match self.data.last_stop(end) {
            Some(stop) => self.send(stop),
            None => Ok(()),
        }
    }

    /// Sends what is kept up to here.
    fn send(&mut self, to: u64) -> io::Result<()> {
        let mut done = Ok(());
        let mut at = 0;
        while self.sent < to && done.is_ok() {
            let stop = self.data.next_stop(self.sent).min(to);
            let bytes = usize::try_from(stop - self.sent).map_or(self.kept.len(), |n| at + n);
            match self.out.write(&self.kept[at..bytes]) {
                Ok(0) => done = Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    (at, self.sent) = (at + written, self.sent + written as u64);
                    self.stopped = self.data.last_stop(self.sent).unwrap_or(self.stopped);
                    self.data.forget_before(self.sent);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => done = Err(e),
            }
        }
        self.kept.drain(..at);
        done
    }
}

impl<W: Write> Write for ArchiveOutput<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = buf.len().min(BUFFER_BYTES - self.kept.len());
        self.data.look(self.end(), &buf[..n]);
        self.kept.extend_from_slice(&buf[..n]);
        // The beginning goes out soon: of a process that is killed there is something that is no archive.
        if self.kept.len() == BUFFER_BYTES || self.sent == 0 {
            self.send_to_data()?;
        }
        if self.kept.len() == BUFFER_BYTES {
            // There was no data.
            self.send(self.end())?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_to_data()?;
        self.out.flush()
    }
}

/// Where data lies in an archive that goes by. What ends behind the first byte of a range, or before, and before its
/// last byte is an archive that ends in data.
#[derive(Default)]
struct DataRanges {
    /// Those that are not over, in the order of the archive, and the last one.
    ranges: VecDeque<Range<u64>>,
    /// The beginning of a header.
    header: Vec<u8>,
    /// Bytes of data and padding until the next header.
    left: u64,
}

impl DataRanges {
    /// Looks at the next bytes, of which the first is at `at`.
    fn look(&mut self, mut at: u64, mut bytes: &[u8]) {
        loop {
            let passed = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            (self.left, at, bytes) = (self.left - passed as u64, at + passed as u64, &bytes[passed..]);
            let (header, behind) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.header.len()));
            self.header.extend_from_slice(header);
            (at, bytes) = (at + header.len() as u64, behind);
            if self.header.len() < BLOCK_BYTES {
                return;
            }
            let size = number(&self.header[SIZE_FIELD]);
            self.header.clear();
            self.left = size.next_multiple_of(BLOCK_BYTES as u64);
            if size > 0 {
                self.ranges.push_back(at..at + size);
            }
        }
    }

    /// The last place up to `at` where an archive ends in data.
    fn last_stop(&self, at: u64) -> Option<u64> {
        let begun = self.begun(at).checked_sub(1)?;
        Some(at.min(self.ranges[begun].end - 1))
    }

    /// How many of the ranges begin up to `at`.
    fn begun(&self, at: u64) -> usize {
        self.ranges.partition_point(|range| range.start <= at)
    }

    /// Where the write that begins at `at` stops at the latest.
    fn next_stop(&self, at: u64) -> u64 {
        let begun = self.begun(at);
        let rest = begun.checked_sub(1).map(|n| self.ranges[n].end - 1);
        let near = self.last_stop(at + WHOLE_BYTES);
        let far = || self.ranges.get(begun).map(|range| range.start);
        // Behind the last data the end of the archive goes out.
        rest.max(near).filter(|stop| *stop > at).or_else(far).unwrap_or(at + WHOLE_BYTES)
    }

    /// Forgets ranges that an archive of `at` bytes has behind it, but for the last of all.
    fn forget_before(&mut self, at: u64) {
        while self.ranges.len() > 1 && self.ranges[0].end <= at {
            self.ranges.pop_front();
        }
    }
}

/// A number in a header: octal, or in base 256 if it is large.
fn number(field: &[u8]) -> u64 {
    if field[0] & 0x80 != 0 {
        return field[4..].iter().fold(0, |n, b| (n << 8) | u64::from(*b));
    }
    let digits = field.iter().filter(|b| (b'0'..b'8').contains(b));
    digits.fold(0, |n, b| (n << 3) | u64::from(b - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes small writes as a whole, and of larger ones whole pages, as a pipe that is nearly full; notes where each
    /// has ended.
    #[derive(Default)]
    struct Pipe {
        taken: Vec<u8>,
        ends: Vec<usize>,
        room: Option<usize>,
    }

    impl Write for Pipe {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            if self.room == Some(0) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let pages = [1, 16, 3, 256][self.ends.len() % 4] * 4096;
            let n = buf.len().min(pages).min(self.room.unwrap_or(usize::MAX));
            self.taken.extend_from_slice(&buf[..n]);
            self.ends.push(self.taken.len());
            self.room = self.room.map(|room| room - n);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Entries with so much data each, and the end.
    fn archive(sizes: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for size in sizes {
            let mut header = [b'h'; BLOCK_BYTES];
            header[SIZE_FIELD].copy_from_slice(format!("{size:011o}\0").as_bytes());
            bytes.extend(header);
            bytes.resize(bytes.len() + size, b'd');
            bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        }
        bytes.resize(bytes.len() + 2 * BLOCK_BYTES, 0);
        bytes
    }

    /// True if a program that drops the beginning of a block finds nothing but whole entries.
    fn looks_whole(bytes: &[u8]) -> bool {
        let blocks = bytes.len() / BLOCK_BYTES * BLOCK_BYTES;
        let mut at = 0;
        while at < blocks {
            let size = usize::try_from(number(&bytes[at..][SIZE_FIELD])).unwrap();
            at += BLOCK_BYTES + size.next_multiple_of(BLOCK_BYTES);
        }
        at == blocks
    }

    fn sent_in_pieces(archive: &[u8], piece: usize) -> ArchiveOutput<Pipe> {
        let mut out = ArchiveOutput::new(Pipe::default());
        archive.chunks(piece).for_each(|chunk| out.write_all(chunk).unwrap());
        out
    }

    /// Archives of records and files, some far behind each other, some larger than what is kept.
    fn archives() -> Vec<Vec<u8>> {
        let bare = [0, 0, 0, 0, 0, 0, 20];
        let mixed = [19, 0, 1, 512, 513, 0, 0, 4096, 5000, 0, 100_000, 3 << 20, 1, 0, 0, 700];
        vec![archive(&[1]), archive(&mixed), archive(&bare.repeat(1000)), archive(&mixed.repeat(3))]
    }

    #[test]
    fn an_archive_that_is_not_finished_looks_cut_wherever_it_ends() {
        for (n, archive) in archives().iter().enumerate() {
            for piece in [100, 512, 8192, 3 << 20] {
                let mut out = sent_in_pieces(archive, piece);
                out.flush().unwrap();
                assert!(!out.out.ends.is_empty() && out.surplus() == 0, "archive {n}: nothing has gone out");
                for end in &out.out.ends {
                    assert!(!looks_whole(&archive[..*end]), "archive {n} in pieces of {piece}: {end} bytes look whole");
                }
                out.finish().unwrap();
                assert!(out.out.taken == *archive, "archive {n} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn an_archive_without_data_goes_out_all_the_same() {
        let archive = archive(&[0; 5000]);
        let mut out = sent_in_pieces(&archive, 8192);
        out.finish().unwrap();
        assert!(out.out.taken == archive);
    }

    /// Entries without data at the end, and the blocks of zeros, may go out in two writes. The first has the entries.
    #[test]
    fn the_last_entries_of_an_archive_go_out_together() {
        let archive = archive(&[1, 0, 0, 0, 0, 0, 0]);
        let mut out = sent_in_pieces(&archive, 512);
        let before = out.out.ends.len();
        out.finish().unwrap();
        assert!(out.out.ends[before] >= archive.len() - 2 * BLOCK_BYTES, "{:?}", out.out.ends);
    }

    #[test]
    fn the_beginning_of_an_archive_goes_out_as_soon_as_there_is_data() {
        let archive = archive(&[0, 0, 30, 0]);
        let out = sent_in_pieces(&archive[..3 * BLOCK_BYTES], 512);
        assert_eq!(out.out.taken.len(), 3 * BLOCK_BYTES);
        let out = sent_in_pieces(&archive, 512);
        assert!(out.out.taken.len() < archive.len() && !looks_whole(&out.out.taken));
    }

    #[test]
    fn what_a_full_output_has_taken_behind_the_last_data_is_told() {
        let archive = archive(&[600, 0, 0, 0, 0, 700]);
        let data = 512..512 + 600;
        for room in [300, 512, 900, 1111, 1112, 2048, 2049, 4096, 4300] {
            let mut out = ArchiveOutput::new(Pipe { room: Some(room), ..Pipe::default() });
            let refused = out.write_all(&archive).and_then(|()| out.finish()).unwrap_err();
            assert_eq!((refused.kind(), out.out.taken.len()), (io::ErrorKind::StorageFull, room));
            let left = room - usize::try_from(out.surplus()).unwrap();
            assert!(left == 0 || !looks_whole(&archive[..left]), "{room} bytes: {left} are left");
            assert!(room < data.start || left >= room.min(data.end - 1), "{room} bytes: only {left} are left");
        }
    }

    #[test]
    fn a_large_size_is_a_number_in_base_256() {
        assert_eq!(number(b"00000001750\0"), 1000);
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1]), (3 << 32) + 1);
    }
}
