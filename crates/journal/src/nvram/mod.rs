//! A log in NVRAM as a place for transactions: its label, what it holds, and stores into it. It knows no journal.

mod label;
mod log;
mod place;
mod read;

pub use label::{describe, forget};
pub(crate) use label::{move_tail, read_label};
pub(crate) use log::Stored;
pub use log::{NvramLayout, NvramLog, NvramLogStats};
pub(crate) use place::{Fit, Target};
pub(crate) use read::Walk;
