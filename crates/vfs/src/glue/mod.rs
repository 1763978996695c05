//! SQLite's calls, answered by a [`Storage`](crate::Storage): from C to Rust, and from errors to codes.

mod control;
mod file;
mod handle;
mod register;
mod shm;
mod vfs;

pub use register::Registration;
pub(crate) use register::register;
