//! A log without a file system around it: what it promises while things go wrong, and its recovery beside other
//! programs.

mod durability;
mod recovery;
mod writes_jbd2;
