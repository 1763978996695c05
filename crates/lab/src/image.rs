//! Images: made with mke2fs, judged by e2fsck, compared block by block.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use quire_layout::Ino;
use quire_layout::features::{incompat, ro_compat};
use quire_layout::superblock::{self, Superblock};

use crate::cmd::{command, quire, run, say, text};

/// Bytes of the superblock that two recoveries may leave different: `s_wtime` (0x30), `s_lastcheck` (0x40),
/// `s_kbytes_written` (0x178) and the checksum over them (0x3FC).
const MASKED: [(u64, usize); 4] = [(0x30, 4), (0x40, 4), (0x178, 8), (0x3FC, 4)];
const SUPERBLOCK_AT: u64 = 1024;
const CHUNK: usize = 64 * 1024;

/// An image file.
#[derive(Debug, Clone)]
pub struct Image {
    path: PathBuf,
}

impl Image {
    /// Makes a sparse image of `size` bytes with mke2fs and its `args`; its root belongs to the caller.
    pub fn make(path: &Path, size: u64, args: &[&str]) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        file.set_len(size)?;
        drop(file);
        let owner = format!("root_owner={}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let kind: &[&str] = if args.contains(&"-t") { &[] } else { &["-t", "ext4"] };
        run(command("mke2fs").args(["-q", "-F", "-E", &owner]).args(kind).args(args).arg(path))?;
        Ok(Self { path: path.to_owned() })
    }

    /// An image that exists.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A sparse copy beside it.
    pub fn copy(&self, name: &str) -> Result<Self> {
        let path = self.path.with_file_name(name);
        run(command("cp").args(["--sparse=always", "--reflink=auto"]).arg(&self.path).arg(&path))?;
        Ok(Self { path })
    }

    /// Deletes the file.
    pub fn remove(self) -> Result<()> {
        Ok(fs::remove_file(&self.path)?)
    }

    /// `e2fsck -fn` finds nothing: exit code 0, and no journal left to be skipped.
    pub fn check_clean(&self) -> Result<()> {
        let said = say(command("e2fsck").arg("-fn").arg(&self.path))?;
        // Wrong summary counts alone do not change the exit code. What could be narrower is not wrong.
        let complaint = said.text.lines().any(|line| {
            let asked = line.ends_with("? no") && !line.ends_with("Optimize? no");
            asked || line.contains("skipping journal recovery") || line.contains("IGNORED")
        });
        if said.code != 0 || complaint {
            bail!("e2fsck -fn {} is not clean (exit code {}):\n{}", self.path.display(), said.code, said.text);
        }
        Ok(())
    }

    /// True if it has to be recovered from a log of Quire's, which other tools refuse.
    pub fn holds_quires_log(&self) -> Result<bool> {
        Ok(self.superblock()?.features().has_incompat(incompat::QUIRE_LOG))
    }

    /// It may be torn between its sectors.
    fn superblock(&self) -> Result<Superblock> {
        let mut raw = vec![0; superblock::SIZE];
        File::open(&self.path)?.read_exact_at(&mut raw, superblock::OFFSET)?;
        Ok(Superblock::decode_unverified(&raw)?)
    }

    /// Replays the journal with e2fsck. Exit codes 0 and 1 (changed) are success. True when it did just that: it also
    /// clears the orphans that it finds then, and gives up fast commits that it does not understand, with exit code 0.
    pub fn replay_with_e2fsck(&self) -> Result<bool> {
        let said = say(command("e2fsck").args(["-y", "-E", "journal_only"]).arg(&self.path))?;
        ensure!(said.code <= 1, "e2fsck -E journal_only exited with {}:\n{}", said.code, said.text);
        Ok(!said.text.contains("orphan") && !said.text.contains("while recovering journal"))
    }

    /// `quire recover` with `options`. Exit codes as fsck(8): 0 and 1 (recovered) are success; 4 is, too, of a dry run.
    pub fn recover_with_quire(&self, options: &[&str]) -> Result<()> {
        let mut recover = Command::new(quire()?);
        let said = say(recover.arg("recover").args(options).arg(&self.path))?;
        let fine = said.code <= 1 || (said.code == 4 && options.contains(&"--dry-run"));
        ensure!(fine, "{recover:?} exited with {}:\n{}", said.code, said.text);
        Ok(())
    }

