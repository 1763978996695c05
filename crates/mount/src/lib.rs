//! FUSE requests to `Volume` calls, and mounting.
//!
//! ```text
//! kernel <──> transport ─ session (workers) ─ requests ─ ops ─ server ──> quire_fs::Volume
//!                 └ wire: what the bytes mean
//! ```
//! [`serve`] is a mount from beginning to end; [`control`] talks to one from another process.

mod again;
mod bypassed;
mod caller;
mod changing;
pub mod control;
pub mod daemon;
mod dirty_memory;
mod error;
pub mod expose;
mod fail;
mod fallbacks;
mod found;
mod given;
mod handshake;
mod host;
mod kernel_pages;
pub mod latency;
mod live;
mod lock_file;
mod meter;
mod mountinfo;
pub mod mounting;
mod openers;
mod ops;
pub mod options;
mod policy;
mod refused;
mod remount;
mod replies;
mod reply_buffers;
mod requests;
pub mod sandbox;
pub mod serve;
mod server;
mod session;
mod session_queue;
mod space;
pub mod stats;
mod stats_source;
mod transport;
mod transport_choice;
mod updates;
mod watch;
mod wire;
mod without;
mod worker;
mod workers;

pub use control::{About, Control, ControlError, FileIdentity};
pub use error::MountError;
pub use options::{MountOptions, OptionError, WritePath};
pub use sandbox::{SandboxChoice, SandboxError, SandboxStats};
pub use serve::{Mount, SIMULATED_NVRAM, run, run_on};

pub use latency::Latency;
pub use stats::Stats;
pub use transport_choice::{TransportChoice, TransportError, TransportStats};
pub use without::Without;
