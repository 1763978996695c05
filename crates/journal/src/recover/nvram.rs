//! The first two passes over a log in NVRAM, and what its transactions hold.
//!
//! As for the block log (`recover::runs`); transactions come from [`Walk`]. Before that: the label and the journal's
//! superblock must name each other, and neither may be an older copy (V5, V7).

use super::progress::{Phase, Progress};
use super::runs::{FoundRuns, Logged, RunAt, revoke};
use super::unrecovered::{LogMemory, UnrecoveredLog};
use crate::error::{Error, NvramProblem};
use crate::nvram::{Walk, forget, read_label};
use quire_device::Nvram;
use quire_layout::nvlog::{Head, LINE, Label};
use quire_layout::qlog::ranges::{ENTRY, decode_table};
use quire_layout::qlog::{Kind, RECORD, Record, Signature};
use quire_layout::{BlockSize, Corrupt, LogBlock, Structure, Tid};

impl LogMemory {
    /// Gives up what the memory holds of a damaged log whose image needs nothing of it any more, durably: transaction
    /// `next` is that image's next one. Without this the transaction where the log breaks off, and those behind it,
    /// would be taken for needed (V11).
    pub(super) fn give_up(&self, next: Tid) -> Result<(), Error> {
        match read_label(&*self.memory) {
            Ok((label, _)) if label.fs_uuid == self.fs_uuid && next.at_or_after(label.tid) => forget(&*self.memory),
            _ => Ok(()),
        }
    }
}

impl UnrecoveredLog {
    /// The memory that a signature names, and its label (V5).
    pub(super) fn named(&self, signature: &Signature, uuid: [u8; 16]) -> Result<(&LogMemory, Label), Error> {
        let memory = self.nvram.as_ref().ok_or(NvramProblem::NotGiven { uuid })?;
        let (label, _) = read_label(&*memory.memory)?;
        let first = self.superblock.sequence();
        if label.uuid != uuid {
            return Err(NvramProblem::Another { found: label.uuid, wanted: uuid }.into());
        }
        if label.fs_uuid != memory.fs_uuid {
            return Err(NvramProblem::OtherFileSystem { found: label.fs_uuid }.into());
        }
        if label.epoch != signature.epoch || label.block_size != self.format.block_size {
            return Err(NvramProblem::OtherUse.into());
        }
        if !first.at_or_after(label.tid) {
            return Err(NvramProblem::OlderImage { image: first, log: label.tid }.into());
        }
        Ok((memory, label))
    }

