//! Deliberately broken engines, for tests of the tests: a mutant switches off one thing that upholds an invariant, and
//! the simulator must find it. Without the feature `mutants` every check is the constant `false`.

/// One broken engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mutant {
    /// The commit block is written without the flush before it (J10).
    NoFlushBeforeCommit = 1,
    /// The tail moves before the home writes are flushed (J11).
    TailBeforeHomeFlush,
    /// What an fsync should write home counts as home, and is not written (J11, `checkpoint=fsync`).
    FsyncHomeForgotten,
    /// Freed blocks with records in the log are not revoked (J1, F9).
    RevokeForgotten,
    /// Freed blocks are reused before the freeing transaction is durable (J9, A2).
    FreedReusedEarly,
    /// Size and extents join a transaction before the data is written (F8).
    SizeBeforeData,
    /// Recovery believes blocks whose checksum does not match.
    ChecksumIgnored,
    /// An image that begins with the log's magic is not escaped.
    EscapeForgotten,
    /// `needs_recovery` is cleared before the log is empty (O2).
    RecoverClearedEarly,
    /// fsync returns before the commit (F15).
    FsyncEarly,
    /// An unlinked inode that is still open is not on the orphan list.
    OrphanForgotten,
    /// A checkpoint writes the newest image home, committed or not (J2).
    UncommittedHome,
    /// A block with a record in the log is written in place (F9).
    JournaledInPlace,
    /// A completed write counts as durable (M, F15).
    CompletionIsDurable,
    /// A superblock torn between its sectors is refused.
    TornSuperblockRefused,
    /// A commit begins while another is on its way (J6).
    CommitsOverlap,
    /// A load that something overtook brings what it has read (J3).
    StaleLoadKept,
    /// A freed block is reused while a checkpoint may still write it (J9).
    ReusedUnderCheckpoint,
    /// The next commit after one that failed is tried as if nothing had been (J5).
    FailureForgotten,
    /// A file that is no longer journaled is written in place though its blocks are live in the log (F9, `adaptive`).
    ModeChangedInPlace,
    /// A sequence of journaled updates ends with its commit, not with its last record (F17, `selective`).
    SequenceEndsEarly,
    /// A range record from zeros says that it is one over the block's last image (Q4).
    ZeroBaseForgotten,
    /// A chain of deltas goes on although the image that it starts with is being passed (Q6).
    StaleBase,
    /// What was written to a home, and may be lost, is the base of a record (Q3).
    UnflushedBase,
    /// Recovery does not look at the checksum of the resulting image (Q7).
    ResultSumIgnored,
    /// Recovery believes a transaction whose run does not match its checksum (Q2).
    RunSumIgnored,
    /// A transaction longer than the bound is written before the superblock allows for it (Q10).
    BoundForgotten,
    /// The background goes on after the journal was aborted, and the tail moves (Q11).
    TailAfterAbort,
    /// The file system's superblock forgets Quire's log before the journal's does (Q8).
    QuireBitClearedEarly,
    /// Mappings that were moved are used before they are durable (F20).
    RemapNotDurable,
    /// No fence between a transaction in NVRAM and its commit word (V2).
    NvramFenceDropped,
    /// No fence after the commit word (V2).
    NvramCommitUnfenced,
    /// The commit word is stored before what it makes valid (V2).
    NvramWordFirst,
    /// Blocks are not logged whole first in a new region (V6).
    NvramStateKept,
    /// A delta is made over an image that was logged before the last one.
    NvramStaleBase,
    /// A region is free before its blocks are at home (V4).
    NvramFreedEarly,
    /// A label is written over the newest one (V3).
    NvramLabelInPlace,
    /// The log is emptied without keeping commits from being written meanwhile (L3).
    LogEmptiedBesideCommits,
    /// A volume is closed, or frozen, while calls are under way (L1).
    CloseWithoutDrain,
    /// A thaw does not mark the image as in use again (L1).
    ThawUnmarked,
    /// A reader that meets an error while the image is marked clean records it at once (L1).
    ErrorBehindMark,
    /// A frozen volume admits calls that change it (L1).
    FrozenAdmits,
    /// A call without a thread looks which phase is under way, and waits for its end later (L2).
    PhaseEndMissed,
    /// A caller that committed for itself leaves suspended callers without a leader (J12).
    SuspendedForgotten,
    /// An atomic update joins a transaction for each of its ranges (F22).
    UpdateTorn,
    /// What is written in an atomic update is the file's at once (F22).
    UpdateVisible,
    /// A file leaves its inode in one transaction, and its content goes into a block in the next (F25).
    InlineDataLater,
    /// A worker looks whether a request was replied to, and suspends it later (M10).
    ReplyMissedBySuspension,
    /// The last reader of a file does not look for callers that wait for it (F2).
    ReaderLeavesUnheard,
    /// A clean page stays when an operation zeroes a part of its block (F7).
    CleanPageKept,
    /// A size joins no transaction while any page before its end is dirty, however far its blocks reach (F8).
    SizeHeldBack,
    /// An fsync goes on with what was written behind its end while it wrote back (F27).
    WriteBackWithoutEnd,
    /// Pages that could not be written are recorded with the others of their batch (F28).
    LostPagesRecorded,
    /// A file gets a pending size while a direct write behind it is under way (F19).
    GrowthBesideDirect,
    /// A second reply to a request counts, too (M10).
    SecondReplyTaken,
    /// Two threads free an inode: one may drop the pages of the file that has its number next (N3).
    EvictedByTwo,
}

