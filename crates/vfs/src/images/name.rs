//! Names: `IMAGE/PATH`, where IMAGE is the path of an image on the host and PATH leads from the image's root.
//!
//! Because the name says which image it means, it works wherever SQLite gives a name and no URI: in `ATTACH`, and in
//! the journal of a transaction over several databases. The image's part ends at the first component that is no
//! directory.

use super::table::{ADOPTED, longest_open};
use quire::{Error, ErrorKind, Result};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The parameter of a URI, and the variable, that name the image; the path is then all inside of it.
const PARAMETER: &CStr = c"image";
const VARIABLE: &str = "QUIRE_IMAGE";

/// The full name for a name that a program gave.
///
/// # Errors
/// No image is named, or it cannot be found.
pub(super) fn full(name: &[u8], parameter: &dyn Fn(&CStr) -> Option<Vec<u8>>) -> Result<Vec<u8>> {
    if name.first() == Some(&ADOPTED) {
        return Ok(tidy(name));
    }
    if let Some(image) = parameter(PARAMETER) {
        return join(&image, name);
    }
    let here = std::env::current_dir().map_err(|e| Error::host(".", &e))?.into_os_string().into_vec();
    let absolute = if name.starts_with(b"/") { name.to_vec() } else { [&here, &b"/"[..], name].concat() };
    if let Some(at) = end_of_image(&absolute) {
        return join(&absolute[..at], &absolute[at..]);
    }
    match std::env::var_os(VARIABLE) {
        Some(image) => join(image.as_bytes(), name),
        None => {
            let why =
                "no part of this path is an image: say file:IMAGE/PATH?vfs=quire or image=IMAGE, or set QUIRE_IMAGE";
            Err(Error::new(ErrorKind::NotFound, why).at(OsStr::from_bytes(name)))
        }
    }
}

/// Parts a full name into the image's and the path in it.
///
/// # Errors
/// The image is gone.
pub(super) fn part(name: &[u8]) -> Result<(&[u8], &Path)> {
    let parted = |at: usize| (&name[..at], Path::new(OsStr::from_bytes(&name[at..])));
    if name.first() == Some(&ADOPTED) {
        let end = name.iter().position(|b| *b == b'/').unwrap_or(name.len());
        return Ok(parted(end));
    }
    // An image that is open needs no look at the host.
    let open = longest_open(name).or_else(|| end_of_image(name));
    open.map(parted).ok_or_else(|| Error::new(ErrorKind::NotFound, "no image").at(OsStr::from_bytes(name)))
}

fn join(image: &[u8], path: &[u8]) -> Result<Vec<u8>> {
    let mut whole = if image.first() == Some(&ADOPTED) {
        image.to_vec()
    } else {
        let given = Path::new(OsStr::from_bytes(image));
        let found = given.canonicalize().map_err(|e| Error::host(given, &e))?;
        found.into_os_string().into_vec()
    };
    whole.push(b'/');
    whole.extend_from_slice(path);
    Ok(tidy(&whole))
}

/// Where the path of the image ends: behind the first component that is a file or a block device. More must follow.
fn end_of_image(path: &[u8]) -> Option<usize> {
    let ends = path.iter().enumerate().skip(1).filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    for end in ends {
        let here = PathBuf::from(OsStr::from_bytes(&path[..end]));
        let kind = here.metadata().ok()?.file_type();
        if kind.is_file() || kind.is_block_device() {
            return Some(end);
        }
    }
    None
}

/// Without empty components and `.`. A `..` stays, because what it means depends on symbolic links.
fn tidy(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for (n, component) in path.split(|b| *b == b'/').enumerate() {
        if n > 0 && (component.is_empty() || component == b".") {
            continue;
        }
        if n > 0 {
            out.push(b'/');
        }
        out.extend_from_slice(component);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_name_ends_in_the_image_at_the_first_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/img"), "").unwrap();
        let name = format!("{}//d/./img//a/b.db", root.display());
        let whole = full(name.as_bytes(), &|_| None).unwrap();
        assert_eq!(text(whole.clone()), format!("{}/d/img/a/b.db", root.display()));
        let (image, path) = part(&whole).unwrap();
        assert_eq!((image, path), (format!("{}/d/img", root.display()).as_bytes(), Path::new("/a/b.db")));
        assert_eq!(text(full(&whole, &|_| None).unwrap()), text(whole), "a full name stays");
    }

    #[test]
    fn an_image_in_the_uri_takes_the_whole_path() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().canonicalize().unwrap().join("img");
        std::fs::write(&image, "").unwrap();
        let bytes = image.as_os_str().as_bytes().to_vec();
        let whole = full(b"/a/b.db", &|p| (p == c"image").then(|| bytes.clone())).unwrap();
        assert_eq!(text(whole), format!("{}/a/b.db", image.display()));
    }

    #[test]
    fn a_path_without_an_image_says_how_to_name_one() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x.db");
        let e = full(name.as_os_str().as_bytes(), &|_| None).unwrap_err();
        assert!(e.to_string().contains("image=IMAGE"), "{e}");
        assert!(full(b"/a.db", &|_| Some(b"/no/such".to_vec())).is_err());
    }

    #[test]
    fn an_adopted_file_system_is_named_with_an_at() {
        let whole = full(b"@mine//a.db", &|_| None).unwrap();
        assert_eq!(text(whole.clone()), "@mine/a.db");
        assert_eq!(part(&whole).unwrap(), (&b"@mine"[..], Path::new("/a.db")));
        assert_eq!(text(full(b"/a.db", &|_| Some(b"@mine".to_vec())).unwrap()), "@mine/a.db");
    }
}
