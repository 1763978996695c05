//! FUSE requests to `Volume` calls, and mounting.
//!
//! ```text
//! kernel <── /dev/fuse ──> channel ─ session (workers) ─ server ─ ops ──> quire_fs::Volume
//!                             └ wire: what the bytes mean
//! ```
//! [`serve`] is a mount from beginning to end; [`control`] talks to one from another process.

mod apart;
mod bdi;
mod caller;
mod channel;
pub mod control;
pub mod daemon;
pub mod expose;
mod fail;
mod found;
mod halt_poll;
mod kernel_pages;
mod live;
mod mountinfo;
pub mod mounting;
mod ops;
pub mod options;
mod refused;
mod room;
pub mod serve;
mod server;
mod session;
pub mod stats;
mod turns;
mod wire;

pub use control::{About, Control, ControlError};
pub use options::{MountOptions, OptionError};
pub use serve::{Mount, MountError, SIMULATED_NVRAM, run, run_on};
pub use stats::Stats;
