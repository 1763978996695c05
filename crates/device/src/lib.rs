//! Where bytes live: a [`BlockDevice`] and what it promises.
//!
//! Guarantees: [`BlockDevice::submit`] starts a batch and returns a ticket; [`BlockDevice::wait`] returns when every
//! operation of the batch is *complete*, which is not *durable*. Operations of one batch have no order among
//! themselves. A flush makes durable what had completed before the flush was submitted. [`FlushGate`] turns that into
//! epochs, so that concurrent callers share flushes and nobody flushes twice. [`Nvram`] is memory that keeps its bytes:
//! stores and fences instead of writes and flushes. Devices for tests, the simulator and the lab are in quire-testkit.
//!
//! This crate also holds the determinism facade: no code above it names `std::sync`, `std::thread` or a
//! clock; it uses [`sync`] and [`Clock`].

pub mod buf;
mod busy;
pub mod clock;
pub mod condvar;
pub mod counted;
pub mod file;
pub mod gate;
pub mod histogram;
pub mod holder;
mod holes;
mod host;
pub mod huge;
pub mod io;
mod lease;
pub mod mem;
pub mod mutant;
pub mod nvram;
pub mod open;
pub mod pace;
mod policy;
mod read_all;
mod read_buf;
mod read_ring;
#[cfg(feature = "scheduled")]
pub mod scheduled;
mod segment;
pub mod sync;
pub mod tickets;
mod uring;
pub mod waits;

pub use buf::Buf;
pub use clock::{Clock, SystemClock, TickClock};
pub use counted::{Counted, DeviceLatencies, DeviceStats};
pub use file::FileDevice;
pub use gate::{Epoch, FlushGate};
pub use histogram::{Histogram, Latencies};
pub use holder::{Holder, kernel_writer};
pub use huge::{HUGE, HugeBuf};
pub use io::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, ReadDone, Region, Ticket};
pub use lease::Lease;
pub use mem::MemDevice;
pub use mutant::Mutant;
pub use nvram::{Nvram, NvramMap, NvramOptions, NvramStats};
pub use open::{OpenError, OpenOptions};
pub use pace::{Pace, Paced};
pub use read_all::read_all_then;
pub use read_buf::ReadBuf;
pub use waits::{WaitFor, Waited};
