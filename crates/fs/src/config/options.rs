//! Choices made at mount.

use super::choices::{Choices, Route};
use super::journaling_mode::{JournalingMode, ModeRule};
use super::without::Without;
use quire_journal::{BatchTime, Checkpoint, CommitMode, Record};
use quire_layout::superblock::OnError;
use std::time::Duration;

/// When reading counts as access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atime {
    No,
    Relative,
    Strict,
}

/// Choices made at mount. [`Options::default`] is read-write, `data=ordered`, what the superblock says about errors.
#[derive(Clone, Debug)]
pub struct Options {
    pub read_only: bool,
    /// Do not read or replay the journal; read-only.
    pub no_load: bool,
    pub route: Route,
    pub record: Record,
    pub commit_mode: CommitMode,
    pub checkpoint: Checkpoint,
    /// `data=auto`: new data of at most so many bytes is logged with a commit that a caller waits for. `None`: as the
    /// device's pace says.
    pub auto_threshold: Option<u64>,
    /// `data=selective`: smaller updates of a block are journaled, in bytes. `None`: smaller than a block.
    pub write_threshold: Option<u64>,
    /// `data=adaptive`: the mode of files of which nothing else is said.
    pub adaptive_default: JournalingMode,
    /// `data=adaptive`: modes by name; the first rule that fits counts.
    pub journal_rules: Vec<ModeRule>,
    /// Writes of whole blocks of at least so many bytes go to the device without pages, where they may.
    pub direct_bytes: usize,
    /// `None`: what the superblock says.
    pub on_error: Option<OnError>,
    /// File data that could not be written turns the volume read-only, whatever `on_error` says (`data_err=abort`).
    pub data_error_aborts: bool,
    pub atime: Atime,
    /// Commit what is open at least this often.
    pub commit_interval: Duration,
    /// A checkpoint begins when what a transaction changed is in the log for so long; zero: never for that. `None`: 30
    /// seconds.
    pub checkpoint_age: Option<Duration>,
    /// For how long a commit may wait for callers that are about to come.
    pub batch_time: BatchTime,
    /// Memory for block images and file pages, in bytes.
    pub cache_bytes: u64,
    /// New files take the group of their directory (`grpid`).
    pub grpid: bool,
    /// Discard freed blocks.
    pub discard: bool,
    /// `user.*` attributes are on (`nouser_xattr` turns them off).
    pub user_xattr: bool,
    /// POSIX ACLs are on.
    pub acl: bool,
    /// `statfs` counts what the file system itself takes as space, too (`minixdf`).
    pub minix_df: bool,
    /// User and group that may take reserved blocks, besides root (`resuid=`, `resgid=`); `None`: what the superblock
    /// says.
    pub reserve_uid: Option<u32>,
    pub reserve_gid: Option<u32>,
    /// Heuristics that are off.
    pub without: Without,
    /// Where the image is mounted, for the superblock; may be empty.
    pub mounted_on: String,
}

/// The options that can change while a volume is in use ([`Options`] says what each is).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuntimeOptions {
    pub on_error: Option<OnError>,
    pub data_error_aborts: bool,
    pub atime: Atime,
    pub commit_interval: Duration,
    pub grpid: bool,
    pub discard: bool,
}

impl Options {
    /// Those that can change later, as they are at mount.
    #[must_use]
    pub fn runtime(&self) -> RuntimeOptions {
        RuntimeOptions {
            on_error: self.on_error,
            data_error_aborts: self.data_error_aborts,
            atime: self.atime,
            commit_interval: self.commit_interval,
            grpid: self.grpid,
            discard: self.discard,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_only: false,
            no_load: false,
            route: Route::Ordered,
            record: Record::Block,
            commit_mode: CommitMode::Barrier,
            checkpoint: Checkpoint::Lazy,
            auto_threshold: None,
            write_threshold: None,
            adaptive_default: JournalingMode::Journal,
            journal_rules: ModeRule::builtin(),
            direct_bytes: 128 << 10,
            on_error: None,
            data_error_aborts: false,
            atime: Atime::Relative,
            commit_interval: Duration::from_secs(5),
            checkpoint_age: None,
            batch_time: BatchTime::default(),
            cache_bytes: 64 << 20,
            grpid: false,
            discard: false,
            user_xattr: true,
            acl: true,
            minix_df: false,
            reserve_uid: None,
            reserve_gid: None,
            without: Without::default(),
            mounted_on: String::new(),
        }
    }
}

impl Options {
    /// The four choices.
    #[must_use]
    pub fn choices(&self) -> Choices {
        Choices::new(self.route, self.record, self.commit_mode, self.checkpoint)
    }

    /// With these four choices.
    #[must_use]
    pub fn with(self, c: Choices) -> Self {
        Options { route: c.route, record: c.record, commit_mode: c.commit, checkpoint: c.checkpoint, ..self }
    }
}
