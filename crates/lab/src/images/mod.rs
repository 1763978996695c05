//! Images that are damaged, odd or foreign: made from a seed or by a list, and judged beside e2fsck and the kernel.

mod base;
mod judge;
mod make;
mod record;
mod rows;
mod seen;

pub use judge::{Tally, judge};
pub use make::{KINDS, Specimen, specimen};
pub use record::{Record, kinds};
