//! Files in images, by name.

use super::file::ImageFile;
use super::name;
use super::table::{Need, Use};
use crate::storage::{Kind, OpenHow, Storage, StoredFile};
use quire::{Error, ErrorKind, FileOptions, Metadata, Result, SetMetadata};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Permissions of a new database; a journal has its database's.
const PERMISSIONS: u32 = 0o644;

/// The extension's storage: the images of the host, and file systems that were adopted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Images;

impl Storage for Images {
    fn full_name(&self, name: &[u8], parameter: &dyn Fn(&CStr) -> Option<Vec<u8>>) -> Result<Vec<u8>> {
        name::full(name, parameter)
    }

    fn open(&self, whole: &[u8], how: OpenHow) -> Result<Box<dyn StoredFile>> {
        let (image, path) = name::part(whole)?;
        let need = match how.kind {
            Kind::Database if how.write => Need::Write,
            Kind::Database => Need::Read,
            // As its database.
            Kind::Journal | Kind::Other => Need::Any,
        };
        let used = Use::of(image, need)?;
        let may_write = how.write && used.image().fs.info().read_only.is_none();
        match open(&used, path, how, may_write) {
            Ok(file) => Ok(Box::new(ImageFile::new(used, file, path.to_owned(), how.kind, may_write)?)),
            Err(e) => {
                used.end().ok();
                Err(e)
            }
        }
    }

    fn delete(&self, whole: &[u8], sync: bool) -> Result<()> {
        let (image, path) = name::part(whole)?;
        let used = Use::of(image, Need::Any)?;
        let fs = &used.image().fs;
        let deleted = fs.remove_file(path).and_then(|()| match path.parent().filter(|_| sync) {
            Some(parent) => fs.open_dir(parent)?.sync_all(),
            None => Ok(()),
        });
        deleted.and(used.end())
    }

    fn access(&self, whole: &[u8], write: bool) -> Result<bool> {
        let (image, path) = name::part(whole)?;
        let used = Use::of(image, Need::Any)?;
        let fs = &used.image().fs;
        let found = match fs.metadata(path) {
            // As SQLite's own VFS: an empty journal is none.
            Ok(found) if write => Ok(found.is_file() && fs.info().read_only.is_none()),
            Ok(found) => Ok(!found.is_file() || found.size > 0),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(e),
        };
        found.and_then(|found| used.end().map(|()| found))
    }
}

fn open(used: &Use, path: &Path, how: OpenHow, may_write: bool) -> Result<quire::File> {
    let fs = &used.image().fs;
    if how.kind == Kind::Database {
        refuse_link(used, path)?;
    }
    let create = how.create && may_write;
    let like = owner_of(used, path).filter(|_| create && how.kind == Kind::Journal);
    let exists = || fs.exists(path);
    let fresh = like.is_some() && !exists()?;
    let options = FileOptions::new()
        .create(create)
        .create_new(create && how.exclusive)
        .permissions(like.map_or(PERMISSIONS, |m| m.permissions()));
    let file = fs.open_with(path, options)?;
    if let Some(like) = like.filter(|_| fresh) {
        file.set_metadata(SetMetadata::new().owner(like.uid, like.gid))?;
    }
    if how.delete_on_close {
        fs.remove_file(path)?;
    }
    Ok(file)
}

/// A database behind a symbolic link would have its journal beside the link, where those who open the database by its
/// own name do not look.
fn refuse_link(used: &Use, path: &Path) -> Result<()> {
    match used.image().fs.read_link(path) {
        Ok(target) => {
            let why = format!("a symbolic link to {}: open the database by its own name", target.display());
            Err(Error::new(ErrorKind::InvalidInput, why).at(path))
        }
        Err(_) => Ok(()),
    }
}

/// The database that a journal belongs to: its name without the ending.
fn owner_of(used: &Use, path: &Path) -> Option<Metadata> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|b| *b == b'-')?;
    used.image().fs.metadata(OsStr::from_bytes(&bytes[..end])).ok()
}
