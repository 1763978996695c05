//! A batch as the host's calls take it: contiguous runs of buffers.
//!
//! Reads and writes are sorted by place and joined where one ends at the start of the next, so that neighbouring
//! blocks of a batch become one vectored call. What is long is cut into pieces of about [`PIECE_BYTES`], which are in
//! flight together. A segment owns its buffers.

use crate::buf::{Buf, SECTOR};
use crate::io::Io;
use crate::policy::PIECE_BYTES;
use crate::sync::Arc;

/// A call takes at most this many buffers (IOV_MAX).
pub(crate) const MAX_PIECES: usize = 1024;

/// The buffers of a segment, in order of place.
pub(crate) enum Payload {
    /// Each with its index among the batch's reads.
    Read(Vec<(usize, Buf)>),
    Write {
        pieces: Vec<Arc<Buf>>,
        fua: bool,
    },
}

/// One run of buffers that lie side by side on the device.
pub(crate) struct Segment {
    /// Byte offset on the device.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) len: usize,
    pub(crate) payload: Payload,
}

/// A batch, sorted out.
pub(crate) struct Plan {
    pub(crate) segments: Vec<Segment>,
    /// What is not a plain aligned read or write; reads with their index.
    pub(crate) rest: Vec<(usize, Io)>,
}

impl Plan {
    /// Sorts out `batch`; what is no multiple of `sector` bytes goes to `rest`.
    pub(crate) fn of(batch: Vec<Io>, sector: usize) -> Plan {
        let unit = sector.max(SECTOR) as u64;
        let (mut plain, mut rest, mut reads) = (Vec::with_capacity(batch.len()), Vec::new(), 0);
        for io in batch {
            let index = reads;
            reads += usize::from(matches!(io, Io::Read { .. }));
            let (at, len) = io.range();
            let aligned = at.is_multiple_of(unit) && len.is_multiple_of(unit);
            match io {
                Io::Read { .. } | Io::Write { .. } if aligned => plain.push((index, io)),
                _ => rest.push((index, io)),
            }
        }
        plain.sort_by_key(|(_, io)| match io {
            Io::Write { at, fua, .. } => (1, *fua, *at),
            io => (0, false, io.range().0),
        });
        let mut segments: Vec<Segment> = Vec::new();
        for (index, io) in plain {
            match io {
                Io::Read { at, buf, .. } => push_read(&mut segments, at, index, buf),
                Io::Write { mut at, data, fua, .. } => {
                    for piece in data {
                        let len = piece.len() as u64;
                        push_write(&mut segments, at, piece, fua);
                        at += len;
                    }
                }
                _ => unreachable!("only reads and writes are plain"),
            }
        }
        Plan { segments, rest }
    }
}

fn push_read(to: &mut Vec<Segment>, at: u64, index: usize, buf: Buf) {
    let len = buf.len();
    if let Some(last) = to.last_mut().filter(|s| s.takes(at, len))
        && let Payload::Read(pieces) = &mut last.payload
        && pieces.len() < MAX_PIECES
    {
        pieces.push((index, buf));
        last.len += len;
        return;
    }
    to.push(Segment { at, len, payload: Payload::Read(vec![(index, buf)]) });
}

fn push_write(to: &mut Vec<Segment>, at: u64, piece: Arc<Buf>, fua: bool) {
    let len = piece.len();
    if let Some(last) = to.last_mut().filter(|s| s.takes(at, len))
        && let Payload::Write { pieces, fua: same } = &mut last.payload
        && *same == fua
        && pieces.len() < MAX_PIECES
    {
        pieces.push(piece);
        last.len += len;
        return;
    }
    to.push(Segment { at, len, payload: Payload::Write { pieces: vec![piece], fua } });
}

impl Segment {
    /// True if `len` bytes at `at` continue this segment and leave it short enough.
    fn takes(&self, at: u64, len: usize) -> bool {
        self.at + self.len as u64 == at && self.len + len <= PIECE_BYTES
    }

    /// One segment per buffer, to find the one that fails.
    pub(crate) fn split(self) -> Vec<Segment> {
        let mut parts = Vec::new();
        let mut at = self.at;
        let mut part = |len: usize, payload| {
            parts.push(Segment { at, len, payload });
            at += len as u64;
        };
        match self.payload {
            Payload::Read(pieces) => {
                pieces.into_iter().for_each(|(i, b)| part(b.len(), Payload::Read(vec![(i, b)])));
            }
            Payload::Write { pieces, fua } => {
                pieces.into_iter().for_each(|p| part(p.len(), Payload::Write { pieces: vec![p], fua }));
            }
        }
        parts
    }

    pub(crate) fn pieces(&self) -> usize {
        match &self.payload {
            Payload::Read(p) => p.len(),
            Payload::Write { pieces, .. } => pieces.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Region;

    fn write(at: u64, sectors: &[usize], fua: bool) -> Io {
        let data = sectors.iter().map(|n| Arc::new(Buf::zeroed(n * SECTOR))).collect();
        Io::Write { at, data, region: Region::Data, fua }
    }

    fn read(at: u64, len: usize) -> Io {
        Io::Read { at, buf: Buf::zeroed(len), region: Region::Data }
    }

    fn shape(plan: &Plan) -> Vec<(u64, usize, usize)> {
        plan.segments.iter().map(|s| (s.at, s.len, s.pieces())).collect()
    }

    #[test]
    fn neighbours_become_one_call_whatever_their_order() {
        let plan = Plan::of(vec![write(8192, &[8], false), write(0, &[8, 8], false), write(16384, &[8], false)], 512);
        assert_eq!(shape(&plan), [(0, 12288, 3), (16384, 4096, 1)]);
    }

    #[test]
    fn reads_writes_and_fua_do_not_mix() {
        let plan = Plan::of(vec![write(0, &[1], false), write(512, &[1], true), read(1024, 512), read(1536, 512)], 512);
        assert_eq!(shape(&plan), [(1024, 1024, 2), (0, 512, 1), (512, 512, 1)]);
    }

    #[test]
    fn long_runs_are_cut_by_bytes_and_by_buffers() {
        let blocks = Plan::of((0..512).map(|i| write(i * 4096, &[8], false)).collect(), 512);
        assert_eq!(shape(&blocks), [(0, PIECE_BYTES, 256), (PIECE_BYTES as u64, PIECE_BYTES, 256)]);
        let sectors = Plan::of((0..1500).map(|i| write(i * 512, &[1], false)).collect(), 512);
        assert_eq!(shape(&sectors), [(0, 1024 * 512, 1024), (1024 * 512, 476 * 512, 476)]);
    }

    #[test]
    fn what_is_not_aligned_goes_aside_with_its_read_index() {
        let plan = Plan::of(vec![read(0, 4096), read(1024, 1024), Io::Discard { at: 0, len: 512 }], 4096);
        assert_eq!(shape(&plan), [(0, 4096, 1)]);
        assert_eq!(plan.rest.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [1, 2]);
    }
}
