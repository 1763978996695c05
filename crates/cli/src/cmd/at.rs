//! Where in an image the file system lies: from the first byte on, in a partition, or at an offset.

use quire::{Error, FileSystem, find_partition};
use quire_device::FileDevice;
use std::path::Path;

/// Where in the image the file system lies.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct At {
    /// The file system is in this partition of the image, counted from 1 (GPT or MBR)
    #[arg(long, value_name = "N", conflicts_with = "offset", value_parser = clap::value_parser!(u32).range(1..))]
    partition: Option<u32>,
    /// Where the file system starts in the image: bytes, with K, M, G or T
    #[arg(long, value_name = "BYTES", value_parser = crate::text::size)]
    offset: Option<u64>,
}

impl At {
    /// Opens the file system, to be changed or only read.
    pub(crate) fn open(self, image: &Path, writes: bool) -> quire::Result<FileSystem> {
        self.options(writes).open(image)
    }

    /// How the file system is opened, to be changed or only read.
    pub(crate) fn options(self, writes: bool) -> quire::OpenOptions {
        let options = FileSystem::options().read_only(!writes).offset(self.offset.unwrap_or(0));
        self.partition.map_or(options.clone(), |n| options.partition(n))
    }

    /// Opens its bytes as `how` says, but for where they are.
    ///
    /// # Errors
    /// With the image's name: no such partition, and those of opening a device.
    pub(crate) fn device(self, image: &Path, how: quire_device::OpenOptions) -> Result<FileDevice, String> {
        let (offset, size) = self.range(image).map_err(|e| e.to_string())?;
        FileDevice::open(image, quire_device::OpenOptions { offset, size, ..how }).map_err(|e| e.to_string())
    }

    /// Where it starts, and how long its partition is, in bytes.
    ///
    /// # Errors
    /// No such partition; I/O.
    pub(crate) fn range(self, image: &Path) -> quire::Result<(u64, Option<u64>)> {
        let Some(n) = self.partition else { return Ok((self.offset.unwrap_or(0), None)) };
        let mut disk = std::fs::File::open(image).map_err(|e| Error::host(image, &e))?;
        let (start, len) = find_partition(&mut disk, n).map_err(|e| e.at(image))?;
        Ok((start, Some(len)))
    }
}
