//! Whole trees into an image and out of it.

use crate::errors::run;
use crate::image::{Image, uuid};
use crate::source::{PathOrFile, PyFile};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quire::CreateOptions;
use quire::archive::{self, BuildOptions, ImportOptions, Size};
use std::path::PathBuf;

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

fn options(choices: &Choices) -> ImportOptions {
    let (uid, gid) = choices.owner.unwrap_or_default();
    let mut options = ImportOptions::new().owner(uid, gid).whiteouts(choices.whiteouts);
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
    let build = BuildOptions { size: self::size(&size)?, create, import: options(&choices) };
    let source = source.source(py)?;
    let done = run(py, || archive::build(&path, Some(source), &build))?;
    Ok((done.objects, done.bytes))
}

#[pymethods]
impl Image {
    /// Brings a directory, a tar archive or an OCI layout below `to`. Objects and bytes that it has written.
    fn import_tree(&self, py: Python<'_>, to: PathBuf, source: PathOrFile, choices: Choices) -> PyResult<(u64, u64)> {
        let (fs, source, options) = (self.fs()?, source.source(py)?, options(&choices));
        let done = run(py, || archive::import(&fs, &to, source, &options))?;
        Ok((done.objects, done.bytes))
    }

    /// Writes what is below `from` as a tar archive to a path of the host or a file object.
    fn export_tar(&self, py: Python<'_>, from: PathBuf, to: PathOrFile) -> PyResult<()> {
        let fs = self.fs()?;
        match to {
            PathOrFile::Path(path) => run(py, || {
                let mut file = std::fs::File::create(&path).map_err(|e| quire::Error::host(&path, &e))?;
                archive::export_tar(&fs, &from, &mut file)
            }),
            PathOrFile::File(file) => {
                let mut file = PyFile::writer(py, file)?;
                run(py, || archive::export_tar(&fs, &from, &mut file))
            }
        }
    }

    /// Copies what is below `from` into a directory of the host.
    fn export_dir(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        let fs = self.fs()?;
        run(py, || archive::export_dir(&fs, &from, &to))
    }
}
