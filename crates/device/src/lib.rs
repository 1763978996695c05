//! Where bytes live: a [`BlockDevice`] and what it promises.
//!
//! Guarantees: [`BlockDevice::submit`] starts a batch and returns a ticket; [`BlockDevice::wait`] returns when every
//! operation of the batch is *complete*, which is not *durable*. Operations of one batch have no order among
//! themselves. A flush makes durable what had completed before the flush was submitted. [`FlushGate`] turns that into
//! epochs, so that concurrent callers share flushes and nobody flushes twice. [`Nvram`] is memory that keeps its bytes:
//! stores and fences instead of writes and flushes.
//!
//! This crate also holds the determinism facade: no code above it names `std::sync`, `std::thread` or a
//! clock; it uses [`sync`] and [`Clock`].

pub mod buf;
pub mod clock;
pub mod counted;
pub mod crash;
pub mod fault;
pub mod file;
pub mod gate;
pub mod holder;
mod holes;
mod host;
pub mod huge;
pub mod image;
#[cfg(feature = "shuttle")]
pub mod interleave;
pub mod io;
#[cfg(not(feature = "shuttle"))]
mod lock;
pub mod mem;
pub mod model;
pub mod mutant;
pub mod nvram;
pub mod open;
pub mod pace;
pub mod powerloss;
mod segment;
pub mod sync;
mod tickets;
mod uring;
#[cfg(not(feature = "shuttle"))]
pub mod virtual_threads;

pub use buf::Buf;
pub use clock::{Clock, SystemClock, TickClock, VirtualClock};
pub use counted::{Counted, DeviceStats};
pub use crash::{CachedWrite, Crash, CrashPoint};
pub use fault::{Fault, FaultKind, Faulty};
pub use file::FileDevice;
pub use gate::{Epoch, FlushGate};
pub use holder::Holder;
pub use huge::{HUGE, HugeBuf};
pub use image::Image;
pub use io::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, Region, Ticket};
pub use mem::MemDevice;
pub use model::{Model, Modelled};
pub use mutant::Mutant;
pub use nvram::{Nvram, NvramFigures, NvramMap, NvramModel, NvramOptions};
pub use open::{OpenError, OpenOptions};
pub use pace::{Pace, Paced};
pub use powerloss::{Completion, DiscardAs, PowerLossDevice, PowerLossOptions, Recording};
#[cfg(not(feature = "shuttle"))]
pub use virtual_threads::VirtualThreads;
