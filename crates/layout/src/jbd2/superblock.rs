//! The journal's superblock: the first 1024 bytes of its block.
//!
//! ```text
//! 0x00 header (type 3: v1, 4: v2)  0x0C block size  0x10 length, blocks  0x14 first log block
//! 0x18 first transaction in the log  0x1C where it starts, 0: empty  0x20 error number            -- v1 ends here
//! 0x24 compat  0x28 incompat  0x2C ro_compat  0x30 uuid[16]  0x40 users  0x44 dynsuper  0x48 max_transaction
//! 0x4C max_trans_data  0x50 checksum type (4 = crc32c)  0x54 fast-commit blocks  0x58 head, valid when empty
//! 0x5C unused, at 0x60 the signature of a log of Quire's  0xFC checksum  0x100 users' uuids[48]
//! ```
//! The bytes are kept whole: what is not understood is written back as it was read.

use super::checksum::LogSeed;
use super::format::{BlockKind, Checksums, Header, LogFormat};
use crate::bytes::{be32, put_be32};
use crate::checksum::crc32c;
use crate::error::{Corrupt, Structure, Unsupported};
use crate::qlog::signature::{self, Signature};
use crate::units::{BlockSize, LogBlock, Tid};

/// Bytes of a journal superblock.
pub const SIZE: usize = 1024;
const CHECKSUM_AT: usize = 0xFC;
/// `s_checksum_type`.
const CRC32C: u8 = 4;
/// Fast-commit blocks when the feature is set and the field is 0.
const DEFAULT_FC_BLOCKS: u32 = 256;
/// Fewest blocks that the log proper must keep beside a fast-commit area.
const MIN_LOG_BLOCKS: u32 = 1024;

/// `s_feature_compat` bits.
pub mod compat {
    pub const CHECKSUM: u32 = 0x1;
}

/// `s_feature_incompat` bits.
pub mod incompat {
    pub const REVOKE: u32 = 0x1;
    pub const BIT64: u32 = 0x2;
    pub const ASYNC_COMMIT: u32 = 0x4;
    pub const CSUM_V2: u32 = 0x8;
    pub const CSUM_V3: u32 = 0x10;
    pub const FAST_COMMIT: u32 = 0x20;
    /// The log is Quire's own (docs/format.md). Unregistered; every other tool refuses the journal while it is set.
    pub const QUIRE_LOG: u32 = 0x4000_0000;
    /// What this implementation reads.
    pub const KNOWN: u32 = 0x3F | QUIRE_LOG;
}

/// The three feature words; zero in a v1 superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalFeatures {
    pub compat: u32,
    pub incompat: u32,
    pub ro_compat: u32,
}

impl JournalFeatures {
    #[must_use]
    pub fn has_incompat(&self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    /// Names of the set bits, in debugfs' words.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        const INCOMPAT: [&str; 6] = [
            "journal_incompat_revoke",
            "journal_64bit",
            "journal_async_commit",
            "journal_checksum_v2",
            "journal_checksum_v3",
            "fast_commit",
        ];
        let bits = |word: u32| (0u32..32).filter(move |n| word >> n & 1 != 0);
        let mut out: Vec<String> = Vec::new();
        out.extend(bits(self.compat).map(|n| match n {
            0 => "journal_checksum".to_owned(),
            n => format!("FEATURE_C{n}"),
        }));
        out.extend(bits(self.incompat).map(|n| {
            let name = usize::try_from(n).ok().and_then(|n| INCOMPAT.get(n));
            let name = name.copied().or((1u32 << n == incompat::QUIRE_LOG).then_some("quire_log"));
            name.map_or_else(|| format!("FEATURE_I{n}"), str::to_owned)
        }));
        out.extend(bits(self.ro_compat).map(|n| format!("FEATURE_R{n}")));
        out
    }
}

/// A journal superblock whose magic, geometry, features' consistency and checksum have been checked.
#[derive(Clone, PartialEq, Eq)]
pub struct JournalSuperblock {
    raw: Box<[u8; SIZE]>,
    version: u8,
    block_size: BlockSize,
}

