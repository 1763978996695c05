//! How long an fsync after a 4 KiB overwrite takes through the library, with the journal in (simulated) NVRAM.
//!
//! `cargo run --release -p quire-fs --example nvram_latency [profile]`

use quire_device::sync::Arc;
use quire_device::{FileDevice, NvramMap, NvramOptions, OpenOptions, SystemClock};
use quire_fs::{Cred, Devices, New, NewKind, Options, Profile, Volume, WriteFlags};
use quire_layout::Ino;
use quire_testkit::MemDevice;
use std::time::Instant;

const ROUNDS: usize = 20_000;

fn main() {
    let profile: Profile = std::env::args().nth(1).map_or(Profile::Djfs, |p| p.parse().expect("a profile"));
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let bytes = quire_testkit::mke2fs("256M", &["-t", "ext4", "-b", "4096"]);
    let device: Arc<dyn quire_device::BlockDevice> = if std::env::args().nth(2).is_some_and(|a| a == "file") {
        std::fs::write(dir.path().join("image"), &bytes).expect("write");
        Arc::new(FileDevice::open(dir.path().join("image"), OpenOptions::default()).expect("open"))
    } else {
        Arc::new(MemDevice::new(bytes))
    };
    let how = NvramOptions { simulated: true, size: Some(128 << 20), ..NvramOptions::default() };
    let memory = Arc::new(NvramMap::open(dir.path().join("nvram"), how).expect("memory"));
    println!("{profile}, stores by {}", memory.stores_by());
    let devices = Devices::one(device).with_nvram(memory);
    let options = Options { cache_bytes: 256 << 20, ..Options::default() }.with(profile.choices());
    let v = Volume::open(devices, Arc::new(SystemClock), options).expect("mount");
    let background = v.maintenance().spawn_background();
    let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred { uid: 0, gid: 0 } };
    let ino = v.create(Ino::ROOT, b"f", &new).expect("create").ino;
    v.write(ino, 0, &vec![1; 4 << 20], WriteFlags::default()).expect("write");
    v.fsync(ino, false).expect("fsync");
    for (what, noise) in [("a page of which 100 bytes change", false), ("a page of noise", true)] {
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        let mut x = 88_172_645_463_325_252u64;
        let mut page = vec![7u8; 4096];
        for n in 0..ROUNDS {
            for b in page.iter_mut().skip(if noise { 0 } else { n % 3000 }).take(if noise { 4096 } else { 100 }) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                *b = x.to_le_bytes()[3];
            }
            let at = (x % 1024) * 4096;
            let start = Instant::now();
            v.write(ino, at, &page, WriteFlags::default()).expect("write");
            let written = start.elapsed();
            v.fsync(ino, true).expect("fsync");
            let all = start.elapsed();
            times[0].push(written);
            times[1].push(all - written);
            times[2].push(all);
        }
        for (name, t) in ["write", "fsync", "both"].iter().zip(&mut times) {
            t.sort_unstable();
            let at = |p: usize| t[t.len() * p / 100];
            println!("{what}: {name}: median {:?}, 90 % {:?}, 99 % {:?}", at(50), at(90), at(99));
        }
    }
    let s = v.maintenance().journal_stats();
    let t = u32::try_from(s.transactions.max(1)).unwrap_or(1);
    println!("{} commits of {:?} each, {:?}", s.transactions, s.commit_time / t, s.nvram);
    drop(background);
    v.close().expect("unmount");
}
