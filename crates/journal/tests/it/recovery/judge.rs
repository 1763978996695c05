//! The two recoveries, and how they are compared.

use quire_device::BlockDevice;
use quire_device::sync::{Arc, Mutex, lock};
use quire_journal::recover::{Plan, UnrecoveredLog, open_external};
use quire_journal::{Error, LogRun, geometry::LogGeometry};
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, BlockSize, LogBlock};
use quire_testkit::MemDevice;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use tempfile::NamedTempFile;

/// An image that needs recovery, and the journal's device if it has one.
#[derive(Clone)]
pub(crate) struct Dirty {
    pub(crate) image: Vec<u8>,
    pub(crate) external: Option<Vec<u8>>,
}

pub(crate) fn tool(name: &str, args: &[&str]) -> (Option<i32>, String) {
    // An ordinary user's PATH may lack where these tools are.
    let dirs = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let out = Command::new(name).args(args).env("PATH", dirs).stdin(Stdio::null()).output();
    let out = out.unwrap_or_else(|e| panic!("{name} (of e2fsprogs): {e}"));
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stdout).into_owned() + "\n" + &String::from_utf8_lossy(&out.stderr),
    )
}

pub(crate) fn path(f: &NamedTempFile) -> &str {
    f.path().to_str().unwrap()
}

pub(crate) fn to_file(bytes: &[u8]) -> NamedTempFile {
    let f = NamedTempFile::new().unwrap();
    f.as_file().set_len(bytes.len() as u64).unwrap();
    for (n, chunk) in (0u64..).zip(bytes.chunks(4096)).filter(|(_, c)| c.iter().any(|b| *b != 0)) {
        f.as_file().write_all_at(chunk, n * 4096).unwrap();
    }
    f
}

pub(crate) fn superblock(image: &[u8]) -> Superblock {
    Superblock::decode(&image[1024..]).unwrap()
}

/// The journal inode's map. Images with one UUID have one journal.
pub(crate) fn journal_runs(image: &[u8]) -> Vec<LogRun> {
    static KNOWN: Mutex<Option<HashMap<[u8; 16], Vec<LogRun>>>> = Mutex::new(None);
    let uuid = image[1024 + 0x68..1024 + 0x78].try_into().unwrap();
    if let Some(runs) = lock(&KNOWN).get_or_insert_default().get(&uuid) {
        return runs.clone();
    }
    let runs = ask_for_runs(path(&to_file(image)));
    lock(&KNOWN).get_or_insert_default().insert(uuid, runs.clone());
    runs
}

/// The journal inode's map, as debugfs tells it.
fn ask_for_runs(image: &str) -> Vec<LogRun> {
    let (_, said) = tool("debugfs", &["-R", "stat <8>", image]);
    let map = said.split_once("EXTENTS:").or_else(|| said.split_once("BLOCKS:")).expect("an inode with blocks").1;
    let map = map.split("TOTAL").next().unwrap().split("debugfs").next().unwrap().replace('\n', " ");
    let range = |s: &str| -> Option<(u64, u64)> {
        let (a, b) = s.split_once('-').unwrap_or((s, s));
        Some((a.trim().parse().ok()?, b.trim().parse().ok()?))
    };
    let pairs = map.split("(").filter_map(|p| p.split_once("):"));
    let runs = pairs.filter_map(|(file, disk)| {
        let ((first, last), (home, _)) = (range(file)?, range(disk.trim_matches([' ', ',']))?);
        let log = LogBlock(u32::try_from(first).unwrap());
        Some(LogRun { log, home: BlockNo(home), len: u32::try_from(last - first + 1).unwrap() })
    });
    runs.collect()
}

/// Our view of a dirty image: its devices, and its log.
pub(crate) struct Opened {
    pub(crate) home: Arc<dyn BlockDevice>,
    pub(crate) log: Result<UnrecoveredLog, Error>,
}

pub(crate) fn open_on(d: &Dirty, home: Arc<dyn BlockDevice>, external: Option<Arc<dyn BlockDevice>>) -> Opened {
    let sb = superblock(&d.image);
    let geometry = match external {
        Some(device) => open_external(device, sb.block_size(), sb.journal_uuid()),
        None => LogGeometry::internal(home.clone(), sb.block_size(), journal_runs(&d.image)),
    };
    Opened { home, log: geometry.and_then(UnrecoveredLog::open) }
}

/// What our recovery made of an image.
pub(crate) struct Ours {
    pub(crate) after: Dirty,
    /// The plan, or why there was none.
    pub(crate) plan: Result<Plan, Error>,
}

pub(crate) fn home_blocks(device: &dyn BlockDevice, bs: BlockSize) -> u64 {
    device.info().size >> bs.bits()
}

