//! `IMG:PATH`: an image of the host, and a path in it.

use super::action::Action;
use super::failure::Failure;
use crate::text::printable_name;
use quire::{FileSystem, OpenOptions};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where in the image the file system lies.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct At {
    /// The file system is in this partition of the image, counted from 1 (GPT or MBR)
    #[arg(long, value_name = "N", conflicts_with = "offset", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) partition: Option<u32>,
    /// Where the file system starts in the image: bytes, with K, M, G or T
    #[arg(long, value_name = "BYTES", value_parser = super::values::size)]
    pub(crate) offset: Option<u64>,
}

impl At {
    /// Opens an image, to be changed or only read.
    pub(crate) fn open(self, image: &PathBuf, writes: bool) -> Result<FileSystem, Failure> {
        let options = OpenOptions::new().read_only(!writes).offset(self.offset.unwrap_or(0));
        let options = self.partition.map_or(options.clone(), |n| options.partition(n));
        options.open(image).map_err(Failure::host)
    }
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
