//! The operations, by concern.

mod attr;
mod data;
mod dir;
mod ioctl;
mod names;
mod xattr;
