//! How many requests one write(2) becomes: the unit that is whole or absent after a crash is a request.

use crate::common::{Place, needs_mounts, ok, quire};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

const BLOCK: u64 = 4096;
const LARGEST: usize = 1 << 20;

fn write_requests(dir: &str) -> u64 {
    let stats: serde_json::Value = serde_json::from_str(&ok(&mut quire(&["stats", "--json", dir]))).unwrap();
    stats["requests_by_kind"]["write"].as_u64().unwrap_or(0)
}

/// Requests of one write of `len` bytes at `offset`, of a file that holds data there.
fn requests_of(dir: &str, file: &std::fs::File, offset: u64, len: usize) -> u64 {
    let before = write_requests(dir);
    file.write_all_at(&vec![1; len], offset).unwrap();
    write_requests(dir) - before
}

#[test]
fn a_write_through_of_whole_pages_up_to_a_mebibyte_is_one_request() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("data=journal,writethrough");
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(m.path("f")).unwrap();
    file.write_all_at(&vec![0; 4 * LARGEST], 0).unwrap();
    for (offset, len) in [(0, 100), (0, 4096), (BLOCK, 16384), (3 * BLOCK, 65536), (BLOCK, LARGEST)] {
        assert_eq!(requests_of(m.dir(), &file, offset, len), 1, "{len} bytes at {offset}");
    }
    // Inside one page, too.
    assert_eq!(requests_of(m.dir(), &file, 700, 100), 1);
    // What the kernel's FUSE module cannot hand over at once. README says so.
    for (offset, len) in [(700, LARGEST), (0, 2 * LARGEST)] {
        let n = requests_of(m.dir(), &file, offset, len);
        assert_eq!(n, 2, "{len} bytes at {offset}");
    }
    let across = requests_of(m.dir(), &file, BLOCK - 50, 100);
    assert!((1..=2).contains(&across), "100 bytes across two pages: {across} requests");
    println!("100 bytes across two pages: {across} requests");
    drop(file);
    m.unmount();
}

/// Memory whose second page on has never been touched, from an address inside of its first page: a copy that may not
/// wait stops there.
fn absent_memory(len: usize) -> memmap2::MmapMut {
    let mut memory = memmap2::MmapMut::map_anon(len + BLOCK_BYTES).unwrap();
    // Huge pages would bring all of it in at once.
    memory.advise(memmap2::Advice::NoHugePage).ok();
    memory[UNALIGNED] = 0;
    memory
}

const BLOCK_BYTES: usize = 4096;
/// PostgreSQL 15 aligns its shared buffers to 128 bytes.
const UNALIGNED: usize = 128;

/// A write from memory that is neither aligned nor there.
fn requests_from_absent_memory(dir: &str, file: &std::fs::File, offset: u64, len: usize) -> u64 {
    let memory = absent_memory(len);
    let before = write_requests(dir);
    assert_eq!(file.write_at(&memory[UNALIGNED..UNALIGNED + len], offset).unwrap(), len);
    write_requests(dir) - before
}

#[test]
fn with_the_profile_for_databases_each_write_of_a_page_is_one_request() {
    needs_mounts();
    // The atomic unit is an eighth of the log at most.
    let place = Place::new("64M", &["-b", "4096", "-J", "size=16"]);
    let m = place.mount("profile=database");
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(mounts.lines().any(|l| l.contains(m.dir()) && l.contains("fuse.quire.database")), "{mounts}");
    let told = ok(&mut quire(&["stats", m.dir()]));
    assert!(told.contains("up to 1048576 bytes are all or nothing; each write(2) is one request"), "{told}");
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(m.path("f")).unwrap();
    file.write_all_at(&vec![0; 2 * LARGEST], 0).unwrap();
    for len in [512, 1024, 4096, 8192, 16384, 32768, 65536] {
        for offset in [0, 7 * len as u64, 2 * LARGEST as u64 - len as u64 / 2, 700] {
            assert_eq!(requests_of(m.dir(), &file, offset, len), 1, "{len} bytes at {offset}");
            let n = requests_from_absent_memory(m.dir(), &file, offset, len);
            assert_eq!(n, 1, "{len} bytes at {offset}, from memory that is not there");
        }
    }
    assert_eq!(requests_of_vectored(m.dir(), &file), 1);
    assert_eq!(requests_from_absent_memory(m.dir(), &file, 0, LARGEST - BLOCK_BYTES), 1);
    // 257 pages of the program's memory.
    assert_eq!(requests_from_absent_memory(m.dir(), &file, 0, LARGEST), 2);
    drop(file);
    let direct = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::RDWR;
    let file = std::fs::File::from(rustix::fs::open(m.path("f"), direct, rustix::fs::Mode::empty()).unwrap());
    let memory = memmap2::MmapMut::map_anon(LARGEST).unwrap();
    for len in [BLOCK_BYTES, 4 * BLOCK_BYTES, LARGEST] {
        let before = write_requests(m.dir());
        assert_eq!(file.write_at(&memory[..len], BLOCK).unwrap(), len);
        assert_eq!(write_requests(m.dir()) - before, 1, "{len} bytes with O_DIRECT");
    }
    for len in [BLOCK_BYTES, 4 * BLOCK_BYTES] {
        if let Some(n) = requests_of_uring(m.dir(), &file, &memory[..len]) {
            assert_eq!(n, 1, "{len} bytes by io_uring");
        }
    }
    drop(file);
    m.unmount();
    place.check();
}

