//! Metadata transactions over block images: one operation, and what it may look at.

pub(crate) mod block_kinds;
mod context;
mod op;
mod write_gate;

pub(crate) use context::Context;
pub(crate) use op::Op;
pub(crate) use op::{Bitmap, Terms, Unsealed};
pub(crate) use write_gate::WriteGate;