    /// Which transactions are whole, and of each home block the records that its image needs.
    pub(super) fn scan_nvram(
        &self,
        signature: &Signature,
        uuid: [u8; 16],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<FoundRuns, Error> {
        let (memory, label) = self.named(signature, uuid)?;
        let mut walk = Walk::new(&*memory.memory, label);
        let mut found = FoundRuns::new(label.tid, LogBlock(0));
        while let Some(whole) = walk.next() {
            take_in(&label, &whole.head, &whole.packed, &mut found)?;
            found.end = walk.tid;
            found.transactions += 1;
            let done = walk.at - label.tail;
            progress(Progress { phase: Phase::Scan, done, total: label.capacity() });
        }
        found.last_used = walk.latest;
        found.failed = walk.damaged.then_some(found.end);
        let first = self.superblock.sequence();
        if !found.end.at_or_after(first) && !walk.damaged {
            return Err(NvramProblem::OlderMemory { image: first, log: found.end }.into());
        }
        found.nvram_end = Some(walk.at);
        progress(Progress { phase: Phase::Scan, done: label.capacity(), total: label.capacity() });
        Ok(found)
    }

    /// The bytes of a record's body, or a whole image.
    pub(super) fn nvram_body(&self, l: &Logged) -> Option<Vec<u8>> {
        let memory = self.nvram.as_ref()?;
        let mut body = vec![0; usize::try_from(l.len).expect("32 bits")];
        memory.memory.read(u64::from(l.run.start.0) * u64::from(LINE) + u64::from(l.at), &mut body);
        Some(body)
    }
}

/// Reads the records of a transaction that is whole.
fn take_in(label: &Label, head: &Head, packed: &[u8], found: &mut FoundRuns) -> Result<(), Error> {
    let start = LogBlock(u32::try_from(label.place(head.position) / u64::from(LINE)).unwrap_or(u32::MAX));
    let bad = |why| Error::from(Corrupt::new(Structure::JournalBlock, why).of(head.tid.0));
    let run = RunAt { start, tid: head.tid, images: 0 };
    let block = u32::try_from(label.block_size.bytes()).expect("at most 64 KiB");
    let images_at = u32::try_from(head.images_at(label.granule)).expect("within the transaction");
    let body_at = |at: usize| u32::try_from(quire_layout::nvlog::head::LEN + at).expect("within the transaction");
    let (mut at, mut images) = (0, 0);
    let mut revokes = Vec::new();
    for _ in 0..head.records {
        let record = record_at(label.block_size, packed, at).ok_or_else(|| bad("a record that makes no sense"))?;
        at += RECORD;
        let logged = match record.kind {
            Kind::Revoke => {
                revokes.push(record);
                continue;
            }
            Kind::Image if images == head.images => return Err(bad("more records of images than images")),
            Kind::Image => {
                images += 1;
                Logged { run, record, at: images_at + (images - 1) * block, len: block }
            }
            _ => {
                let len = body_len(label.block_size, &record, &packed[at..]);
                let len = len.ok_or_else(|| bad("a record's body makes no sense"))?;
                let logged = Logged { run, record, at: body_at(at), len: u32::try_from(len).expect("within it") };
                at += len;
                logged
            }
        };
        found.logged += 1;
        let chain = found.chains.entry(record.home).or_default();
        if record.kind.is_self_contained() {
            chain.clear();
        }
        chain.push(logged);
    }
    if images != head.images || at != packed.len() {
        return Err(bad("a transaction's records do not fill it"));
    }
    revokes.iter().for_each(|r| revoke(found, r));
    Ok(())
}

fn record_at(bs: BlockSize, packed: &[u8], at: usize) -> Option<Record> {
    Record::decode(bs, packed.get(at..at + RECORD)?.try_into().ok()?)
}

/// The length of a record's body at the start of `rest`. `None`: it makes no sense.
fn body_len(bs: BlockSize, record: &Record, rest: &[u8]) -> Option<usize> {
    let len = match record.kind {
        Kind::Ranges | Kind::ZeroRanges => {
            let ranges = decode_table(bs, rest, record.count)?;
            usize::from(record.count) * ENTRY + ranges.iter().map(std::iter::ExactSizeIterator::len).sum::<usize>()
        }
        _ => usize::from(record.count),
    };
    (len <= rest.len()).then_some(len)
}

/// A transaction of a log in NVRAM, for people.
pub struct NvramTransaction {
    pub tid: Tid,
    pub position: u64,
    pub bytes: u32,
    pub seconds: u64,
    pub records: Vec<Record>,
}

/// The transactions that a memory holds; at most so many. The last item tells whether the log breaks off.
///
/// # Errors
/// The memory has no label.
pub fn list_nvram(memory: &dyn Nvram, most: usize) -> Result<(Label, Vec<NvramTransaction>, bool), Error> {
    let (label, _) = read_label(memory)?;
    let mut walk = Walk::new(memory, label);
    let mut out = Vec::new();
    while let Some(whole) = walk.next() {
        if out.len() == most {
            break;
        }
        let mut at = 0;
        let mut records = Vec::new();
        for _ in 0..whole.head.records {
            let Some(record) = record_at(label.block_size, &whole.packed, at) else { break };
            at += RECORD;
            if !matches!(record.kind, Kind::Revoke | Kind::Image) {
                let Some(len) = body_len(label.block_size, &record, &whole.packed[at..]) else { break };
                at += len;
            }
            records.push(record);
        }
        let Head { tid, position, bytes, seconds, .. } = whole.head;
        out.push(NvramTransaction { tid, position, bytes, seconds, records });
    }
    Ok((label, out, walk.damaged))
}
