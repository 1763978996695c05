//! The operations, by concern: one function a request.

pub(crate) mod attr;
pub(crate) mod data;
pub(crate) mod dir;
pub(crate) mod ioctl;
pub(crate) mod names;
pub(crate) mod xattr;
