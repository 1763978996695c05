//! The way of requests and replies between the kernel and the workers.

mod buffer;
mod device;

pub(crate) use buffer::RequestBuffer;
pub(crate) use device::{Channel, Found};
