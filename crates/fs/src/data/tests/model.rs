//! Random operations on a file and on a vector of bytes; both must read the same, always.

use super::{Bench, Numbers, file, image, options};
use crate::config::Route;
use crate::data::{Falloc, Seek, WriteFlags};
use crate::error::Error;
use crate::{Options, Result};
use quire_layout::Ino;

const STEPS: u64 = 400;

/// The file as it must be.
struct Model {
    bytes: Vec<u8>,
    block: u64,
    /// Largest offset that is used.
    span: u64,
}

impl Model {
    fn write(&mut self, at: usize, data: &[u8]) {
        if self.bytes.len() < at + data.len() {
            self.bytes.resize(at + data.len(), 0);
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn zero(&mut self, at: usize, len: usize) {
        let end = self.bytes.len().min(at + len);
        if at < end {
            self.bytes[at..end].fill(0);
        }
    }

    fn grow(&mut self, size: usize) {
        if self.bytes.len() < size {
            self.bytes.resize(size, 0);
        }
    }
}

fn us(n: u64) -> usize {
    usize::try_from(n).expect("small")
}

/// One random operation on both. Says what it was.
fn step(b: &mut Bench, ino: Ino, m: &mut Model, r: &mut Numbers) -> String {
    let v = b.volume.clone();
    let (span, block) = (m.span, m.block);
    let (at, len) = (r.below(span), r.below(6 * block) + 1);
    let whole = |n: u64| n / block * block;
    let ok = |done: Result<()>, what: String| -> String {
        done.unwrap_or_else(|e| panic!("{what}: {e}"));
        what
    };
    // Refused alike, or done on both.
    let fallocate = |m: &mut Model, how, at: u64, len: u64, legal: bool, f: &dyn Fn(&mut Model)| {
        let done = v.fallocate(ino, how, at, len);
        let what = format!("{how:?} {at}+{len}");
        match done {
            Ok(()) => {
                assert!(legal, "{what} was done");
                f(m);
            }
            Err(Error::NotSupported(_)) => {}
            Err(Error::Invalid(_)) if !legal => {}
            Err(e) => panic!("{what}: {e}"),
        }
        what
    };
    match r.below(18) {
        0..=3 => {
            let data = r.bytes(us(len));
            // The kernel's cache keeps the times to itself.
            let flags = WriteFlags { deferred: r.below(2) == 0, keep_times: r.below(2) == 0, ..WriteFlags::default() };
            let n = v.write(ino, at, &data, flags).expect("write");
            assert_eq!(n, data.len());
            m.write(us(at), &data);
            format!("write {at}+{len}")
        }
        4 => {
            let data = r.bytes(us(len));
            let flags = WriteFlags { deferred: r.below(2) == 0, ..WriteFlags::default() };
            let done = crate::append(&v, ino, &data, flags).expect("append");
            m.write(m.bytes.len(), &data);
            assert!(len == 0 || done == (data.len(), m.bytes.len() as u64), "append {len}: {done:?}");
            format!("append {len}")
        }
        5 | 6 => {
            let done = v.truncate(ino, at);
            m.bytes.resize(us(at), 0);
            ok(done, format!("truncate {at}"))
        }
        7 => fallocate(m, Falloc::PunchHole, at, len, true, &|m| m.zero(us(at), us(len))),
        8 => fallocate(m, Falloc::ZeroRange { keep_size: false }, at, len, true, &|m| {
            m.grow(us(at + len));
            m.zero(us(at), us(len));
        }),
        9 => fallocate(m, Falloc::ZeroRange { keep_size: true }, at, len, true, &|m| m.zero(us(at), us(len))),
        10 => fallocate(m, Falloc::Allocate { keep_size: false }, at, len, true, &|m| m.grow(us(at + len))),
        11 => fallocate(m, Falloc::Allocate { keep_size: true }, at, len, true, &|_| {}),
        12 => {
            let (at, len) = (whole(at), whole(len) + block);
            let legal = at + len < m.bytes.len() as u64;
            fallocate(m, Falloc::Collapse, at, len, legal, &|m| drop(m.bytes.drain(us(at)..us(at + len))))
        }
        13 if (m.bytes.len() as u64) < 2 * span => {
            let (at, len) = (whole(at), whole(len) + block);
            let legal = at < m.bytes.len() as u64;
            fallocate(m, Falloc::Insert, at, len, legal, &|m| {
                m.bytes.splice(us(at)..us(at), std::iter::repeat_n(0, us(len)));
            })
        }
        14 => ok(v.fsync(ino, r.below(2) == 0), "fsync".into()),
        15 => ok(v.sync(), "sync".into()),
        16 if r.below(4) == 0 => {
            b.remount();
            "remount".into()
        }
        _ => {
            let (data, hole) = (v.seek(ino, at, Seek::Data), v.seek(ino, at, Seek::Hole));
            check_seek(m, at, &data, &hole);
            format!("seek {at}")
        }
    }
}

/// Bytes that are not zero lie in data; a hole is zeros.
fn check_seek(m: &Model, at: u64, data: &Result<u64>, hole: &Result<u64>) {
    let size = m.bytes.len() as u64;
    if at >= size {
        assert!(matches!((data, hole), (Err(Error::NoSuchRange), Err(Error::NoSuchRange))));
        return;
    }
    let hole = *hole.as_ref().expect("the end is a hole");
    assert!(hole >= at && hole <= size, "hole at {hole}");
    let first = match data {
        Ok(d) => *d,
        Err(Error::NoSuchRange) => size,
        Err(e) => panic!("seek: {e}"),
    };
    assert!(m.bytes[us(at)..us(first)].iter().all(|b| *b == 0), "data from {at} on is said to begin at {first}");
    assert!(hole == at || first == at, "{at} is a hole until {first}, and data until {hole}");
    if hole < size {
        assert_eq!(m.bytes[us(hole)], 0, "a hole at {hole}");
    }
}

fn compare(b: &Bench, ino: Ino, m: &Model, r: &mut Numbers) {
    let got = b.read_all(ino, m.bytes.len());
    assert_eq!(got.len(), m.bytes.len(), "size");
    assert_eq!(b.volume.getattr(ino).expect("stat").size, m.bytes.len() as u64, "size that stat tells");
    if let Some(n) = got.iter().zip(&m.bytes).position(|(a, b)| a != b) {
        panic!("byte {n} of {} is {:#x}, not {:#x}", got.len(), got[n], m.bytes[n]);
    }
    let at = r.below(m.span);
    let mut buf = vec![0; us(r.below(3 * m.block) + 1)];
    let n = b.volume.read(ino, at, &mut buf).expect("read");
    let want = m.bytes.get(us(at)..).unwrap_or(&[]);
    assert_eq!(&buf[..n], &want[..want.len().min(buf.len())], "read at {at}");
}

fn run_model(args: &[&str], block: u64, o: Options, seed: u64) {
    let mut b = Bench::on(image("24M", args, 2), o);
    let mut r = Numbers(seed);
    let mut models = [(); 2].map(|()| Model { bytes: Vec::new(), block, span: 40 * block });
    for n in 0..STEPS {
        let i = r.below(2);
        let ino = file(u32::try_from(i).expect("small"));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let m = &mut models[us(i)];
            let what = step(&mut b, ino, m, &mut r);
            if std::env::var_os("TRACE").is_some() {
                eprintln!("{n}: {ino}: {what}");
            }
            compare(&b, ino, m, &mut r);
        }));
        if let Err(panic) = done {
            eprintln!("step {n} failed; again: SEED={seed} TRACE=1 cargo test -p quire-fs --lib file::tests::model");
            std::panic::resume_unwind(panic);
        }
    }
    b.remount();
    for (n, m) in (0..).zip(&models) {
        compare(&b, file(n), m, &mut r);
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(s) => vec![s.parse().expect("SEED is a number")],
        Err(_) => (1..=4).map(|n| n * 0x9E37_79B9_7F4A).collect(),
    }
}

