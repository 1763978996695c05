//! The FUSE protocol: what the bytes between the kernel and us mean. No I/O.
//!
//! Source: the kernel's `include/uapi/linux/fuse.h`, protocol 7.31 to 7.45. All numbers are in host byte order.

pub(crate) mod abi;
pub(crate) mod reply;
pub(crate) mod request;

pub(crate) use reply::{Out, ShownOwner};
pub(crate) use request::{Body, Header};
