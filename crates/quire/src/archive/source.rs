//! Where a tree comes from.

use super::entry::Sink;
use super::options::ImportOptions;
use super::{host_dir, oci, tar_read};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where a tree comes from.
#[non_exhaustive]
pub enum Source {
    /// A directory of the host.
    Dir(PathBuf),
    /// A tar archive, plain or compressed with gzip or zstd.
    Tar(PathBuf),
    /// The same as a stream, such as a pipe.
    Stream(Box<dyn Read + Send>),
    /// An OCI image layout.
    Oci(PathBuf),
}

impl Source {
    /// What a path of the host is: a directory, an OCI layout, or a tar archive; `-` is standard input.
    ///
    /// # Errors
    /// Not found.
    pub fn detect(path: impl AsRef<Path>) -> Result<Source> {
        let path = path.as_ref();
        if path.as_os_str() == "-" {
            return Ok(Source::Stream(Box::new(std::io::stdin())));
        }
        let m = std::fs::metadata(path).map_err(|e| Error::host(path, &e))?;
        Ok(if oci::is_layout(path) {
            Source::Oci(path.into())
        } else if m.is_dir() {
            Source::Dir(path.into())
        } else {
            Source::Tar(path.into())
        })
    }

    /// Hands all entries to a sink. A stream is used up by that.
    pub(super) fn read(&mut self, options: &ImportOptions, sink: &mut dyn Sink) -> Result<()> {
        match self {
            Source::Dir(path) => host_dir::read(path, &options.left_out, sink),
            Source::Tar(path) => {
                let file = File::open(&*path).map_err(|e| Error::host(&*path, &e))?;
                let done = tar_read::decompressed(file).and_then(|mut tar| tar_read::read(&mut *tar, sink));
                // What has no path is about the archive, and not about an entry of it.
                done.map_err(|e| e.of_host(&*path))
            }
            Source::Stream(stream) => tar_read::read(&mut *tar_read::decompressed(stream)?, sink),
            Source::Oci(path) => oci::read(path, options.reference.as_deref(), sink),
        }
    }
}
