//! Logs that debugfs writes.

use super::judge::{Dirty, compare, path, to_file, tool};
use std::io::Write;
use tempfile::NamedTempFile;

fn debugfs(image: &NamedTempFile, commands: &str) {
    let mut script = NamedTempFile::new().unwrap();
    script.write_all(commands.as_bytes()).unwrap();
    let (code, said) = tool("debugfs", &["-w", "-f", path(&script), path(image)]);
    assert!(code == Some(0) && !said.contains("not open") && !said.contains("rror"), "{said}");
}

fn content(blocks: usize, bs: usize, escaped: bool) -> NamedTempFile {
    let mut b: Vec<u8> = (0..blocks * bs).map(|n| u8::try_from(n % 251).unwrap()).collect();
    if escaped {
        b.chunks_mut(bs).step_by(2).for_each(|c| c[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes()));
    }
    to_file(&b)
}

fn image(options: &[&str]) -> NamedTempFile {
    let f = NamedTempFile::new().unwrap();
    let mut args = vec!["-q", "-F", "-t", "ext4"];
    args.extend(options);
    args.extend([path(&f), "24M"]);
    let (code, said) = tool("mke2fs", &args);
    assert_eq!(code, Some(0), "{said}");
    f
}

#[test]
fn debugfs_logs_replay_as_e2fsck_does() {
    let mut seen = 0;
    for bs in ["1024", "2048", "4096"] {
        for features in ["^metadata_csum,^64bit", "^64bit", "64bit", "^extent,^64bit"] {
            for open in ["jo", "jo -c -v 2", "jo -c -v 3"] {
                if open != "jo" && features.contains("^metadata_csum") {
                    continue; // debugfs writes commits there that e2fsck calls corrupt
                }
                let f = image(&["-b", bs, "-J", "size=4", "-O", features]);
                let len: usize = bs.parse().unwrap();
                let free = 24 * 1024 * 1024 / len - 300;
                let (escaped, plain) = (content(300, len, true), content(300, len, false));
                let list =
                    |from: usize, n: usize| (from..from + n).map(|b| b.to_string()).collect::<Vec<_>>().join(",");
                let commands = format!(
                    "{open}\njw -b {} {}\njw -r {}\njw -b {} -r {} {}\njc\n",
                    list(free, 280),
                    path(&escaped),
                    list(free + 10, 30),
                    list(free + 20, 5),
                    list(free + 22, 2),
                    path(&plain),
                );
                debugfs(&f, &commands);
                let plan = compare(&Dirty { image: std::fs::read(f.path()).unwrap(), external: None });
                assert_eq!((plan.transactions, plan.revokes), (3, 32));
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 30);
}

#[test]
fn an_external_journal_replays_as_e2fsck_does() {
    for bs in ["1024", "4096"] {
        let journal = NamedTempFile::new().unwrap();
        let (code, said) = tool("mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", bs, path(&journal), "8M"]);
        assert_eq!(code, Some(0), "{said}");
        let f = NamedTempFile::new().unwrap();
        // mke2fs takes only a block device for -J device: the link is made by hand, as debugfs' own tests do.
        let (code, said) = tool("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-b", bs, path(&f), "24M"]);
        assert_eq!(code, Some(0), "{said}");
        let (_, said) = tool("dumpe2fs", &["-h", path(&journal)]);
        let uuid = said.lines().find_map(|l| l.strip_prefix("Filesystem UUID:")).unwrap().trim().to_owned();
        debugfs(&f, &format!("ssv journal_uuid {uuid}\nssv journal_dev 0x9999\nfeature has_journal\n"));
        let len: usize = bs.parse().unwrap();
        let plain = content(50, len, true);
        let free = 24 * 1024 * 1024 / len - 100;
        let list = (free..free + 50).map(|b| b.to_string()).collect::<Vec<_>>().join(",");
        let j = path(&journal);
        debugfs(&f, &format!("jo -c -v 3 -f {j}\njw -b {list} {}\njw -r {free}\njc\n", path(&plain)));
        let read = |f: &NamedTempFile| std::fs::read(f.path()).unwrap();
        let d = Dirty { image: read(&f), external: Some(read(&journal)) };
        let plan = compare(&d);
        assert_eq!((plan.transactions, plan.images().len()), (2, 49));

        // Another file system's journal is refused.
        let mut other = d.clone();
        other.external.as_mut().unwrap()[1024 + 0x68] ^= 1;
        let e = super::judge::recover_with_ours(&other).plan.unwrap_err();
        assert!(e.to_string().contains("UUID") || e.to_string().contains("checksum"), "{e}");
    }
}
