//! Images: open, make, and what is done by path.

use crate::detached::Detached;
use crate::errors::{closed, exception, run};
use crate::file::RawFile;
use crate::values::{Info, Stat, Usage, timestamp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quire::{CreateOptions, FileOptions, FileSystem, FileType, Links, NewNode, OpenOptions, SetMetadata};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// An open image.
#[pyclass(frozen, module = "quire")]
pub(crate) struct Image {
    /// `None`: closed.
    fs: Mutex<Option<Detached<FileSystem>>>,
}

impl Image {
    pub(crate) fn new(fs: FileSystem) -> Self {
        Image { fs: Mutex::new(Some(Detached::new(fs))) }
    }

    pub(crate) fn fs(&self) -> PyResult<Detached<FileSystem>> {
        let fs = self.fs.lock().unwrap_or_else(PoisonError::into_inner);
        fs.as_ref().map(|fs| Detached::new(FileSystem::clone(fs))).ok_or_else(closed)
    }

    fn take(&self) -> Option<Detached<FileSystem>> {
        self.fs.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn links(follow: bool) -> Links {
    if follow { Links::Follow } else { Links::NoFollow }
}

pub(crate) fn uuid(text: &str) -> PyResult<[u8; 16]> {
    quire::uuid_from_text(text).ok_or_else(|| PyValueError::new_err(format!("{text}: no UUID")))
}

/// Opens an image file or a block device.
#[pyfunction]
#[pyo3(signature = (path, *, read_only = false, offset = 0, partition = None, cache_size = None, owner = (0, 0)))]
pub(crate) fn open_image(
    py: Python<'_>,
    path: PathBuf,
    read_only: bool,
    offset: u64,
    partition: Option<u32>,
    cache_size: Option<u64>,
    owner: (u32, u32),
) -> PyResult<Image> {
    let mut options = OpenOptions::new().read_only(read_only).offset(offset).owner(owner.0, owner.1);
    if let Some(n) = partition {
        options = options.partition(n);
    }
    if let Some(bytes) = cache_size {
        options = options.cache_size(bytes);
    }
    Ok(Image::new(run(py, || options.open(&path))?))
}

/// Opens an image in memory.
#[pyfunction]
#[pyo3(signature = (data, *, read_only = false))]
pub(crate) fn open_bytes(py: Python<'_>, data: Vec<u8>, read_only: bool) -> PyResult<Image> {
    Ok(Image::new(run(py, || OpenOptions::new().read_only(read_only).open_bytes(data))?))
}

/// Makes an image by `mke2fs`; without a path, in memory.
#[pyfunction]
#[pyo3(signature = (path, size, *, label = None, uuid = None, features = Vec::new(), block_size = None, inodes = None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn create_image(
    py: Python<'_>,
    path: Option<PathBuf>,
    size: u64,
    label: Option<String>,
    uuid: Option<String>,
    features: Vec<String>,
    block_size: Option<u32>,
    inodes: Option<u64>,
) -> PyResult<Image> {
    let mut options = features.into_iter().fold(CreateOptions::new().size(size), CreateOptions::feature);
    if let Some(label) = label {
        options = options.label(label);
    }
    if let Some(text) = uuid {
        options = options.uuid(self::uuid(&text)?);
    }
    if let Some(bytes) = block_size {
        options = options.block_size(bytes);
    }
    if let Some(n) = inodes {
        options = options.inodes(n);
    }
    let fs = run(py, || match &path {
        Some(path) => options.create(path),
        None => options.in_memory(),
    })?;
    Ok(Image::new(fs))
}

#[pymethods]
impl Image {
    /// Makes everything durable, and leaves a clean image. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.take() {
            Some(fs) => run(py, || fs.into_inner().close()),
            None => Ok(()),
        }
    }

    #[getter]
    fn closed(&self) -> bool {
        self.fs.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Closes an image in memory, and returns it. `None`: it is not in memory.
    fn to_bytes<'p>(&self, py: Python<'p>) -> PyResult<Option<Bound<'p, PyBytes>>> {
        let fs = self.take().ok_or_else(closed)?;
        Ok(run(py, || fs.into_inner().into_bytes())?.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.sync())
    }

    fn freeze(&self, py: Python<'_>) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.freeze())
    }

    fn thaw(&self, py: Python<'_>) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.thaw())
    }

    fn info(&self) -> PyResult<Info> {
        Ok(Info::of(self.fs()?.info()))
    }

    fn statvfs(&self, py: Python<'_>) -> PyResult<Usage> {
        let fs = self.fs()?;
        Ok(Usage::of(&run(py, || fs.usage())?))
    }

    fn stat(&self, py: Python<'_>, path: PathBuf, follow_symlinks: bool) -> PyResult<Stat> {
        let fs = self.fs()?;
        let m = run(py, || if follow_symlinks { fs.metadata(&path) } else { fs.symlink_metadata(&path) })?;
        Ok(Stat::of(&m))
    }

    /// The names of a directory, in their order.
    fn names(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
        let fs = self.fs()?;
        run(py, || fs.names(&path))
    }

    /// Names and what is known of them, or the exception that says why that cannot be read, in the order of names.
    fn read_dir<'p>(&self, py: Python<'p>, path: PathBuf) -> PyResult<Vec<(OsString, Bound<'p, PyAny>)>> {
        let fs = self.fs()?;
        let entries = run(py, || fs.read_dir_each(&path))?;
        let mut shown = Vec::with_capacity(entries.len());
        for (name, metadata) in entries {
            let known = match metadata {
                Ok(m) => Bound::new(py, Stat::of(&m))?.into_any(),
                Err(e) => exception(py, &e).into_value(py).into_bound(py).into_any(),
            };
            shown.push((name, known));
        }
        Ok(shown)
    }

    #[pyo3(signature = (path, *, create = false, create_new = false, truncate = false, mode = 0o644))]
    fn open(
        &self,
        py: Python<'_>,
        path: PathBuf,
        create: bool,
        create_new: bool,
        truncate: bool,
        mode: u32,
    ) -> PyResult<RawFile> {
        let fs = self.fs()?;
        let options = FileOptions::new().create(create).create_new(create_new).truncate(truncate).permissions(mode);
        Ok(RawFile::new(run(py, || fs.open_with(&path, options))?))
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.create_node(&path, NewNode::new(FileType::Dir, mode & 0o7777)))
    }

    fn mknod(&self, py: Python<'_>, path: PathBuf, mode: u32, major: u32, minor: u32) -> PyResult<()> {
        let fs = self.fs()?;
        let bad = || PyValueError::new_err("mknod makes files, fifos, sockets and devices");
        let new = NewNode::from_mode(mode).ok_or_else(bad)?;
        run(py, || fs.create_node(&path, new.device(major, minor)))
    }

    fn remove(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.remove_file(&path))
    }

    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.remove_dir(&path))
    }

    fn rmtree(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.remove_all(&path))
    }

    fn rename(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.rename(&from, &to))
    }

    fn link(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.hard_link(&from, &to))
    }

    fn symlink(&self, py: Python<'_>, target: PathBuf, path: PathBuf) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.symlink(&target, &path))
    }

    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        let fs = self.fs()?;
        run(py, || fs.read_link(&path))
    }

    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.chmod(&path, mode & 0o7777))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let fs = self.fs()?;
        let set = uid.map_or(SetMetadata::new(), |uid| SetMetadata::new().uid(uid));
        let set = gid.map_or(set, |gid| set.gid(gid));
        run(py, || fs.set_metadata(&path, links(follow_symlinks), set))
    }

    fn utime(&self, py: Python<'_>, path: PathBuf, ns: (i128, i128), follow_symlinks: bool) -> PyResult<()> {
        let fs = self.fs()?;
        let time = |ns| timestamp(ns).ok_or_else(|| PyValueError::new_err("a time out of range"));
        let set = SetMetadata::new().accessed(time(ns.0)?).modified(time(ns.1)?);
        run(py, || fs.set_metadata(&path, links(follow_symlinks), set))
    }

    fn getxattr<'p>(
        &self,
        py: Python<'p>,
        path: PathBuf,
        name: OsString,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'p, PyBytes>> {
        let fs = self.fs()?;
        Ok(PyBytes::new(py, &run(py, || fs.xattr(&path, links(follow_symlinks), &name))?))
    }

    fn setxattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: OsString,
        value: Vec<u8>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.set_xattr(&path, links(follow_symlinks), &name, &value))
    }

    fn removexattr(&self, py: Python<'_>, path: PathBuf, name: OsString, follow_symlinks: bool) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || fs.remove_xattr(&path, links(follow_symlinks), &name))
    }

    fn listxattr(&self, py: Python<'_>, path: PathBuf, follow_symlinks: bool) -> PyResult<Vec<OsString>> {
        let fs = self.fs()?;
        run(py, || fs.xattrs(&path, links(follow_symlinks)))
    }
}
