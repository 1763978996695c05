//! Whole trees into an image and out of it: directories of the host, tar archives, OCI image layouts.
//!
//! ```
//! use quire::CreateOptions;
//! use quire::archive::{ImportOptions, Source};
//! # let host = tempfile::tempdir().unwrap();
//! # std::fs::write(host.path().join("hello"), "world").unwrap();
//! let fs = CreateOptions::new().size(16 << 20).in_memory()?;
//! quire::archive::import(&fs, "/", Source::Dir(host.path().into()), &ImportOptions::new().owner(Some(0), Some(0)))?;
//! assert_eq!(fs.read("/hello")?, b"world");
//!
//! let mut tar = Vec::new();
//! quire::archive::export_tar(&fs, "/", &mut tar)?;
//! # assert!(tar.len() > 1024);
//! # Ok::<(), quire::Error>(())
//! ```

mod acl_text;
mod build;
mod entry;
mod export;
mod gzip;
mod host_dir;
mod image_xattrs;
mod import;
mod known_dirs;
mod oci;
mod options;
mod pax;
mod pax_xattrs;
mod progress;
mod size;
mod source;
mod tar_read;
mod tar_write;

pub use build::{BuildOptions, Size, build};
pub use export::{export_dir, export_dir_with};
pub use import::{Imported, import};
pub use options::{ExportOptions, ImportOptions};
pub use progress::Progress;
pub use source::Source;
pub use tar_write::{export_tar, export_tar_with};