/// Little memory, so that pages leave it.
fn small(route: Route) -> Options {
    Options { cache_bytes: 1 << 20, ..options(route) }
}

/// `auto` with a boundary in the middle of what is written.
fn riding(bytes: u64) -> Options {
    Options { auto_threshold: Some(bytes), ..small(Route::Auto) }
}

macro_rules! models {
    ($($name:ident: $args:expr, $block:expr, $options:expr;)*) => {$(
        #[test]
        fn $name() {
            for seed in seeds() {
                run_model($args, $block, $options, seed);
            }
        }
    )*};
}

models! {
    ordered_4k: &["-t", "ext4", "-b", "4096"], 4096, options(Route::Ordered);
    ordered_1k: &["-t", "ext4", "-b", "1024"], 1024, small(Route::Ordered);
    ordered_2k_128_byte_inodes: &["-t", "ext4", "-b", "2048", "-I", "128"], 2048, small(Route::Ordered);
    ordered_ext3: &["-t", "ext3", "-b", "1024"], 1024, options(Route::Ordered);
    writeback_4k: &["-t", "ext4", "-b", "4096"], 4096, options(Route::Writeback);
    none_2k: &["-t", "ext4", "-b", "2048", "-O", "^has_journal"], 2048, options(Route::None);
    journal_4k: &["-t", "ext4", "-b", "4096"], 4096, options(Route::Journal);
    journal_1k: &["-t", "ext4", "-b", "1024"], 1024, small(Route::Journal);
    overwrite_4k: &["-t", "ext4", "-b", "4096"], 4096, options(Route::Overwrite);
    overwrite_1k: &["-t", "ext4", "-b", "1024"], 1024, small(Route::Overwrite);
    overwrite_ext3: &["-t", "ext3", "-b", "1024"], 1024, options(Route::Overwrite);
    auto_4k: &["-t", "ext4", "-b", "4096"], 4096, options(Route::Auto);
    auto_1k: &["-t", "ext4", "-b", "1024"], 1024, riding(4096);
    auto_ext3: &["-t", "ext3", "-b", "1024"], 1024, riding(4096);
    adaptive_1k: &["-t", "ext4", "-b", "1024"], 1024, small(Route::Adaptive);
    selective_1k: &["-t", "ext4", "-b", "1024"], 1024, small(Route::Selective);
    selective_4k: &["-t", "ext4", "-b", "4096"], 4096, options(Route::Selective);
    selective_ext3: &["-t", "ext3", "-b", "1024"], 1024, small(Route::Selective);
    journal_ext3: &["-t", "ext3", "-b", "4096"], 4096, options(Route::Journal);
}