    /// Runs debugfs requests; `-w` when `write`.
    pub fn debugfs(&self, write: bool, requests: &[String]) -> Result<String> {
        let script = self.path.with_extension("debugfs");
        fs::write(&script, requests.join("\n") + "\n")?;
        let mut debugfs = command("debugfs");
        if write {
            debugfs.arg("-w");
        }
        let said = run(debugfs.arg("-f").arg(&script).arg(&self.path));
        fs::remove_file(&script)?;
        said
    }

    /// Whether the superblock asks for recovery (INCOMPAT_RECOVER, 0x4 at 0x60 of the superblock).
    pub fn needs_recovery(&self) -> Result<bool> {
        let mut word = [0; 4];
        File::open(&self.path)?.read_exact_at(&mut word, SUPERBLOCK_AT + 0x60)?;
        Ok(u32::from_le_bytes(word) & 0x4 != 0)
    }

    /// Whether inodes wait to be freed.
    pub fn has_orphans(&self) -> Result<bool> {
        let sb = self.superblock()?;
        Ok(sb.last_orphan() != Ino(0) || sb.features().has_ro_compat(ro_compat::ORPHAN_PRESENT))
    }

    /// Bytes per block, from s_log_block_size.
    pub fn block_size(&self) -> Result<u64> {
        let mut word = [0; 4];
        File::open(&self.path)?.read_exact_at(&mut word, SUPERBLOCK_AT + 0x18)?;
        let log = u32::from_le_bytes(word);
        ensure!(log <= 6, "{} has no ext4 superblock", self.path.display());
        Ok(1024 << log)
    }

    /// Compares byte by byte outside the masked fields of the superblock; `ignore` lists blocks that may differ.
    /// Returns the numbers of the blocks that differ, at most 20.
    pub fn differing_blocks(&self, other: &Self, ignore: &[u64]) -> Result<Vec<u64>> {
        let (left, right) = (File::open(&self.path)?, File::open(&other.path)?);
        let size = left.metadata()?.len();
        ensure!(size == right.metadata()?.len(), "{} and {} have different sizes", text(&self.path), text(&other.path));
        let block = self.block_size()?;
        let mut found = Vec::new();
        let (mut a, mut b) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut at = 0;
        while at < size && found.len() < 20 {
            // Where both are holes nothing can differ.
            let next = next_data(&left, at, size).min(next_data(&right, at, size)) / CHUNK as u64 * CHUNK as u64;
            at = at.max(next);
            if at >= size {
                break;
            }
            let len = CHUNK.min(usize::try_from(size - at).unwrap_or(CHUNK));
            left.read_exact_at(&mut a[..len], at)?;
            right.read_exact_at(&mut b[..len], at)?;
            if at == 0 {
                mask(&mut a);
                mask(&mut b);
            }
            if a[..len] != b[..len] {
                let step = usize::try_from(block)?.min(len);
                let differ = a[..len].chunks(step).zip(b[..len].chunks(step)).enumerate().filter(|(_, (x, y))| x != y);
                found.extend(differ.map(|(i, _)| at / block + i as u64).filter(|n| !ignore.contains(n)));
            }
            at += len as u64;
        }
        Ok(found)
    }

    /// Numbers of the blocks of the journal inode (8), data and extent blocks.
    pub fn journal_blocks(&self) -> Result<Vec<u64>> {
        let said = self.debugfs(false, &["blocks <8>".into()])?;
        Ok(said.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    }
}

fn mask(first: &mut [u8]) {
    for (at, len) in MASKED {
        let from = usize::try_from(SUPERBLOCK_AT + at).expect("in the first chunk");
        first[from..from + len].fill(0);
    }
}

fn next_data(file: &File, at: u64, size: u64) -> u64 {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)).unwrap_or(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_block_is_found_and_a_masked_field_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let a = Image::make(&dir.path().join("a.img"), 8 << 20, &["-b", "1024"]).unwrap();
        a.check_clean().unwrap();
        let b = a.copy("b.img").unwrap();
        assert!(a.differing_blocks(&b, &[]).unwrap().is_empty());
        let file = File::options().write(true).open(b.path()).unwrap();
        file.write_all_at(&[0xff; 4], SUPERBLOCK_AT + 0x30).unwrap();
        assert!(a.differing_blocks(&b, &[]).unwrap().is_empty());
        file.write_all_at(&[0xff], 5000 * 1024 + 7).unwrap();
        assert_eq!(a.differing_blocks(&b, &[]).unwrap(), [5000]);
        assert!(a.differing_blocks(&b, &[5000]).unwrap().is_empty());
        file.write_all_at(&[0xff], SUPERBLOCK_AT + 0x0c).unwrap();
        assert!(b.check_clean().is_err());
    }
}
