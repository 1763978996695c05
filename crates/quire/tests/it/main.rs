//! The library on images that mke2fs makes and e2fsck judges.

mod archive_case;
mod batch;
mod common;
mod directory_loops;
mod exact_trees;
mod gate;
mod hostile_archives;
mod library;
mod oci_references;
mod owners;
mod tar_acls;
mod tar_exports;
mod tar_imports;
