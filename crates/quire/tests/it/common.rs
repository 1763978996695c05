//! Images, and programs of others that judge them.
#![allow(dead_code, unreachable_pub)]

use quire::{CreateOptions, FileSystem};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system in memory.
pub fn scratch() -> FileSystem {
    CreateOptions::new().size(16 << 20).in_memory().unwrap()
}

/// An image file in a directory of its own.
pub fn image(size: u64, features: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = features.iter().fold(CreateOptions::new().size(size), |o, f| o.feature(*f));
    options.format(&path).unwrap();
    (dir, path)
}

fn tool(name: &str) -> Command {
    let mut c = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    c.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").stdin(Stdio::null());
    c
}

/// `e2fsck -fn` must find nothing.
pub fn fsck(image: &Path) {
    let out = tool("e2fsck").arg("-fn").arg(image).output().expect("run e2fsck");
    assert!(out.status.success(), "e2fsck -fn {}: {}", image.display(), String::from_utf8_lossy(&out.stdout));
}

pub fn fsck_bytes(image: &[u8]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    fsck(file.path());
}

/// What debugfs says.
pub fn debugfs(image: &Path, command: &str) -> String {
    let out = tool("debugfs").args(["-R", command]).arg(image).output().expect("run debugfs");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn debugfs_write(image: &Path, command: &str) {
    let out = tool("debugfs").args(["-w", "-R", command]).arg(image).output().expect("run debugfs");
    assert!(out.status.success(), "{out:?}");
}
