//! What Python sees of metadata, of space, of a superblock.

use pyo3::prelude::*;
use quire::Timestamp;

/// What the file system knows of an object, with the names of `os.stat_result`.
#[pyclass(frozen, get_all, module = "quire", eq)]
#[derive(Clone, PartialEq)]
pub(crate) struct Stat {
    st_mode: u32,
    st_ino: u32,
    st_nlink: u32,
    st_uid: u32,
    st_gid: u32,
    st_size: u64,
    /// Of 512 bytes.
    st_blocks: u64,
    /// As `os.makedev` makes it.
    st_rdev: u64,
    /// FS_IMMUTABLE_FL and others.
    st_flags: u32,
    st_atime_ns: i128,
    st_mtime_ns: i128,
    st_ctime_ns: i128,
    st_birthtime_ns: Option<i128>,
}

fn ns(t: Timestamp) -> i128 {
    i128::from(t.secs) * 1_000_000_000 + i128::from(t.nanos)
}

/// A time from nanoseconds. `None`: out of the range of an inode's seconds.
pub(crate) fn timestamp(ns: i128) -> Option<Timestamp> {
    let nanos = u32::try_from(ns.rem_euclid(1_000_000_000)).ok()?;
    Some(Timestamp::new(i64::try_from(ns.div_euclid(1_000_000_000)).ok()?, nanos))
}

/// Nanoseconds as the floating-point seconds of `os.stat`, which lose digits there, too.
#[allow(clippy::cast_precision_loss)]
fn seconds(ns: i128) -> f64 {
    ns as f64 / 1e9
}

impl Stat {
    pub(crate) fn of(m: &quire::Metadata) -> Self {
        let (major, minor) = (u64::from(m.device.0), u64::from(m.device.1));
        Stat {
            st_mode: m.mode,
            st_ino: m.ino,
            st_nlink: m.links,
            st_uid: m.uid,
            st_gid: m.gid,
            st_size: m.size,
            st_blocks: m.allocated >> 9,
            st_rdev: (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12) | ((major & !0xfff) << 32),
            st_flags: m.flags,
            st_atime_ns: ns(m.accessed),
            st_mtime_ns: ns(m.modified),
            st_ctime_ns: ns(m.changed),
            st_birthtime_ns: m.created.map(ns),
        }
    }
}

#[pymethods]
impl Stat {
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.st_atime_ns)
    }

    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.st_mtime_ns)
    }

    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.st_ctime_ns)
    }

    #[getter]
    fn st_birthtime(&self) -> Option<f64> {
        self.st_birthtime_ns.map(seconds)
    }

    fn __repr__(&self) -> String {
        format!("Stat(st_mode={:#o}, st_ino={}, st_size={})", self.st_mode, self.st_ino, self.st_size)
    }
}

/// How full a file system is, with the names of `os.statvfs_result`.
#[pyclass(frozen, get_all, module = "quire")]
pub(crate) struct Usage {
    f_bsize: u32,
    f_blocks: u64,
    f_bfree: u64,
    f_bavail: u64,
    f_files: u64,
    f_ffree: u64,
}

impl Usage {
    pub(crate) fn of(u: &quire::Usage) -> Self {
        Usage {
            f_bsize: u.block_size,
            f_blocks: u.blocks,
            f_bfree: u.free_blocks,
            f_bavail: u.available_blocks,
            f_files: u.inodes,
            f_ffree: u.free_inodes,
        }
    }
}

/// What the superblock says.
#[pyclass(frozen, get_all, module = "quire")]
pub(crate) struct Info {
    label: String,
    uuid: String,
    block_size: u32,
    blocks: u64,
    features: Vec<String>,
    journal: bool,
    /// Why it cannot be written, if it cannot.
    read_only: Option<String>,
}

impl Info {
    pub(crate) fn of(i: quire::Info) -> Self {
        Info {
            uuid: quire::uuid_text(&i.uuid),
            label: i.label,
            block_size: i.block_size,
            blocks: i.blocks,
            features: i.features,
            journal: i.journal,
            read_only: i.read_only,
        }
    }
}
