//! Whole trees into an image and out of it.

use crate::errors::exception;
use crate::image::{Image, uuid};
use crate::source::{PathOrFile, PyFile, Raised};
use pyo3::exceptions::{PyUserWarning, PyValueError};
use pyo3::prelude::*;
use quire::CreateOptions;
use quire::archive::{self, BuildOptions, ExportOptions, ImportOptions, Size};
use quire::{Error, ErrorKind, FileSystem, NewFile};
use std::ffi::CString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of an archive that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// What an import changes: owner for all, permission bits to remove, whiteouts, the name in an OCI layout.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Choices {
    owner: Option<(Option<u32>, Option<u32>)>,
    remove_permissions: u32,
    whiteouts: bool,
    latest_time: Option<i64>,
    reference: Option<String>,
}

/// Attributes that an import has left out, in words.
#[derive(Clone, Default)]
struct LeftOut(Arc<Mutex<Vec<String>>>);

impl LeftOut {
    /// Warns of each, when the import is done.
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        let told = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for text in told.into_iter().filter_map(|text| CString::new(text).ok()) {
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
        }
        Ok(())
    }
}

fn options(choices: &Choices, raised: &Raised, left_out: &LeftOut) -> ImportOptions {
    let (uid, gid) = choices.owner.unwrap_or_default();
    let told = left_out.clone();
    let left_out = move |name: &std::ffi::OsStr, path: &Path| {
        let text =
            format!("{}: attribute {} is left out: ext4 does not store it there", path.display(), name.display());
        told.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    };
    let options = ImportOptions::new().on_progress(raised.watch()).on_left_out(left_out);
    let mut options = options.owner(uid, gid).whiteouts(choices.whiteouts);
    if choices.remove_permissions != 0 {
        options = options.remove_permissions(choices.remove_permissions);
    }
    if let Some(secs) = choices.latest_time {
        options = options.latest_time(quire::Timestamp::new(secs, 0));
    }
    match &choices.reference {
        Some(name) => options.reference(name),
        None => options,
    }
}

/// "min", "min+20%", or a number of bytes.
#[derive(FromPyObject)]
pub(crate) enum SizeArgument {
    Bytes(u64),
    Text(String),
}

fn size(argument: &SizeArgument) -> PyResult<Size> {
    let text = match argument {
        SizeArgument::Bytes(bytes) => return Ok(Size::Bytes(*bytes)),
        SizeArgument::Text(text) => text,
    };
    let bad = || PyValueError::new_err(format!("{text}: bytes, \"min\" or \"min+20%\" are expected"));
    Size::from_min(text).ok_or_else(bad)
}

/// Builds an image from a tree. It has its name when it is complete.
#[pyfunction]
#[pyo3(signature = (path, source, size, choices, *, label = None, uuid = None, features = Vec::new(), time = None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn build_image(
    py: Python<'_>,
    path: PathBuf,
    source: PathOrFile,
    size: SizeArgument,
    choices: Choices,
    label: Option<String>,
    uuid: Option<String>,
    features: Vec<String>,
    time: Option<i64>,
) -> PyResult<(u64, u64)> {
    let mut create = features.into_iter().fold(CreateOptions::new(), CreateOptions::feature);
    if let Some(label) = label {
        create = create.label(label);
    }
    if let Some(text) = uuid {
        create = create.uuid(self::uuid(&text)?);
    }
    if let Some(secs) = time {
        create = create.time(quire::Timestamp::new(secs, 0));
    }
    let raised = Raised::default();
    let left_out = LeftOut::default();
    let build = BuildOptions { size: self::size(&size)?, create, import: options(&choices, &raised, &left_out) };
    let source = source.source(py, &raised)?;
    let done = raised.run(py, || archive::build(&path, Some(source), &build))?;
    left_out.warn(py)?;
    Ok((done.objects, done.bytes))
}

/// Writes an archive to a file of the host, which has its name when it is complete. What is there and is no regular
/// file, such as a FIFO, is written to.
fn export_file(fs: &FileSystem, from: &Path, to: &Path, options: &ExportOptions) -> quire::Result<()> {
    let host = |e: std::io::Error| Error::host(to, &e);
    let export = |file: &File| {
        let mut out = BufWriter::with_capacity(WRITE_BYTES, file);
        let done = archive::export_tar_with(fs, from, &mut out, options);
        done.map_err(|e| if e.is_of_host() { e.at(to) } else { e })?;
        out.flush().map_err(host)
    };
    if std::fs::metadata(to).is_ok_and(|m| !m.is_file()) {
        return export(&File::options().write(true).open(to).map_err(host)?);
    }
    let new = NewFile::at(to, 0o666)?;
    export(new.file())?;
    new.finish()
}

#[pymethods]
impl Image {
    /// Brings a directory, a tar archive or an OCI layout below `to`. Objects and bytes that it has written.
    fn import_tree(&self, py: Python<'_>, to: PathBuf, source: PathOrFile, choices: Choices) -> PyResult<(u64, u64)> {
        let (raised, left_out) = (Raised::default(), LeftOut::default());
        let (fs, source) = (self.fs()?, source.source(py, &raised)?);
        let options = options(&choices, &raised, &left_out);
        let done = raised.run(py, || archive::import(&fs, &to, source, &options))?;
        left_out.warn(py)?;
        Ok((done.objects, done.bytes))
    }

    /// Writes what is below `from` as a tar archive to a path of the host or a file object.
    fn export_tar(&self, py: Python<'_>, from: PathBuf, to: PathOrFile) -> PyResult<()> {
        let (fs, raised) = (self.fs()?, Raised::default());
        let options = ExportOptions::new().on_progress(raised.watch());
        match to {
            PathOrFile::Path(path) if fs.is_image(&path) => {
                let why = Error::new(ErrorKind::InvalidInput, "this is the image itself").at(&path);
                Err(exception(py, &why))
            }
            PathOrFile::Path(path) => raised.run(py, || export_file(&fs, &from, &path, &options)),
            PathOrFile::File(file) => {
                let mut file = PyFile::writer(py, file, &raised)?;
                raised.run(py, || archive::export_tar_with(&fs, &from, &mut file, &options))
            }
        }
    }

    /// Copies what is below `from` into a directory of the host.
    fn export_dir(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        let (fs, raised) = (self.fs()?, Raised::default());
        let options = ExportOptions::new().on_progress(raised.watch());
        raised.run(py, || archive::export_dir_with(&fs, &from, &to, &options))
    }
}
