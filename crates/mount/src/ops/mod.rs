//! The operations, by concern.

mod attr;
mod data;
mod dir;
mod ioctl;
mod names;
mod xattr;

pub(crate) use ioctl::{ioctl_changes, sets_flags};
