//! OCI image layouts: index, manifest, and the layers that make the root file system, the lowest first.
//!
//! *Guarantees*: what a digest names has that SHA-256, or the import fails. No path of the layout is taken from its
//! JSON.

use super::entry::Sink;
use super::tar_read;
use crate::error::{Error, ErrorKind, Result};
use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of an index or manifest.
const MAX_JSON: u64 = 16 << 20;
/// Indexes inside of indexes.
const MAX_NESTED: usize = 4;
/// Docker's type of an index, which layouts of its images have. Its manifests and layers are read as those of OCI.
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

fn bad(path: &Path, why: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadInput, why).of_host(path)
}

/// True for a directory that says that it is a layout.
pub(super) fn is_layout(path: &Path) -> bool {
    path.join("oci-layout").is_file() && path.join("index.json").is_file()
}

/// Reads all layers of the image in a layout; `reference` names one of several (`org.opencontainers.image.ref.name`).
///
/// # Errors
/// Bad input: malformed, several images without a reference, a digest that does not fit; those of tar and of the sink.
pub(super) fn read(layout: &Path, reference: Option<&str>, sink: &mut dyn Sink) -> Result<()> {
    let manifest = manifest(layout, reference)?;
    for layer in manifest.layers() {
        let path = blob(layout, layer)?;
        let file = File::open(&path).map_err(|e| Error::host(&path, &e))?;
        sink.layer();
        let mut hashed = Hashed { file, hash: Sha256::new() };
        let mut stream = tar_read::decompressed(&mut hashed).map_err(|e| e.of_host(&path))?;
        tar_read::read(&mut *stream, sink).map_err(|e| e.of_host(&path))?;
        drop(stream);
        // What the decompressor did not need belongs to the blob, too.
        std::io::copy(&mut hashed, &mut std::io::sink()).map_err(|e| Error::host(&path, &e))?;
        check(&path, layer, hashed.hash)?;
    }
    Ok(())
}

fn manifest(layout: &Path, mut reference: Option<&str>) -> Result<ImageManifest> {
    let mut path = layout.join("index.json");
    let mut index: ImageIndex = json(&path, None)?;
    for _ in 0..MAX_NESTED {
        // A name is of the layout's own index: one inside of it holds an image for each kind of machine.
        let chosen = choose(&path, &index, reference.take())?.clone();
        path = blob(layout, &chosen)?;
        if !is_index(&chosen) {
            return json(&path, Some(&chosen));
        }
        index = json(&path, Some(&chosen))?;
    }
    Err(bad(&path, "too many indexes inside of each other"))
}

fn is_index(d: &Descriptor) -> bool {
    let name: &str = d.media_type().as_ref();
    *d.media_type() == MediaType::ImageIndex || name == DOCKER_INDEX
}

/// The manifest that is meant: of those with the name, or of all without one, the only one, or the only one for Linux
/// on this kind of machine.
fn choose<'i>(path: &Path, index: &'i ImageIndex, reference: Option<&str>) -> Result<&'i Descriptor> {
    const NAME: &str = "org.opencontainers.image.ref.name";
    let is_named = |d: &&Descriptor| {
        let name = d.annotations().as_ref().and_then(|a| a.get(NAME));
        reference.is_none_or(|r| name.is_some_and(|n| n == r))
    };
    let all: Vec<&Descriptor> = index.manifests().iter().filter(is_named).collect();
    let here = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let fits = |d: &&&Descriptor| {
        d.platform().as_ref().is_some_and(|p| p.os().to_string() == "linux" && p.architecture().to_string() == here)
    };
    match (all.as_slice(), reference) {
        ([], Some(name)) => Err(bad(path, format!("the layout has no image with the reference {name}"))),
        ([], None) => Err(bad(path, "the layout has no image")),
        ([one], _) => Ok(*one),
        (several, _) => {
            let fitting: Vec<_> = several.iter().filter(fits).collect();
            match (fitting.as_slice(), reference) {
                ([one], _) => Ok(**one),
                (_, None) => Err(bad(path, "the layout has several images: name one by its reference")),
                (_, Some(name)) => Err(bad(path, format!("the layout has several images with the reference {name}"))),
            }
        }
    }
}

/// The file of a blob.
fn blob(layout: &Path, d: &Descriptor) -> Result<PathBuf> {
    let digest = d.digest().to_string();
    let hex = digest.strip_prefix("sha256:").filter(|h| h.len() == 64 && h.bytes().all(|b| b.is_ascii_hexdigit()));
    let hex = hex.ok_or_else(|| bad(layout, format!("{digest} is no SHA-256 digest")))?;
    Ok(layout.join("blobs/sha256").join(hex))
}

fn json<T: serde::de::DeserializeOwned>(path: &Path, d: Option<&Descriptor>) -> Result<T> {
    let file = File::open(path).map_err(|e| Error::host(path, &e))?;
    let mut bytes = Vec::new();
    file.take(MAX_JSON).read_to_end(&mut bytes).map_err(|e| Error::host(path, &e))?;
    if let Some(d) = d {
        check(path, d, Sha256::new_with_prefix(&bytes))?;
    }
    serde_json::from_slice(&bytes).map_err(|e| bad(path, format!("malformed: {e}")))
}

fn check(path: &Path, d: &Descriptor, hash: Sha256) -> Result<()> {
    let hex: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    let fits = d.digest().to_string().eq_ignore_ascii_case(&format!("sha256:{hex}"));
    if fits { Ok(()) } else { Err(bad(path, "the contents do not fit their digest")) }
}

/// A file whose bytes are summed as they are read.
struct Hashed {
    file: File,
    hash: Sha256,
}

impl Read for Hashed {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read(buf)?;
        self.hash.update(&buf[..n]);
        Ok(n)
    }
}
