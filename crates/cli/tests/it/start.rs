//! How a mount begins: with little memory and few reads, whatever the size of the image; and several at once.

use crate::common::{Place, check, needs_mounts, ok, quire, said, skip, text, tool};
use std::fs;

/// Resident memory of a process at its most, in KiB.
fn most_resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_terabyte_is_mounted_with_few_reads_and_little_memory() {
    needs_mounts();
    let p = Place::new("16M", &[]);
    let image = p.path("large");
    fs::File::create(&image).unwrap().set_len(1 << 40).unwrap();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let lazy = format!("lazy_itable_init=1,lazy_journal_init=1,root_owner={uid}:{gid}");
    let (code, words) = said(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-E", &lazy]).arg(&image));
    if code != 0 {
        // Not every host has files of this size.
        skip(words);
    }
    let m = p.mount_image(&image, "");
    fs::write(m.path("f"), "x").unwrap();
    fs::File::open(m.path("f")).unwrap().sync_all().unwrap();
    let stats: serde_json::Value = serde_json::from_str(&ok(&mut quire(&["stats", "--json", m.dir()]))).unwrap();
    let regions = stats["devices"]["fs"]["regions"].as_object().unwrap();
    let read: u64 = regions.values().map(|r| r["reads"]["bytes"].as_u64().unwrap()).sum();
    let resident = most_resident(m.pid);
    m.unmount();
    check(&image);
    assert!(resident < 32 << 10, "{resident} KiB were resident");
    // 8,192 groups have 512 KiB of descriptors; all of their bitmaps are 64 MiB.
    assert!((1..4 << 20).contains(&read), "{read} bytes were read");
}

#[test]
fn ten_mounts_begin_and_end_at_once() {
    needs_mounts();
    let places: Vec<Place> = (0..10).map(|_| Place::new("16M", &[])).collect();
    std::thread::scope(|s| {
        for p in &places {
            s.spawn(|| {
                ok(&mut quire(&["mount", text(&p.image()), text(&p.mnt())]));
                fs::write(p.mnt().join("f"), "x").unwrap();
                ok(&mut quire(&["umount", text(&p.mnt())]));
                check(&p.image());
            });
        }
    });
}
