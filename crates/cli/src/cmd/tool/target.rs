//! `IMG:PATH`: an image of the host, and a path in it.

use super::failure::Failure;
use quire::{FileSystem, OpenOptions};
use std::path::PathBuf;

/// Where in the image the file system lies.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct At {
    /// The file system is in this partition of the image, counted from 1 (GPT or MBR)
    #[arg(long, value_name = "N", conflicts_with = "offset", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) partition: Option<u32>,
    /// Where the file system starts in the image, in bytes
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

/// Splits `IMG:PATH`. Without a colon the path is the root. The name of an image may have colons, if no `:/` is in it:
/// the first `:/` divides, or else the first colon.
pub(crate) fn split(text: &str) -> (PathBuf, String) {
    let at = text.find(":/").or_else(|| text.find(':'));
    match at {
        Some(at) => {
            let path = &text[at + 1..];
            (text[..at].into(), if path.is_empty() { "/".to_owned() } else { path.to_owned() })
        }
        None => (text.into(), "/".to_owned()),
    }
}

/// Takes the image off all targets, which must name the same one.
pub(crate) fn common_image(targets: Vec<&mut String>) -> Result<PathBuf, Failure> {
    let mut image: Option<PathBuf> = None;
    for target in targets {
        let (this, path) = split(target);
        match &image {
            Some(first) if *first != this => {
                let why = format!("{} and {}: one command works on one image", first.display(), this.display());
                return Err(Failure::Usage(why));
            }
            _ => image = Some(this),
        }
        *target = path;
    }
    image.ok_or_else(|| Failure::Usage("no image is named".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_colon_before_a_slash_divides() {
        let split = |s| {
            let (image, path) = split(s);
            (image.to_str().unwrap().to_owned(), path)
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(split("disk.img:/etc"), pair("disk.img", "/etc"));
        assert_eq!(split("disk.img:etc/x"), pair("disk.img", "etc/x"));
        assert_eq!(split("disk.img"), pair("disk.img", "/"));
        assert_eq!(split("disk.img:"), pair("disk.img", "/"));
        assert_eq!(split("a:b.img:/x:y"), pair("a:b.img", "/x:y"));
    }

    #[test]
    fn targets_of_two_images_are_refused() {
        let (mut a, mut b) = ("a:/x".to_owned(), "b:/x".to_owned());
        assert!(matches!(common_image(vec![&mut a, &mut b]), Err(Failure::Usage(_))));
    }
}
