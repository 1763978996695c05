//! The tools that tests judge by: mke2fs, e2fsck, and the kernel's own ext4.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes an image of `size` ("64M") with `mke2fs` and these further arguments.
///
/// # Panics
/// If mke2fs is missing or fails.
#[must_use]
pub fn mke2fs(size: &str, args: &[&str]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    run("mke2fs", &[&["-q", "-F"], args, &[file.path().to_str().expect("utf-8"), size]].concat());
    std::fs::read(file.path()).expect("image")
}

/// Asks `e2fsck -fn` about an image.
///
/// # Panics
/// With e2fsck's words, if the image is not clean.
pub fn fsck(image: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("temporary file");
    file.write_all(image).expect("write image");
    let out = Command::new("e2fsck").arg("-fn").arg(file.path()).stdin(Stdio::null()).output().expect("run e2fsck");
    if !out.status.success() {
        let (_, path) = file.keep().expect("keep image");
        panic!("e2fsck -fn {}: {}", path.display(), String::from_utf8_lossy(&out.stdout));
    }
}

/// Runs a tool that must succeed; returns what it printed.
///
/// # Panics
/// If it is missing or fails.
pub fn run(tool: &str, args: &[&str]) -> String {
    let out = Command::new(tool).args(args).stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{tool}: {e}"));
    assert!(out.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// An image file, mounted by the kernel while this lives.
#[derive(Debug)]
pub struct Mounted {
    pub at: tempfile::TempDir,
}

impl Mounted {
    /// Mounts with `-t ext4 -o options`.
    ///
    /// # Panics
    /// If the kernel does not mount it, as without root.
    #[must_use]
    pub fn new(file: &Path, options: &str) -> Self {
        Self::mount(file, options).unwrap_or_else(|why| panic!("no loop mount: {why}"))
    }

    /// Mounts as [`Mounted::new`] does, for a test that also says something without the kernel. `None`, with a word
    /// about it, where that is not possible.
    #[must_use]
    pub fn if_possible(file: &Path, options: &str) -> Option<Self> {
        Self::mount(file, options).inspect_err(|why| println!("not compared with the kernel: {why}")).ok()
    }

    fn mount(file: &Path, options: &str) -> Result<Self, String> {
        let at = tempfile::tempdir().expect("temporary directory");
        let out = Command::new("mount").args(["-t", "ext4", "-o", options]).arg(file).arg(at.path()).output();
        match out {
            Ok(o) if o.status.success() => Ok(Mounted { at }),
            Ok(o) => Err(String::from_utf8_lossy(&o.stderr).trim().to_owned()),
            Err(e) => Err(format!("mount: {e}")),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever looks at all mounts (an indexer, a backup) may keep it busy for a moment.
        let done = (0..50).any(|n| {
            if n > 0 {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            Command::new("umount").arg(self.at.path()).status().is_ok_and(|s| s.success())
        });
        assert!(done || std::thread::panicking(), "umount");
    }
}