/// Recovers a copy with our code.
pub(crate) fn recover_with_ours(d: &Dirty) -> Ours {
    let home = Arc::new(MemDevice::new(d.image.clone()));
    let external = d.external.clone().map(|b| Arc::new(MemDevice::new(b)));
    let o = open_on(d, home.clone(), external.clone().map(|e| e as Arc<dyn BlockDevice>));
    let bs = superblock(&d.image).block_size();
    let plan = o.log.and_then(|log| {
        let plan = log.scan(home_blocks(&*home, bs), &mut |_| {})?;
        let mut clean = log.replay(plan.clone(), &o.home, None, &mut |_| {})?;
        clean.finish(&o.home)?;
        Ok(plan)
    });
    Ours { after: Dirty { image: home.snapshot(), external: external.map(|e| e.snapshot()) }, plan }
}

/// Recovers a copy with e2fsck. Also gives what it said.
pub(crate) fn recover_with_e2fsck(d: &Dirty) -> (Dirty, String) {
    let file = to_file(&d.image);
    let external = d.external.as_deref().map(to_file);
    let mut args = vec!["-y", "-E", "journal_only"];
    if let Some(e) = &external {
        args.extend(["-j", path(e)]);
    }
    args.push(path(&file));
    let (_, said) = tool("e2fsck", &args);
    let read = |f: &NamedTempFile| std::fs::read(f.path()).unwrap();
    (Dirty { image: read(&file), external: external.as_ref().map(read) }, said)
}

/// Byte ranges of the superblock that the two may set as they like: write time, last check, kilobytes written, and
/// the checksum over them (and the high bytes of the times).
const MASKED: [(usize, usize); 6] = [(0x30, 4), (0x40, 4), (0x178, 8), (0x274, 1), (0x277, 1), (0x3FC, 4)];

fn masked(image: &[u8]) -> Vec<u8> {
    let mut b = image.to_vec();
    for (at, len) in MASKED {
        b[1024 + at..1024 + at + len].fill(0);
    }
    b
}

/// The blocks in which two images differ outside the masked fields.
pub(crate) fn differing_blocks(a: &[u8], b: &[u8]) -> Vec<u64> {
    assert_eq!(a.len(), b.len());
    let bs = superblock(a).block_size().bytes();
    let (a, b) = (masked(a), masked(b));
    let blocks = a.chunks(bs).zip(b.chunks(bs)).enumerate();
    blocks.filter(|(_, (x, y))| x != y).map(|(n, _)| n as u64).collect()
}

/// Files that were deleted and not yet freed when the kernel stopped: e2fsck frees them in the same run, a replay does
/// not.
fn has_orphans(said: &str) -> bool {
    said.contains("Clearing orphaned inode")
}

pub(crate) fn assert_same(ours: &Dirty, theirs: &Dirty, said: &str) {
    if has_orphans(said) {
        println!("not compared: e2fsck has cleared orphans, too");
        return;
    }
    let differ = differing_blocks(&ours.image, &theirs.image);
    assert!(differ.is_empty(), "blocks {differ:?} differ; e2fsck said: {said}");
    assert!(ours.external == theirs.external, "the journal devices differ; e2fsck said: {said}");
}

/// e2fsck finds nothing to mend.
pub(crate) fn assert_clean(d: &Dirty) {
    let file = to_file(&d.image);
    let external = d.external.as_deref().map(to_file);
    let mut args = vec!["-fn"];
    if let Some(e) = &external {
        args.extend(["-j", path(e)]);
    }
    args.push(path(&file));
    let (code, said) = tool("e2fsck", &args);
    assert!(code == Some(0) && !said.contains("skipping journal recovery"), "{said}");
}

/// e2fsck finds nothing to mend but files that were deleted and not yet freed, which a replay leaves on the orphan
/// list.
fn assert_clean_but_for_orphans(d: &Dirty) {
    let file = to_file(&d.image);
    let mut preen = vec!["-p"];
    let external = d.external.as_deref().map(to_file);
    if let Some(e) = &external {
        preen.extend(["-j", path(e)]);
    }
    preen.push(path(&file));
    let (code, said) = tool("e2fsck", &preen);
    assert!(code == Some(0) || code == Some(1), "{said}");
    assert_clean(&Dirty { image: std::fs::read(file.path()).unwrap(), external: d.external.clone() });
}

/// The whole comparison for an image whose log is not damaged.
pub(crate) fn compare(d: &Dirty) -> Plan {
    let (theirs, said) = recover_with_e2fsck(d);
    assert!(said.contains("recovering journal"), "{said}");
    let ours = recover_with_ours(d);
    let plan = ours.plan.expect("our recovery");
    assert_same(&ours.after, &theirs, &said);
    assert!(!plan.is_damaged(), "bad {:?}, failed {:?}; e2fsck said {said}", plan.bad, plan.failed_commit);
    if has_orphans(&said) {
        assert_clean_but_for_orphans(&ours.after);
    } else {
        assert_clean(&ours.after);
    }
    plan
}
