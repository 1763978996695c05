//! A new image from a tree: formatted, filled, and given its name when it is complete.
//!
//! *Guarantees* I3: until the image is complete and durable it has a temporary name; a build that fails or is killed
//! leaves what had the name before. I4: the same tree, UUID and time give the same bytes.

use super::import::{Imported, import_into};
use super::options::ImportOptions;
use super::size::{Needs, Sizer};
use super::source::Source;
use crate::create::CreateOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileSystem;
use crate::new_file::NewFile;
use quire_layout::BlockSize;
use quire_layout::features::compat;
use quire_layout::superblock::{self, Superblock};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::NamedTempFile;

/// Bytes of a block.
const BLOCK: u32 = 4096;
/// Blocks of the smallest image that `mke2fs` gives a journal.
const MIN_JOURNALED_BLOCKS: u64 = 2048;
/// Bytes of memory for a build: with less, large directories are written out again and again.
const CACHE_BYTES: u64 = 256 << 20;
/// Inodes that the file system itself has.
const OWN_INODES: u64 = 16;
/// Images that are formatted to find the smallest size: each comes closer, three are usual.
const MAX_ROUNDS: usize = 12;
/// Blocks of an image that `mke2fs` formats whatever its features; a refusal has other reasons then.
const ENOUGH_BLOCKS: u64 = 16_384;
/// How often a build begins again, larger, because fragmentation took more than was counted.
const MAX_BUILDS: usize = 4;

/// How large a new image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Size {
    Bytes(u64),
    /// As small as the tree allows, within a few blocks, and this much more of what the tree takes, in percent.
    Min {
        percent: u32,
    },
}

impl Size {
    /// The size that `min` or `min+20%` names. `None`: neither.
    #[must_use]
    pub fn from_min(text: &str) -> Option<Size> {
        let percent = match text.strip_prefix("min")? {
            "" => 0,
            more => more.strip_prefix('+')?.strip_suffix('%')?.parse().ok()?,
        };
        Some(Size::Min { percent })
    }
}

/// How an image is built.
#[derive(Clone, Debug)]
#[must_use]
pub struct BuildOptions {
    pub size: Size,
    pub create: CreateOptions,
    pub import: ImportOptions,
}

/// Builds an image at `path`, from a tree or empty. An image that had the name is replaced when the new one is
/// complete, and locked until then. A directory that is read may have the image in it: it is left out.
///
/// # Errors
/// Those of [`CreateOptions::create`] and [`import`](super::import). Busy: the image that is to be replaced is in use.
/// Exists: what has the name is no regular file. No space: the tree does not fit. Invalid input: the image is too small
/// for a journal, and the feature `^has_journal` was not asked for.
pub fn build(path: impl AsRef<Path>, source: Option<Source>, options: &BuildOptions) -> Result<Imported> {
    let path = path.as_ref();
    options.import.check()?;
    let new = NewFile::image(path, 0o666)?;
    let at = new.temporary_path();
    let import = options.import.telling_anew().leave_out(path).leave_out(at);
    let options = &BuildOptions { import, create: options.create.clone(), size: options.size };
    let done = match (options.size, source) {
        (Size::Bytes(bytes), source) => fill(at, source, &options.create.clone().size(bytes), &options.import),
        (Size::Min { percent }, source) => smallest(at, source, percent, options),
    };
    let done = done.map_err(|e| new.named(e))?;
    new.finish_durably()?;
    Ok(done)
}

fn fill(path: &Path, source: Option<Source>, create: &CreateOptions, import: &ImportOptions) -> Result<Imported> {
    format_with_journal(path, create)?;
    let Some(mut source) = source else { return Ok(Imported::default()) };
    fill_from(path, &mut source, create, import)
}

/// Formats an image, and fails where `mke2fs` would go on without a journal: changes of such an image are not whole
/// after a crash.
fn format_with_journal(path: &Path, create: &CreateOptions) -> Result<()> {
    if !create.wants_journal() {
        return create.format(path);
    }
    let too_small = |block: BlockSize| {
        let mib = (MIN_JOURNALED_BLOCKS * block.bytes64()) >> 20;
        let why = format!("too small for a journal, which needs {mib} MiB; -O ^has_journal does without");
        Err(Error::new(ErrorKind::InvalidInput, why).at(path))
    };
    // Of a very small image `mke2fs` would say something else.
    if create.bytes() < MIN_JOURNALED_BLOCKS * BlockSize::K1.bytes64() {
        return too_small(BlockSize::K1);
    }
    create.format(path)?;
    let mut raw = vec![0; superblock::SIZE];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut raw, superblock::OFFSET));
    read.map_err(|e| Error::host(path, &e))?;
    match Superblock::decode(&raw) {
        Ok(sb) if !sb.features().has_compat(compat::HAS_JOURNAL) => too_small(sb.block_size()),
        _ => Ok(()),
    }
}

