//! Images that are damaged, odd or foreign: made from a seed, and judged beside e2fsck and the kernel.

mod judge;
mod make;

pub use judge::{Tally, judge};
pub use make::{KINDS, Specimen, specimen};
