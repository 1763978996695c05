//! A log as it is found: its superblock, where its blocks lie, and the memory that may hold its transactions.

use crate::error::Error;
use crate::geometry::LogGeometry;
use crate::log::check_len;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Nvram, Region};
use quire_layout::jbd2::{JournalSuperblock, LogFormat};
use quire_layout::{Corrupt, Structure, Unsupported};

/// The memory that holds the log, and the file system whose it should be.
#[derive(Clone)]
pub(super) struct LogMemory {
    pub memory: Arc<dyn Nvram>,
    pub fs_uuid: [u8; 16],
}

/// A log that may hold transactions which are not home.
pub struct UnrecoveredLog {
    pub(super) geometry: LogGeometry,
    pub(super) superblock: JournalSuperblock,
    /// The whole block that the superblock begins.
    pub(super) block: Buf,
    pub(super) format: LogFormat,
    /// The file system's device, if it is not the log's.
    pub(super) home: Option<Arc<dyn BlockDevice>>,
    /// The memory that may hold the log.
    pub(super) nvram: Option<LogMemory>,
}

impl std::fmt::Debug for UnrecoveredLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnrecoveredLog").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

impl UnrecoveredLog {
    /// Reads and checks the journal's superblock.
    ///
    /// # Errors
    /// Device; corrupt: the superblock, or a journal longer than its inode; unsupported: a feature, or a journal that
    /// several file systems share.
    pub fn open(geometry: LogGeometry) -> Result<Self, Error> {
        let at = geometry.superblock();
        let home = geometry.locate(at).ok_or_else(|| Corrupt::new(Structure::JournalInode, "no first block"))?;
        let bs = geometry.block_size();
        let block = geometry.device().read(bs.offset(home), bs.bytes(), Region::LogSuperblock)?;
        let bad = |why| Error::Corrupt(Corrupt::new(Structure::JournalSuperblock, why).at(home));
        let superblock = JournalSuperblock::decode(&block).map_err(|e| e.at(home))?;
        let format = superblock.log_format()?;
        if superblock.block_size() != bs {
            return Err(bad("block size is not the file system's"));
        }
        if superblock.len() > geometry.len() {
            return Err(bad("the journal is longer than its place"));
        }
        if superblock.first() <= at {
            return Err(bad("first log block out of range"));
        }
        if geometry.is_external() && superblock.user_count() > 1 {
            return Err(Unsupported::new(format!("external journal with {} users", superblock.user_count())).into());
        }
        Ok(UnrecoveredLog { geometry, superblock, block, format, home: None, nvram: None })
    }

    /// Says where the file system is, if the log has a device of its own: records of Quire's log may need what lies at
    /// home.
    #[must_use]
    pub fn with_home(mut self, home: Arc<dyn BlockDevice>) -> Self {
        self.home = Some(home);
        self
    }

    /// # Errors
    /// The engine cannot write to this log when it is recovered: it is too small.
    pub fn check_len(&self) -> Result<(), Error> {
        check_len(&self.superblock)
    }

    /// True if the log is one of Quire's.
    #[must_use]
    pub fn is_quire(&self) -> bool {
        self.superblock.quire().is_ok_and(|s| s.is_some())
    }

    #[must_use]
    pub fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    #[must_use]
    pub fn format(&self) -> &LogFormat {
        &self.format
    }

    #[must_use]
    pub fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    /// True if the log says that it holds nothing.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.superblock.start().is_none()
    }

    /// Says which memory holds the log, if it is in NVRAM, and the UUID of the file system.
    #[must_use]
    pub fn with_nvram(mut self, memory: Option<Arc<dyn Nvram>>, fs_uuid: [u8; 16]) -> Self {
        self.nvram = memory.map(|memory| LogMemory { memory, fs_uuid });
        self
    }

    /// The UUID of the NVRAM that holds the log, if it is there.
    #[must_use]
    pub fn needs_nvram(&self) -> Option<[u8; 16]> {
        self.superblock.quire().ok().flatten().and_then(|s| s.in_nvram())
    }
}
