//! What a directory holds: names, and what is known of the inodes behind them.
//!
//! *Guarantees*: one operation of the engine finds a name and its inode's metadata, so that a removal beside the
//! listing neither ends it nor has it show the metadata of a later file. An inode that cannot be read hides no name.

use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::shared::{Call, InodeRef};
use quire_fs::Attributes;
use quire_layout::dir::is_dot;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A name, and the metadata of its inode or the reason why that cannot be read.
pub(crate) type Listed = (OsString, Result<Metadata>);

/// The names, sorted. No inode but the directory's is read.
///
/// # Errors
/// Stale; corrupt; I/O: the directory.
pub(crate) fn names(dir: &InodeRef) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    dir.call()?.volume.readdir(dir.ino, 0, &mut |item| {
        if !is_dot(item.name) {
            names.push(OsString::from_vec(item.name.to_vec()));
        }
        true
    })?;
    names.sort();
    Ok(names)
}

/// The names with what is known of their inodes, sorted.
///
/// # Errors
/// As [`names`].
pub(crate) fn listed(dir: &InodeRef) -> Result<Vec<Listed>> {
    let call = dir.call()?;
    let mut found: Vec<(OsString, Option<Metadata>)> = Vec::new();
    call.volume.readdir_plus(dir.ino, 0, Attributes::All, &mut |item, attr| {
        if is_dot(item.name) {
            return true;
        }
        if let Some(attr) = &attr {
            call.volume.forget(attr.ino, 1);
        }
        found.push((OsString::from_vec(item.name.to_vec()), attr.as_ref().map(Metadata::of)));
        true
    })?;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let listed = found.into_iter().filter_map(|(name, metadata)| {
        let metadata = metadata.map_or_else(|| look_up(&call, dir, &name), |m| Some(Ok(m)))?;
        Some((name, metadata))
    });
    Ok(listed.collect())
}

/// The metadata of a name that the listing has none of, or the reason. `None`: the name was removed meanwhile.
fn look_up(call: &Call, dir: &InodeRef, name: &OsStr) -> Option<Result<Metadata>> {
    match call.volume.lookup(dir.ino, name.as_bytes()) {
        Ok(attr) => {
            call.volume.forget(attr.ino, 1);
            Some(Ok(Metadata::of(&attr)))
        }
        Err(quire_fs::Error::NotFound | quire_fs::Error::Stale(_)) => None,
        Err(e) => Some(Err(Error::from(e).at(name))),
    }
}