fn fill_from(path: &Path, source: &mut Source, create: &CreateOptions, import: &ImportOptions) -> Result<Imported> {
    let fs = create.open_options().without_journal().cache_size(CACHE_BYTES).open(path)?;
    let done = import_into(&fs.root(), source, import)?;
    fs.close()?;
    Ok(done)
}

/// The smallest image that holds the tree.
fn smallest(path: &Path, source: Option<Source>, percent: u32, options: &BuildOptions) -> Result<Imported> {
    let mut sizer = Sizer::new(BLOCK.into(), options.import.watch.clone());
    // A stream is read twice.
    let dir = path.parent().unwrap_or(Path::new("."));
    let (mut source, spool) = match source {
        Some(Source::Stream(stream)) => (None, Some(spooled(stream, dir)?)),
        other => (other, None),
    };
    // A stream again, because an error must not name the file.
    let again = || -> Result<Option<Source>> {
        let reopened = spool.as_ref().map(|file| file.reopen().map_err(|e| Error::host(dir, &e))).transpose()?;
        Ok(reopened.map(|file| Source::Stream(Box::new(file))))
    };
    source = again()?.or(source);
    if let Some(source) = &mut source {
        source.read(&options.import, &mut sizer)?;
    }
    let mut needs = sizer.needs();
    for attempt in 1.. {
        let wanted = Needs { blocks: with(needs.blocks, percent), inodes: with(needs.inodes, percent) };
        let create = sized(path, wanted, &options.create)?;
        source = again()?.or(source);
        let Some(source) = &mut source else { return Ok(Imported::default()) };
        match fill_from(path, source, &create, &options.import) {
            Err(e) if e.kind() == ErrorKind::NoSpace && attempt < MAX_BUILDS => {
                needs.blocks += needs.blocks / 50 + 16;
                needs.inodes += needs.inodes / 50 + 16;
            }
            other => return other,
        }
    }
    unreachable!("the last attempt returns")
}

/// A stream as a file that goes when it is closed.
fn spooled(mut stream: Box<dyn Read + Send>, dir: &Path) -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(dir).map_err(|e| Error::host(dir, &e))?;
    let copied = std::io::copy(&mut stream, &mut file);
    copied.map_err(|e| Error::of_stream("the archive cannot be copied", e).of_host(dir))?;
    Ok(file)
}

fn with(n: u64, percent: u32) -> u64 {
    n + (n * u64::from(percent)).div_ceil(100)
}

/// Formats an image that has room for `needs` and hardly more: at most `slack` blocks above the smallest,
/// unless the rounds are used up.
fn sized(path: &Path, needs: Needs, create: &CreateOptions) -> Result<CreateOptions> {
    let create = create.clone().block_size(BLOCK).inode_size(256).reserved_percent(0);
    let create = create.inodes(needs.inodes + OWN_INODES);
    let slack = needs.blocks / 200 + 4;
    // Blocks to spare; `None`: it does not fit, or `mke2fs` finds it too small for its own structures.
    let spare = |blocks: u64| match free_blocks(path, &create, blocks) {
        Ok(free) => Ok(free.and_then(|free| free.checked_sub(needs.blocks))),
        Err(e) if e.kind() == ErrorKind::Tool && blocks < needs.blocks * 4 + ENOUGH_BLOCKS => Ok(None),
        Err(e) => Err(e),
    };
    // What the file system takes itself: descriptors, bitmaps, inode tables, the journal.
    let mut too_small = needs.blocks;
    let mut blocks = needs.blocks + needs.blocks / 16 + needs.inodes / 16 + 1200;
    let mut left = loop {
        match spare(blocks)? {
            Some(left) => break left,
            None => (too_small, blocks) = (blocks, blocks + blocks / 4),
        }
    };
    for round in 0..MAX_ROUNDS {
        if left <= slack || blocks - too_small <= slack {
            break;
        }
        // What is left could go; but a journal and descriptors grow in steps, so every other guess is the middle.
        let guess = if round % 2 == 0 { blocks - left + slack / 2 } else { too_small.midpoint(blocks) };
        let guess = guess.clamp(too_small + 1, blocks - 1);
        match spare(guess)? {
            Some(more) => (blocks, left) = (guess, more),
            None => too_small = guess,
        }
    }
    let create = create.size(blocks * u64::from(BLOCK));
    create.format(path)?;
    Ok(create)
}

/// The blocks that an image has for files. `None`: it is too small for the journal that it is to have.
fn free_blocks(path: &Path, create: &CreateOptions, blocks: u64) -> Result<Option<u64>> {
    create.clone().size(blocks * u64::from(BLOCK)).format(path)?;
    let fs: FileSystem = create.open_options().read_only(true).open(path)?;
    let complete = fs.info().journal || !create.wants_journal();
    let available = fs.usage()?.available_blocks;
    Ok(complete.then_some(available))
}