impl Mutant {
    /// Those that only threads bring to light: tests/interleavings.rs of the journal finds them.
    pub const OF_THREADS: [Mutant; 6] = [
        Mutant::CommitsOverlap,
        Mutant::StaleLoadKept,
        Mutant::ReusedUnderCheckpoint,
        Mutant::FailureForgotten,
        Mutant::LogEmptiedBesideCommits,
        Mutant::SuspendedForgotten,
    ];

    /// Those of a volume's life: tests/interleavings.rs of the file system finds them.
    pub const OF_LIFECYCLE: [Mutant; 3] = [Mutant::CloseWithoutDrain, Mutant::ThawUnmarked, Mutant::PhaseEndMissed];

    /// Those of the readers of a file: tests/interleavings.rs of the file system finds them.
    pub const OF_READERS: [Mutant; 1] = [Mutant::ReaderLeavesUnheard];

    /// Those of writes without pages: tests/interleavings.rs of the file system finds them.
    pub const OF_DIRECT_WRITES: [Mutant; 1] = [Mutant::GrowthBesideDirect];

    /// Those of pages: unit tests of the file system find them.
    pub const OF_PAGES: [Mutant; 4] =
        [Mutant::CleanPageKept, Mutant::SizeHeldBack, Mutant::WriteBackWithoutEnd, Mutant::LostPagesRecorded];

    /// Those of evictions: unit tests of the file system find them.
    pub const OF_EVICTION: [Mutant; 1] = [Mutant::EvictedByTwo];

    /// Those of errors of the disk: unit tests of the file system find them.
    pub const OF_ERRORS: [Mutant; 1] = [Mutant::ErrorBehindMark];

    /// Those of replies: unit tests of the mount's transport find them.
    pub const OF_REPLIES: [Mutant; 2] = [Mutant::ReplyMissedBySuspension, Mutant::SecondReplyTaken];

    /// Those of freeze and thaw, which the simulator finds.
    pub const OF_FREEZE: [Mutant; 2] = [Mutant::ThawUnmarked, Mutant::FrozenAdmits];

    /// Those of atomic updates, which the simulator finds with a mix of its own.
    pub const OF_UPDATES: [Mutant; 2] = [Mutant::UpdateTorn, Mutant::UpdateVisible];

    /// Those of Quire's log, which the simulator finds with it.
    pub const OF_QUIRE_LOG: [Mutant; 6] = [
        Mutant::ZeroBaseForgotten,
        Mutant::StaleBase,
        Mutant::ResultSumIgnored,
        Mutant::RunSumIgnored,
        Mutant::BoundForgotten,
        Mutant::QuireBitClearedEarly,
    ];

    /// Those that show with one route and one record only, which the simulator finds with these.
    pub const OF_A_CHOICE: [Mutant; 1] = [Mutant::UnflushedBase];

    /// Those that show when the device fails.
    pub const OF_FAULTS: [Mutant; 1] = [Mutant::TailAfterAbort];

    /// Those that show with `checkpoint=fsync`.
    pub const OF_HOME_WRITES_BY_FSYNC: [Mutant; 2] = [Mutant::FsyncHomeForgotten, Mutant::UncommittedHome];

    /// Those that show with files inside their inodes.
    pub const OF_INLINE_DATA: [Mutant; 1] = [Mutant::InlineDataLater];

    /// Those of a log in NVRAM.
    pub const OF_NVRAM: [Mutant; 8] = [
        Mutant::NvramFenceDropped,
        Mutant::NvramCommitUnfenced,
        Mutant::NvramWordFirst,
        Mutant::NvramStateKept,
        Mutant::NvramStaleBase,
        Mutant::NvramFreedEarly,
        Mutant::NvramLabelInPlace,
        Mutant::TailBeforeHomeFlush,
    ];

    /// Those that the simulator finds.
    pub const ALL: [Mutant; 17] = [
        Mutant::NoFlushBeforeCommit,
        Mutant::TailBeforeHomeFlush,
        Mutant::RevokeForgotten,
        Mutant::FreedReusedEarly,
        Mutant::SizeBeforeData,
        Mutant::ChecksumIgnored,
        Mutant::EscapeForgotten,
        Mutant::RecoverClearedEarly,
        Mutant::FsyncEarly,
        Mutant::OrphanForgotten,
        Mutant::UncommittedHome,
        Mutant::JournaledInPlace,
        Mutant::CompletionIsDurable,
        Mutant::TornSuperblockRefused,
        Mutant::ModeChangedInPlace,
        Mutant::SequenceEndsEarly,
        Mutant::RemapNotDurable,
    ];

    /// True if this engine is broken so.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    #[must_use]
    pub const fn is_on(self) -> bool {
        false
    }

    /// True if this engine is broken so.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn is_on(self) -> bool {
        CURRENT.with(|c| c.get() == Some(self))
    }

    /// Breaks the engines of this thread so, or mends them.
    #[cfg(feature = "mutants")]
    pub fn set(mutant: Option<Mutant>) {
        CURRENT.with(|c| c.set(mutant));
    }
}

#[cfg(feature = "mutants")]
std::thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}
