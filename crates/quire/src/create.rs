//! New images: formatted by `mke2fs`.

use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileSystem;
use crate::metadata::{Timestamp, check_owner};
use crate::new_file::NewFile;
use crate::options::OpenOptions;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of a volume's name.
pub const MAX_LABEL_BYTES: usize = 16;
/// Bytes of the smallest image: `lost+found` alone takes three quarters of it.
const MIN_BYTES: u64 = 16 << 10;

/// How to make a new image: a builder. The format is made by `mke2fs` of e2fsprogs, which has to be installed.
///
/// ```
/// use quire::CreateOptions;
/// let fs = CreateOptions::new().size(16 << 20).label("rootfs").in_memory()?;
/// assert_eq!(fs.info().label, "rootfs");
/// # Ok::<(), quire::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct CreateOptions {
    size: u64,
    label: Option<String>,
    uuid: Option<[u8; 16]>,
    features: Vec<String>,
    block_size: Option<u32>,
    inodes: Option<u64>,
    inode_size: Option<u32>,
    journal_blocks: Option<u64>,
    reserved_percent: Option<u8>,
    root_owner: (u32, u32),
    time: Option<Timestamp>,
}

impl CreateOptions {
    pub fn new() -> Self {
        CreateOptions::default()
    }

    /// The size of the image, in bytes. It has to be set.
    pub fn size(self, bytes: u64) -> Self {
        CreateOptions { size: bytes, ..self }
    }

    /// The volume's name, of at most 16 bytes.
    pub fn label(self, label: impl Into<String>) -> Self {
        CreateOptions { label: Some(label.into()), ..self }
    }

    /// The UUID; a random one if not set.
    pub fn uuid(self, uuid: [u8; 16]) -> Self {
        CreateOptions { uuid: Some(uuid), ..self }
    }

    /// A feature to turn on, or with `^` in front, off: as `mke2fs -O` has it. May be called again.
    pub fn feature(mut self, name: impl Into<String>) -> Self {
        self.features.push(name.into());
        self
    }

    /// Bytes in a block: 1024, 2048 or 4096.
    pub fn block_size(self, bytes: u32) -> Self {
        CreateOptions { block_size: Some(bytes), ..self }
    }

    /// How many inodes there are at least.
    pub fn inodes(self, n: u64) -> Self {
        CreateOptions { inodes: Some(n), ..self }
    }

    /// Bytes in an inode.
    pub fn inode_size(self, bytes: u32) -> Self {
        CreateOptions { inode_size: Some(bytes), ..self }
    }

    /// The size of the journal, in blocks; as `mke2fs` likes if not set.
    pub fn journal_blocks(self, blocks: u64) -> Self {
        CreateOptions { journal_blocks: Some(blocks), ..self }
    }

    /// Space that is kept for root, in percent; 5 if not set.
    pub fn reserved_percent(self, percent: u8) -> Self {
        CreateOptions { reserved_percent: Some(percent), ..self }
    }

    /// Owner and group of the root directory; root if not set.
    pub fn root_owner(self, uid: u32, gid: u32) -> Self {
        CreateOptions { root_owner: (uid, gid), ..self }
    }

    /// The time in the superblock and of the root directory, instead of the clock's. With it and a UUID, the same image
    /// is made again byte by byte.
    pub fn time(self, t: Timestamp) -> Self {
        CreateOptions { time: Some(t), ..self }
    }

