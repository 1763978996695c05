//! Base images that need other hands than Quire's: filled by debugfs, or with a log on a device of its own.

use quire_device::sync::Arc;
use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, Io, Ticket};
use quire_layout::features::compat;
use quire_layout::superblock::Superblock;
use quire_testkit::run;
use std::fmt::Write;

pub(super) const FIXED: &[&str] =
    &["-U", "3e1f2b00-0000-4000-8000-00000000cafe", "-E", "hash_seed=3e1f2b00-0000-4000-8000-0000000000ff"];

/// Puts files, directories, links and attributes into an image: inline, in blocks and in inodes of their own, as the
/// image's features have it.
pub(super) fn fill_by_debugfs(image: &[u8], bigalloc: bool) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("utf-8").to_owned();
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(path(name), bytes).expect("write");
        path(name)
    };
    let image_path = file("image", image);
    let (tiny, small, large) =
        (file("tiny", &[b'y'; 40]), file("small", &[b's'; 140]), file("large", &vec![b'l'; 70_000]));
    let (short, long) = (file("short", b"value"), file("long", &vec![b'v'; 3000]));
    let mut script = format!("write {tiny} tiny\nwrite {small} small\nwrite {large} large\n");
    writeln!(script, "symlink fast {}\nsymlink slow {}", "x".repeat(30), "x".repeat(200)).expect("a string");
    writeln!(script, "mkdir empty\nmkdir few\nmkdir many\nmknod pipe p").expect("a string");
    for n in 0..3 {
        writeln!(script, "write {tiny} few/f{n}").expect("a string");
    }
    for n in 0..60 {
        writeln!(script, "write {small} many/{}{n}", "name".repeat(10)).expect("a string");
    }
    for name in ["tiny", "small", "large", "few", "many"] {
        writeln!(script, "ea_set -f {short} {name} user.short").expect("a string");
    }
    // More than fits: refused where attributes have no inodes of their own.
    writeln!(script, "ea_set -f {long} large user.long\nea_set -f {long} tiny user.long").expect("a string");
    if bigalloc {
        // Holes within clusters, and parts of clusters.
        writeln!(script, "punch large 1 1\npunch large 6 9\nfallocate tiny 5 6").expect("a string");
    }
    let script = file("script", script.as_bytes());
    run("debugfs", &["-w", "-f", &script, &image_path]);
    std::fs::read(image_path).expect("read")
}

/// An image without a log, tied to a log device; its bytes, and behind them the log's.
pub(super) fn with_external_log(image: &[u8]) -> Vec<u8> {
    let log = quire_testkit::mke2fs("1M", &["-O", "journal_dev", "-b", "1024", FIXED[0], FIXED[1]]);
    let mut all = [image, &log].concat();
    all.copy_within(image.len() + 1024 + 0x68..image.len() + 1024 + 0x78, 1024 + 0xD0);
    let mut sb = Superblock::decode_unverified(&all[1024..2048]).expect("a sound superblock");
    let mut f = sb.features();
    f.compat |= compat::HAS_JOURNAL;
    sb.set_features(f);
    sb.seal();
    all[1024..2048].copy_from_slice(sb.bytes());
    all
}

/// A range of bytes of a device.
pub(super) struct Part<D> {
    pub(super) whole: Arc<D>,
    pub(super) start: u64,
    pub(super) len: u64,
}

impl<D: BlockDevice> BlockDevice for Part<D> {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { size: self.len, ..self.whole.info() }
    }

    fn submit(&self, mut batch: Vec<Io>) -> Ticket {
        for io in &mut batch {
            let (from, len) = io.range();
            // What lies outside of the part is to lie outside of the whole.
            let inside = from.checked_add(len).is_some_and(|end| end <= self.len);
            let to = if inside { from + self.start } else { u64::MAX };
            match io {
                Io::Read { at, .. } | Io::Write { at, .. } | Io::Zero { at, .. } | Io::Discard { at, .. } => *at = to,
                Io::Flush => {}
            }
        }
        self.whole.submit(batch)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.whole.wait(ticket)
    }
}
