//! Two trees compared: everything that a user can see of every entry, to the nanosecond.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// What is seen of one entry. Access times are not compared: looking changes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub kind: &'static str,
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u64,
    pub size: u64,
    /// In units of 512 bytes; compared when both sides say. While data awaits its allocation the number is not settled.
    pub blocks: Option<u64>,
    pub device: u64,
    /// Modified and changed: seconds, nanoseconds.
    pub times: [(i64, i64); 2],
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Hash of a file's bytes.
    pub content: u64,
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// The first path that led to the same inode.
    pub same_as: PathBuf,
}

/// A tree by path.
pub type Tree = BTreeMap<PathBuf, Seen>;

/// Looks at everything below `root`, and at `root` itself (as the empty path), except a `lost+found` in it.
pub fn look(root: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut first: HashMap<u64, PathBuf> = HashMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        let full = if path.as_os_str().is_empty() { root.to_owned() } else { root.join(&path) };
        let meta = fs::symlink_metadata(&full).with_context(|| format!("lstat {}", full.display()))?;
        if meta.is_dir() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&full).with_context(|| format!("readdir {}", full.display()))? {
                let entry = entry.with_context(|| format!("readdir {}", full.display()))?;
                let kind = entry.file_type().with_context(|| format!("d_type {}", full.display()))?;
                names.push((entry.file_name(), kind, entry.metadata()?.ino()));
            }
            names.sort_by(|a, b| b.0.cmp(&a.0));
            ensure!(names.windows(2).all(|two| two[0].0 != two[1].0), "a name twice in {}", full.display());
            todo.extend(
                names.into_iter().map(|(name, ..)| path.join(name)).filter(|path| path.as_os_str() != "lost+found"),
            );
        }
        let same_as = first.entry(meta.ino()).or_insert_with(|| path.clone()).clone();
        tree.insert(path, see(&full, &meta, same_as)?);
    }
    Ok(tree)
}

/// `look` at a mount that was just written to: the numbers of blocks are left out.
pub fn look_unsettled(root: &Path) -> Result<Tree> {
    let mut tree = look(root)?;
    tree.values_mut().for_each(|seen| seen.blocks = None);
    Ok(tree)
}

fn see(full: &Path, meta: &fs::Metadata, same_as: PathBuf) -> Result<Seen> {
    let kind = meta.file_type();
    let name = match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () if kind.is_block_device() => "block device",
        () => bail!("{} is of no known type", full.display()),
    };
    Ok(Seen {
        kind: name,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        links: meta.nlink(),
        size: meta.size(),
        blocks: Some(meta.blocks()),
        device: if kind.is_char_device() || kind.is_block_device() { meta.rdev() } else { 0 },
        times: [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())],
        target: if kind.is_symlink() { fs::read_link(full)?.as_os_str().as_bytes().to_vec() } else { Vec::new() },
        content: if kind.is_file() { hash(full).with_context(|| format!("read {}", full.display()))? } else { 0 },
        attributes: attributes(full).with_context(|| format!("xattrs of {}", full.display()))?,
        same_as,
    })
}

fn hash(path: &Path) -> Result<u64> {
    let mut file = File::open(path)?;
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut total = 0_u64;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hasher.write(&buffer[..n]);
        total += n as u64;
    }
    ensure!(total == file.metadata()?.len(), "{total} bytes read of {}", file.metadata()?.len());
    Ok(hasher.finish())
}

fn attributes(path: &Path) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; 64 * 1024];
    let len = match rustix::fs::llistxattr(path, &mut names) {
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let mut found = Vec::new();
    let mut value = vec![0; 64 * 1024];
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let len = rustix::fs::lgetxattr(path, name, &mut value)?;
        found.push((name.to_vec(), value[..len].to_vec()));
    }
    found.sort();
    Ok(found)
}

/// The differences between two trees, one line each, at most `limit`; empty when they are the same.
#[must_use]
pub fn differences(left: &Tree, right: &Tree, limit: usize) -> Vec<String> {
    let mut found = Vec::new();
    for path in left.keys().chain(right.keys().filter(|path| !left.contains_key(*path))) {
        if found.len() >= limit {
            break;
        }
        match (left.get(path), right.get(path)) {
            (Some(l), Some(r)) => {
                let differ = fields(l, r);
                if !differ.is_empty() {
                    found.push(format!("{}: {}", path.display(), differ.join("; ")));
                }
            }
            (Some(_), None) => found.push(format!("{}: only in the first", path.display())),
            (None, _) => found.push(format!("{}: only in the second", path.display())),
        }
    }
    found
}

fn fields(l: &Seen, r: &Seen) -> Vec<String> {
    let mut differ = Vec::new();
    macro_rules! field {
        ($($name:ident),*) => { $(if l.$name != r.$name {
            differ.push(format!("{} {:?} / {:?}", stringify!($name), l.$name, r.$name));
        })* };
    }
    field!(kind, mode, owner, links, size, device, times, target, content, attributes, same_as);
    if l.blocks.is_some() && r.blocks.is_some() {
        field!(blocks);
    }
    differ
}

/// An error that shows the differences, when there are any.
pub fn ensure_same(what: &str, left: &Tree, right: &Tree) -> Result<()> {
    let found = differences(left, right, 20);
    ensure!(
        found.is_empty(),
        "{what}: the trees differ ({} and {} entries):\n{}",
        left.len(),
        right.len(),
        found.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "one").unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("s")).unwrap();
        let before = look(dir.path()).unwrap();
        assert_eq!(before.len(), 4);
        assert!(differences(&before, &look(dir.path()).unwrap(), 9).is_empty());
        fs::write(dir.path().join("a"), "two").unwrap();
        assert!(differences(&before, &look(dir.path()).unwrap(), 9)[0].contains("content"));
        fs::hard_link(dir.path().join("a"), dir.path().join("d/b")).unwrap();
        let after = look(dir.path()).unwrap();
        assert_eq!(after[Path::new("d/b")].same_as, Path::new("a"));
        assert!(differences(&before, &after, 9).iter().any(|line| line.contains("only in the second")));
    }
}