/// Requests of a write by io_uring; `None` where the host has none.
fn requests_of_uring(dir: &str, file: &std::fs::File, bytes: &[u8]) -> Option<u64> {
    use std::os::fd::AsRawFd;
    let Ok(mut ring) = io_uring::IoUring::new(2) else {
        println!("no writes by io_uring: the host has none");
        return None;
    };
    let before = write_requests(dir);
    let fd = io_uring::types::Fd(file.as_raw_fd());
    let len = u32::try_from(bytes.len()).unwrap();
    let write = io_uring::opcode::Write::new(fd, bytes.as_ptr(), len).offset(2 * BLOCK).build();
    // SAFETY: file and bytes live until the completion has been waited for below.
    unsafe { ring.submission().push(&write).unwrap() };
    ring.submit_and_wait(1).unwrap();
    assert_eq!(ring.completion().next().unwrap().result(), i32::try_from(len).unwrap());
    Some(write_requests(dir) - before)
}

/// Sixteen KiB out of pieces that lie apart.
fn requests_of_vectored(dir: &str, file: &std::fs::File) -> u64 {
    let pieces = [vec![1; 1000], vec![2; 8192], vec![3; 7192]];
    let pieces: Vec<_> = pieces.iter().map(|p| std::io::IoSlice::new(p)).collect();
    let before = write_requests(dir);
    assert_eq!(rustix::io::pwritev(file, &pieces, 3 * BLOCK).unwrap(), 16384);
    write_requests(dir) - before
}

/// What docs/design/fuse-limits.md says of the kernel's page cache: it copies without waiting for the caller's memory.
#[test]
fn a_write_through_from_memory_that_is_not_there_is_several_requests() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("writethrough");
    let told = ok(&mut quire(&["stats", m.dir()]));
    assert!(told.contains("unless the kernel meets memory that is not there"), "{told}");
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(m.path("f")).unwrap();
    file.write_all_at(&vec![0; LARGEST], 0).unwrap();
    assert!(requests_from_absent_memory(m.dir(), &file, 0, 8192) > 1);
    assert_eq!(requests_of(m.dir(), &file, 0, 8192), 1);
    assert_eq!(requests_of_vectored(m.dir(), &file), 1);
    drop(file);
    m.unmount();
}

/// docs/design/fuse-limits.md says: the kernel's FUSE module (Linux 6.18) carries neither RWF_ATOMIC nor
/// STATX_WRITE_ATOMIC.
#[test]
fn the_kernel_s_own_atomic_writes_do_not_reach_a_mount() {
    needs_mounts();
    const RWF_ATOMIC: u32 = 0x40;
    const STATX_WRITE_ATOMIC: u32 = 0x1_0000;
    let place = Place::new("64M", &[]);
    let m = place.mount("profile=database");
    let direct = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE;
    let file = std::fs::File::from(rustix::fs::open(m.path("f"), direct, 0o600.into()).unwrap());
    let memory = memmap2::MmapMut::map_anon(16384).unwrap();
    let flags = rustix::io::ReadWriteFlags::from_bits_retain(RWF_ATOMIC);
    let refused = rustix::io::pwritev2(&file, &[std::io::IoSlice::new(&memory)], 0, flags).unwrap_err();
    assert_eq!(refused, rustix::io::Errno::OPNOTSUPP);
    let mask = rustix::fs::StatxFlags::from_bits_retain(STATX_WRITE_ATOMIC);
    let seen = rustix::fs::statx(&file, "", rustix::fs::AtFlags::EMPTY_PATH, mask).unwrap();
    assert_eq!(seen.stx_mask & STATX_WRITE_ATOMIC, 0);
    drop(file);
    m.unmount();
}

crate::common::over_uring! {
    a_write_through_of_whole_pages_up_to_a_mebibyte_is_one_request,
    with_the_profile_for_databases_each_write_of_a_page_is_one_request,
}
