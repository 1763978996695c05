//! A dump shows what debugfs shows.

use super::forge::{Forge, Kind};
use super::judge::{Dirty, open_on, path, to_file, tool};
use super::seeds::seeds;
use quire_device::sync::Arc;
use quire_journal::dump::{End, LogDump, LogItem, Scope};
use quire_layout::Tid;
use quire_layout::jbd2::Checksums;
use quire_testkit::MemDevice;
use quire_testkit::Rng;

fn dump(d: &Dirty, scope: Scope) -> Vec<LogItem> {
    let log = open_on(d, Arc::new(MemDevice::new(d.image.clone())), None).log.unwrap();
    LogDump::new(&log, scope).collect::<Result<_, _>>().unwrap()
}

/// The same lines as `debugfs logdump -a` prints for blocks and tags.
fn as_debugfs(items: &[LogItem]) -> Vec<String> {
    let mut out = Vec::new();
    let found = |tid: Tid, n: u32, what: &str, at: u32| {
        format!("Found expected sequence {}, type {n} ({what}) at block {at}", tid.0)
    };
    for i in items {
        match i {
            LogItem::Descriptor { at, tid, images, .. } => {
                out.push(found(*tid, 1, "descriptor block", at.0));
                out.extend(images.iter().map(|i| {
                    let flags = i.tag.flags;
                    format!("FS block {} logged at journal block {} (flags {flags:#x})", i.tag.block.0, i.at.0)
                }));
            }
            LogItem::Revoke { at, tid, blocks, .. } => {
                out.push(found(*tid, 5, "revoke table", at.0));
                out.extend(blocks.as_ref().unwrap().iter().map(|b| format!("Revoke FS block {}", b.0)));
            }
            LogItem::Commit { at, commit, .. } => out.push(found(commit.tid, 2, "commit block", at.0)),
            _ => {}
        }
    }
    out
}

#[test]
fn a_dump_shows_what_debugfs_shows() {
    seeds("a_dump_shows_what_debugfs_shows", 12, |seed| {
        let mut rng = Rng::new(seed);
        let mut f = Forge::new(Kind { version_1: false, ..Kind::any(&mut rng) }, 0, Tid(9));
        (0..5).for_each(|_| f.random_transaction(&mut rng));
        let d = f.dirty();
        let (_, said) = tool("debugfs", &["-R", "logdump -a", path(&to_file(&d.image))]);
        let wanted = |l: &&str| l.starts_with("Found exp") || l.starts_with("FS block") || l.starts_with("Revoke FS");
        let theirs: Vec<String> = said.lines().map(str::trim).filter(wanted).map(str::to_owned).collect();
        let items = dump(&d, Scope::Live);
        assert_eq!(as_debugfs(&items), theirs);
        assert!(matches!(items.last(), Some(LogItem::End { why: End::NoMagic, .. })));
        assert!(!items.iter().any(|i| i.to_string().contains("BAD")));
        assert_eq!(as_debugfs(&dump(&d, Scope::Whole)), theirs, "a log that begins at its first block");
    });
}

#[test]
fn a_dump_names_what_does_not_match() {
    let mut f = Forge::new(Kind::plain("1024", Checksums::V3, true), 0, Tid(9));
    f.images(&[(f.free_block(0), vec![1; 1024])], true);
    f.revokes(&[f.free_block(1)]);
    f.commit(1);
    for n in 1..=4 {
        f.block_mut(quire_layout::LogBlock(n))[40] ^= 1;
    }
    let shown: String = dump(&f.dirty(), Scope::Live).iter().map(|i| format!("{i}\n")).collect();
    assert_eq!(shown.matches("BAD CHECKSUM").count(), 4, "{shown}");
    assert!(
        shown.contains("superblock v2: 2048 blocks of 1024 bytes, log from log block 1, next transaction 9"),
        "{shown}"
    );
}
