//! `IMG:PATH`: an image of the host, and a path in it.

use super::action::Action;
use super::failure::Failure;
use crate::cmd::at::At;
use crate::text::printable_name;
use quire::{FileSystem, Timestamp};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Opens the file system of an image, to be changed or only read.
pub(crate) fn open(at: At, image: &Path, writes: bool) -> Result<FileSystem, Failure> {
    at.open(image, writes).map_err(Failure::host)
}

/// Opens the file system of an image to be changed; what is changed gets this time, or else the clock's.
pub(crate) fn open_at_time(at: At, image: &Path, time: Option<Timestamp>) -> Result<FileSystem, Failure> {
    let options = at.options(true);
    time.map_or(options.clone(), |t| options.time(t)).open(image).map_err(Failure::host)
}

/// Splits `IMG:PATH`, of any bytes. Without a colon the path is the root. The name of an image may have colons, if no
/// `:/` is in it: the first `:/` divides, or else the first colon.
pub(crate) fn split(name: &OsStr) -> (PathBuf, OsString) {
    let bytes = name.as_bytes();
    let (image, path) = colon(bytes).map_or((bytes, &b""[..]), |at| (&bytes[..at], &bytes[at + 1..]));
    let path = if path.is_empty() { b"/" } else { path };
    (OsStr::from_bytes(image).into(), OsStr::from_bytes(path).to_owned())
}

fn colon(text: &[u8]) -> Option<usize> {
    text.windows(2).position(|two| two == b":/").or_else(|| text.iter().position(|b| *b == b':'))
}

/// Takes the image off all that an action names, which must be the same one.
pub(crate) fn common_image(action: &mut dyn Action) -> Result<PathBuf, Failure> {
    let mut images = Vec::new();
    for name in action.names() {
        let (image, path) = split(name);
        images.push(image);
        *name = path;
    }
    let Some((first, others)) = images.split_first() else {
        return Err(Failure::Usage("no image is named".to_owned()));
    };
    match others.iter().find(|image| *image != first) {
        Some(other) => {
            let (first, other) = (printable_name(first), printable_name(other));
            Err(Failure::Usage(format!("{first} and {other}: one command works on one image")))
        }
        None => Ok(first.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_colon_before_a_slash_divides_whatever_bytes_are_there() {
        for (name, image, path) in [
            (&b"disk.img:/etc"[..], &b"disk.img"[..], &b"/etc"[..]),
            (b"disk.img:etc/x", b"disk.img", b"etc/x"),
            (b"disk.img", b"disk.img", b"/"),
            (b"disk.img:", b"disk.img", b"/"),
            (b"a:b.img:/x:y", b"a:b.img", b"/x:y"),
            (b"a\xff.img:/x\xfe", b"a\xff.img", b"/x\xfe"),
        ] {
            let (found, rest) = split(OsStr::from_bytes(name));
            assert_eq!((found.as_os_str().as_bytes(), rest.as_bytes()), (image, path));
        }
    }
}
