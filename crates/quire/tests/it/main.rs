//! The library on images that mke2fs makes and e2fsck judges.

mod batch;
mod common;
mod library;
