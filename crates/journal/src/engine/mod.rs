//! The engine: from a closed transaction to a durable one, and from the log to the blocks' homes.
//!
//! ```text
//! leader   which caller commits, and who waits for it
//! gathering  whether a commit waits for callers that are about to come
//! commit   a transaction becomes durable: on a device (`commit`), in NVRAM (`nvram_commit`)
//! space    log space is freed: on a device (`space`), in NVRAM (`nvram_space`)
//! homes    images from and to their homes
//! shared   what all of them share
//! ```

mod commit;
mod empty;
mod gathering;
mod homes;
mod leader;
mod nvram_commit;
mod nvram_space;
mod shared;
mod space;
mod waiting;

pub use empty::EmptyLog;
pub use gathering::BatchTime;
pub(crate) use homes::runs_of;
pub use shared::JournalConfig;
pub(crate) use shared::Shared;
pub use waiting::{Completion, Lead, Need, SyncError};