impl JournalSuperblock {
    /// Decodes and checks.
    ///
    /// # Errors
    /// Corrupt: magic, type, impossible geometry, checksum features that exclude each other, or a checksum that does
    /// not match. Features that are unknown are the business of [`JournalSuperblock::log_format`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let raw: &[u8; SIZE] = bytes.get(..SIZE).and_then(|b| b.try_into().ok()).ok_or_else(|| bad("truncated"))?;
        let version = match Header::decode(raw).ok_or_else(|| bad("no jbd2 magic"))?.kind {
            BlockKind::SuperblockV1 => 1,
            BlockKind::SuperblockV2 => 2,
            _ => return Err(bad("not a superblock of version 1 or 2")),
        };
        let block_size = be32(raw, 0x0C);
        let block_size = block_size
            .is_power_of_two()
            .then(|| block_size.trailing_zeros().checked_sub(10))
            .flatten()
            .and_then(BlockSize::from_log)
            .ok_or_else(|| bad("block size out of range"))?;
        let sb = JournalSuperblock { raw: Box::new(*raw), version, block_size };
        sb.check()?;
        Ok(sb)
    }

    fn check(&self) -> Result<(), Corrupt> {
        let f = self.features();
        let (v1, v2, v3) =
            (f.compat & compat::CHECKSUM != 0, f.has_incompat(incompat::CSUM_V2), f.has_incompat(incompat::CSUM_V3));
        if u8::from(v1) + u8::from(v2) + u8::from(v3) > 1 {
            return Err(bad("checksum versions that exclude each other"));
        }
        if v2 || v3 {
            if self.raw[0x50] != CRC32C {
                return Err(bad("unknown checksum type"));
            }
            if be32(&*self.raw, CHECKSUM_AT) != self.compute_checksum() {
                return Err(bad("checksum does not match"));
            }
        }
        self.quire()?;
        if self.first().0 == 0 || self.first().0 >= self.len() {
            return Err(bad("first log block out of range"));
        }
        if f.has_incompat(incompat::FAST_COMMIT) {
            let log = self.len().checked_sub(self.fc_blocks());
            if !log.is_some_and(|log| log >= MIN_LOG_BLOCKS && log > self.first().0) {
                return Err(bad("fast-commit area out of range"));
            }
        }
        if let Some(start) = self.start()
            && !(self.first()..self.end()).contains(&start)
        {
            return Err(bad("log starts outside its area"));
        }
        Ok(())
    }

    /// A new, empty journal of version 2: `len` blocks, its log starting at `first`.
    #[must_use]
    pub fn new(block_size: BlockSize, len: u32, first: LogBlock, uuid: [u8; 16]) -> Self {
        let mut sb = JournalSuperblock { raw: Box::new([0; SIZE]), version: 2, block_size };
        Header { kind: BlockKind::SuperblockV2, tid: Tid(0) }.encode(&mut *sb.raw);
        sb.put(0x0C, 1 << block_size.bits());
        sb.put(0x10, len);
        sb.put(0x14, first.0);
        sb.put(0x18, 1);
        sb.put(0x40, 1);
        sb.raw[0x30..0x40].copy_from_slice(&uuid);
        sb
    }

    fn get(&self, at: usize) -> u32 {
        be32(&*self.raw, at)
    }

    fn put(&mut self, at: usize, v: u32) {
        put_be32(&mut *self.raw, at, v);
    }

    fn compute_checksum(&self) -> u32 {
        let sum = crc32c(crc32c(!0, &self.raw[..CHECKSUM_AT]), &[0; 4]);
        crc32c(sum, &self.raw[CHECKSUM_AT + 4..])
    }

    /// Recomputes the checksum after changes, if this journal keeps one.
    pub fn seal(&mut self) {
        if self.features().incompat & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0 {
            let sum = self.compute_checksum();
            self.put(CHECKSUM_AT, sum);
        }
    }

    /// The bytes as they go to disk; the rest of the block stays as it is. Seal first.
    #[must_use]
    pub fn bytes(&self) -> &[u8; SIZE] {
        &self.raw
    }

    /// 1 or 2. In version 1 nothing past `s_errno` has a meaning.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version
    }

    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// `s_maxlen`: blocks of the journal, its superblock and fast-commit area included (on a device of its own:
    /// the blocks before the superblock, too).
    #[must_use]
    pub fn len(&self) -> u32 {
        self.get(0x10)
    }

    /// Never: a journal has a superblock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// `s_first`: the log's first block; where it goes on after [`JournalSuperblock::end`].
    #[must_use]
    pub fn first(&self) -> LogBlock {
        LogBlock(self.get(0x14))
    }

    /// One past the log's last block: the length without the fast-commit area.
    #[must_use]
    pub fn end(&self) -> LogBlock {
        LogBlock(self.len().saturating_sub(self.fc_blocks()))
    }

    /// Blocks at the end that belong to fast commits: 0 without the feature.
    #[must_use]
    pub fn fc_blocks(&self) -> u32 {
        match (self.features().has_incompat(incompat::FAST_COMMIT), self.get(0x54)) {
            (false, _) => 0,
            (true, 0) => DEFAULT_FC_BLOCKS,
            (true, n) => n,
        }
    }

    /// `s_sequence`: the transaction that `start` begins, or the next one to be written if the log is empty.
    #[must_use]
    pub fn sequence(&self) -> Tid {
        Tid(self.get(0x18))
    }

    pub fn set_sequence(&mut self, tid: Tid) {
        self.put(0x18, tid.0);
    }

    /// `s_start`: where the oldest transaction begins; `None` if the log is empty.
    #[must_use]
    pub fn start(&self) -> Option<LogBlock> {
        Some(LogBlock(self.get(0x1C))).filter(|b| b.0 != 0)
    }

    pub fn set_start(&mut self, start: Option<LogBlock>) {
        self.put(0x1C, start.map_or(0, |b| b.0));
    }

    /// `s_head`: where the kernel would go on writing; of use only while the log is empty, and only in range.
    #[must_use]
    pub fn head(&self) -> LogBlock {
        LogBlock(if self.version == 1 { 0 } else { self.get(0x58) })
    }

    pub fn set_head(&mut self, head: LogBlock) {
        if self.version != 1 {
            self.put(0x58, head.0);
        }
    }

    /// `s_errno`: a negative error number if the journal was aborted.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.get(0x20).cast_signed()
    }

    pub fn set_errno(&mut self, errno: i32) {
        self.put(0x20, errno.cast_unsigned());
    }

    #[must_use]
    pub fn features(&self) -> JournalFeatures {
        if self.version == 1 {
            return JournalFeatures::default();
        }
        JournalFeatures { compat: self.get(0x24), incompat: self.get(0x28), ro_compat: self.get(0x2C) }
    }

    /// Sets the feature words, and the checksum type that they ask for. Only on an empty log. A superblock of
    /// version 1 becomes one of version 2, whose fields are zero.
    pub fn set_features(&mut self, f: JournalFeatures) {
        if self.version == 1 {
            self.raw[0x24..].fill(0);
            self.version = 2;
            Header { kind: BlockKind::SuperblockV2, tid: Tid(self.get(8)) }.encode(&mut *self.raw);
        }
        self.put(0x24, f.compat);
        self.put(0x28, f.incompat);
        self.put(0x2C, f.ro_compat);
        let sealed = f.incompat & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0;
        self.raw[0x50] = if sealed { CRC32C } else { 0 };
        if !sealed {
            self.put(CHECKSUM_AT, 0);
        }
    }

    /// The features that our logs are written with: revoke, csum v3, and 64bit if `wide`. Fast commits go. Only on
    /// an empty log.
    pub fn set_our_features(&mut self, wide: bool) {
        let wide = if wide { incompat::BIT64 } else { 0 };
        self.set_features(JournalFeatures {
            compat: 0,
            incompat: incompat::REVOKE | incompat::CSUM_V3 | wide,
            ro_compat: 0,
        });
    }

    /// What says that the log is Quire's own; `None`: it is jbd2's.
    ///
    /// # Errors
    /// Corrupt: the feature without a signature, or together with features that it excludes.
    pub fn quire(&self) -> Result<Option<Signature>, Corrupt> {
        let f = self.features();
        if !f.has_incompat(incompat::QUIRE_LOG) {
            return Ok(None);
        }
        if !f.has_incompat(incompat::CSUM_V3) || f.has_incompat(incompat::FAST_COMMIT | incompat::ASYNC_COMMIT) {
            return Err(bad("Quire's feature with others that it excludes"));
        }
        let bytes = self.raw[signature::AT..signature::AT + signature::LEN].try_into().expect("a fixed length");
        Signature::decode(bytes).map(Some)
    }

    /// Makes the log one of Quire's, or jbd2's again. Only on an empty log with our features.
    pub fn set_quire(&mut self, signature: Option<&Signature>) {
        let incompat = self.features().incompat & !incompat::QUIRE_LOG;
        self.put(0x28, incompat | if signature.is_some() { incompat::QUIRE_LOG } else { 0 });
        let place = &mut self.raw[signature::AT..signature::AT + signature::LEN];
        place.copy_from_slice(&signature.map_or([0; signature::LEN], Signature::encode));
    }

    /// The journal's own UUID; zero in version 1.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        if self.version == 1 { [0; 16] } else { self.raw[0x30..0x40].try_into().expect("16 bytes") }
    }

    /// File systems that share the journal, as counted in `s_nr_users`.
    #[must_use]
    pub fn user_count(&self) -> u32 {
        if self.version == 1 { 1 } else { self.get(0x40) }
    }

    /// UUIDs of the users that the superblock names: at most 48.
    pub fn users(&self) -> impl Iterator<Item = [u8; 16]> + '_ {
        let n = usize::try_from(self.user_count()).unwrap_or(48).min(48);
        let known = if self.version == 1 { 0 } else { n };
        self.raw[0x100..].chunks_exact(16).take(known).map(|u| u.try_into().expect("16 bytes"))
    }

    /// How the log's blocks are laid out.
    ///
    /// # Errors
    /// Unsupported: a feature that is not known, by name. Unknown compat bits are ignored.
    pub fn log_format(&self) -> Result<LogFormat, Unsupported> {
        let f = self.features();
        let unknown =
            JournalFeatures { compat: 0, incompat: f.incompat & !incompat::KNOWN, ro_compat: f.ro_compat }.names();
        if !unknown.is_empty() {
            return Err(Unsupported::new(format!("journal feature {}", unknown.join(", "))));
        }
        if let Ok(Some(signature)) = self.quire() {
            signature.check(self.block_size)?;
        }
        let checksums = if f.has_incompat(incompat::CSUM_V3) {
            Checksums::V3
        } else if f.has_incompat(incompat::CSUM_V2) {
            Checksums::V2
        } else if f.compat & compat::CHECKSUM != 0 {
            Checksums::V1
        } else {
            Checksums::None
        };
        Ok(LogFormat {
            block_size: self.block_size,
            checksums,
            wide: f.has_incompat(incompat::BIT64),
            async_commit: f.has_incompat(incompat::ASYNC_COMMIT),
            seed: LogSeed::new(&self.uuid()),
            uuid: self.uuid(),
        })
    }
}

impl std::fmt::Debug for JournalSuperblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalSuperblock")
            .field("version", &self.version)
            .field("len", &self.len())
            .field("first", &self.first())
            .field("sequence", &self.sequence())
            .field("start", &self.start())
            .field("errno", &self.errno())
            .field("features", &self.features().names())
            .finish_non_exhaustive()
    }
}

fn bad(why: &'static str) -> Corrupt {
    Corrupt::new(Structure::JournalSuperblock, why)
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