    /// Makes an image file and opens it. A file that exists is replaced when the new image is complete: if there is
    /// none, it stays.
    ///
    /// # Errors
    /// Busy: an image of this name is in use. Exists: what has the name is no regular file. Invalid input: the label is
    /// too long. Tool: `mke2fs` is missing or refuses. Otherwise as [`FileSystem::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<FileSystem> {
        let new = NewFile::image(path.as_ref(), 0o666)?;
        self.format(new.temporary_path()).map_err(|e| new.named(e))?;
        new.finish()?;
        self.open_options().open(path)
    }

    /// Makes an image in memory; [`FileSystem::into_bytes`] returns it.
    ///
    /// # Errors
    /// As [`CreateOptions::create`].
    pub fn in_memory(&self) -> Result<FileSystem> {
        let file = tempfile::NamedTempFile::new().map_err(|e| Error::host(std::env::temp_dir(), &e))?;
        self.format(file.path())?;
        let bytes = std::fs::read(file.path()).map_err(|e| Error::host(file.path(), &e))?;
        self.open_options().open_bytes(bytes)
    }

    /// False if the journal was turned off, as `mke2fs -O` reads the features.
    #[cfg(feature = "archive")]
    pub(crate) fn wants_journal(&self) -> bool {
        let said = self.features.iter().flat_map(|f| f.split(',')).rev().find_map(|f| match f {
            "has_journal" | "+has_journal" => Some(true),
            "^has_journal" | "-has_journal" | "none" | "journal_dev" => Some(false),
            _ => None,
        });
        said.unwrap_or(true)
    }

    /// The size of the image.
    #[cfg(feature = "archive")]
    pub(crate) fn bytes(&self) -> u64 {
        self.size
    }

    pub(crate) fn open_options(&self) -> OpenOptions {
        let options = OpenOptions::new();
        self.time.map_or(options.clone(), |t| options.time(t))
    }

    /// Makes an image in a file of this name, whatever was in it.
    ///
    /// # Errors
    /// Invalid input: the label is too long, the root has no such owner, or no file system or file has this size. Tool:
    /// `mke2fs` is missing or refuses. No space; permission denied.
    pub fn format(&self, path: &Path) -> Result<()> {
        let bad_size = |why| Err(Error::new(ErrorKind::InvalidInput, why).at(path));
        if self.size < MIN_BYTES {
            return bad_size("too small for an ext4 file system");
        }
        if i64::try_from(self.size).is_err() {
            return bad_size("no file can be so large");
        }
        if self.label.as_ref().is_some_and(|label| label.len() > MAX_LABEL_BYTES) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("a label has at most {MAX_LABEL_BYTES} bytes")));
        }
        check_owner(Some(self.root_owner.0), Some(self.root_owner.1))?;
        let file = std::fs::File::create(path).map_err(|e| Error::host(path, &e))?;
        file.set_len(self.size).map_err(|e| Error::host(path, &e))?;
        drop(file);
        let mut command = tool("mke2fs");
        command.args(["-q", "-F", "-t", "ext4"]).args(self.arguments()).arg(path);
        if let Some(t) = self.time {
            // 1.47.0 knows the first, later ones the second.
            let secs = t.secs.max(1).to_string();
            command.env("E2FSPROGS_FAKE_TIME", &secs).env("SOURCE_DATE_EPOCH", &secs);
        }
        // Its own messages begin with the path, which may be a temporary one.
        let own = format!("{}: ", path.display());
        let done = run(command, "mke2fs").map(drop);
        done.map_err(|e| {
            let said = e.to_string().replace(&own, "");
            // It runs out of blocks, or of the few inodes that it gives a small image.
            let is_small = ["Not enough space to build", "Illegal inode number"].iter().any(|why| said.contains(why));
            let what = if is_small { "too small for an ext4 file system: " } else { "" };
            Error::new(e.kind(), format!("{what}{said}")).at(path)
        })
    }

    fn arguments(&self) -> Vec<OsString> {
        let mut args: Vec<String> = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                args.extend([name.to_owned(), value]);
            }
        };
        option("-L", self.label.clone());
        option("-b", self.block_size.map(|b| b.to_string()));
        option("-N", self.inodes.map(|n| n.to_string()));
        option("-I", self.inode_size.map(|n| n.to_string()));
        option("-m", self.reserved_percent.map(|p| p.to_string()));
        let features = self.features.join(",");
        option("-O", (!features.is_empty()).then_some(features));
        // In units of 1024 blocks, or of MiB with blocks of 1 KiB; `mke2fs` takes MiB.
        let mib = |blocks: u64| (blocks * u64::from(self.block_size.unwrap_or(4096))).div_ceil(1 << 20);
        option("-J", self.journal_blocks.map(|b| format!("size={}", mib(b).max(1))));
        let (uid, gid) = self.root_owner;
        let mut extended = format!("root_owner={uid}:{gid},lazy_itable_init=1,nodiscard");
        if let Some(uuid) = self.uuid {
            let uuid = uuid_text(&uuid);
            extended.push_str(&format!(",hash_seed={uuid}"));
            option("-U", Some(uuid));
        }
        option("-E", Some(extended));
        args.into_iter().map(OsString::from).collect()
    }
}

/// A UUID as it is written.
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// A UUID from 32 hexadecimal digits, with or without dashes. `None`: it is none.
#[must_use]
pub fn uuid_from_text(text: &str) -> Option<[u8; 16]> {
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    let digits = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u128::from_str_radix(&hex, 16).ok()).flatten().map(u128::to_be_bytes)
}

/// A program of e2fsprogs, which users may not have in their path.
pub(crate) fn tool(name: &str) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).chain(more).collect();
    let found = dirs.iter().map(|d| d.join(name)).find(|p| p.is_file());
    let mut command = Command::new(found.unwrap_or_else(|| name.into()));
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Why a program has failed, in its words: some say it on standard output.
fn reason(out: &std::process::Output) -> String {
    let words = |text: &[u8]| String::from_utf8_lossy(text).trim().replace('\n', "; ");
    let said = [words(&out.stderr), words(&out.stdout)].into_iter().find(|said| !said.is_empty());
    said.unwrap_or_else(|| out.status.to_string())
}

/// Runs a program that must succeed.
pub(crate) fn run(mut command: Command, name: &str) -> Result<String> {
    let out = command.output().map_err(|e| {
        let missing = e.kind() == std::io::ErrorKind::NotFound;
        let hint = if missing { " (is e2fsprogs installed?)" } else { "" };
        Error::new(ErrorKind::Tool, format!("{name}: {e}{hint}"))
    })?;
    if !out.status.success() {
        return Err(Error::new(ErrorKind::Tool, format!("{name} failed: {}", reason(&out))));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
