//! Where new blocks go.

/// Groups that a search examines for a run as long as wanted, once it knows a shorter one. Each may cost the reading
/// of a bitmap; the kernel's allocator stops at a similar number (`s_mb_max_to_scan`, linear scans).
pub(crate) const GROUPS_TO_EXAMINE: u32 = 8;

/// Blocks that a free run at the goal itself must have to be taken although a longer one may lie elsewhere. 64 KiB of
/// 4 KiB blocks keep a file that grows in small steps in one piece.
pub(crate) const MIN_RUN_AT_GOAL: u32 = 16;

/// Blocks from which on a file counts as large and goes with other long runs, as `mb_stream_req` (16 blocks) of the
/// kernel's stream allocation.
pub(crate) const MIN_LONG_FILE_BLOCKS: u32 = 16;
