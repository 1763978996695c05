//! The library on images that mke2fs makes and e2fsck judges.

mod archive_case;
mod batch;
mod common;
mod directory_loops;
mod exact_trees;
mod forks;
mod gate;
mod hostile_archives;
mod left_out_attributes;
mod library;
mod listings;
mod oci_references;
mod owners;
mod replaced;
mod tar_acls;
mod tar_exports;
mod tar_imports;
