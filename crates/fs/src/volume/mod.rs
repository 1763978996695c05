//! The mounted file system: opened, used, frozen, closed.
//!
//! [`Volume`] is a thin API. A call that may change something asks the engine's lifecycle for admission, runs
//! operations of the layers below, and makes durable what asks for it.

mod assemble;
mod attrs;
mod background;
mod clean;
#[cfg(test)]
mod damage_tests;
mod devices;
mod files;
mod foresight;
mod grow;
#[cfg(test)]
mod grow_tests;
mod handle;
#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod inline_tests;
#[cfg(test)]
mod inline_write_tests;
mod inspect;
#[cfg(test)]
mod kernel_refuses_tests;
pub(crate) mod label;
mod lifetime;
mod limits;
mod loads;
mod maintenance;
mod manner;
#[cfg(test)]
mod mount_cycle_tests;
mod names;
mod open;
mod preview;
#[cfg(test)]
mod read_error_tests;
pub mod recovery;
mod shutdown;
mod statfs;
mod superblock;
#[cfg(test)]
mod tests;
mod ticks;
mod trim;
mod updates;
mod xattrs;

pub use crate::engine::Phase;
pub use attrs::InodeFlags;
pub use background::{Background, Step, Stop};
pub use devices::Devices;
pub use files::{
    DeviceRead, ReadBegun, append, begin_read, closed, commit_then, fsync_then, read_to_change, sync_then,
};
pub use foresight::attr_before_write;
pub use handle::{Admitted, Status, Volume, VolumeBatch};
pub use inspect::Inspect;
pub use limits::Limits;
pub use loads::load_then;
pub use maintenance::{Maintenance, VolumeLatencies};
pub use manner::{commit_left, leaving_commits, without_waiting};
pub use names::create_alone;
pub use open::{finish_orphans, first_superblock, peek};
pub use preview::{Outlook, look};
pub use shutdown::Shutdown;
pub use statfs::StatFs;
pub use updates::FileUpdate;
pub use xattrs::Xattrs;
