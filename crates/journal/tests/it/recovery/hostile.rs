//! Bytes that no writer would write: a typed error or a recovery, never a panic or a hang; what is refused is not
//! written.

use super::forge::{Forge, Kind};
use super::judge::recover_with_ours;
use super::seeds::seeds;
use quire_layout::bytes::put_be32;
use quire_layout::checksum::crc32c;
use quire_layout::jbd2::Checksums;
use quire_layout::{LogBlock, Tid};
use quire_testkit::Rng;

/// Changes fields of the journal's superblock, mostly with a checksum that is right again.
fn change_superblock(f: &mut Forge, rng: &mut Rng) {
    let reseal = !rng.one_in(5);
    let sb = f.block_mut(LogBlock(0));
    for _ in 0..1 + rng.below(2) {
        let at = usize::try_from(rng.below(0x60 / 4)).unwrap() * 4;
        let small = u32::try_from(rng.below(5000)).unwrap();
        let wild = u32::try_from(rng.bits() >> 32).unwrap();
        put_be32(sb, at, if rng.one_in(2) { small } else { wild });
    }
    if reseal {
        put_be32(sb, 0xFC, 0);
        let sum = crc32c(!0, &sb[..1024]);
        put_be32(sb, 0xFC, sum);
    }
}

#[test]
fn hostile_logs_are_refused_or_replayed() {
    seeds("hostile_logs_are_refused_or_replayed", 300, |seed| {
        let mut rng = Rng::new(seed);
        // Without checksums the changes get through to the decoders.
        let sums = if rng.one_in(4) { Checksums::V3 } else { Checksums::None };
        let mut f = Forge::new(Kind::plain("1024", sums, rng.one_in(2)), 2040, Tid(7));
        (0..3).for_each(|_| f.random_transaction(&mut rng));
        if rng.one_in(2) {
            change_superblock(&mut f, &mut rng);
        }
        for _ in 0..rng.below(12) {
            let (at, _, _) = f.written[usize::try_from(rng.below(f.written.len() as u64)).unwrap()];
            let byte = usize::try_from(if rng.one_in(3) { rng.below(1024) } else { rng.below(80) }).unwrap();
            f.block_mut(at)[byte] = [0, 0xFF, 2, 8][usize::try_from(rng.below(4)).unwrap()];
        }
        let d = f.dirty();
        let ours = recover_with_ours(&d);
        if let Err(e) = ours.plan {
            // The file system's own superblock may have been overwritten: the log is believed.
            let refused = !e.to_string().starts_with("corrupt superblock");
            assert!(!refused || ours.after.image == d.image, "refused but written: {e}");
        }
    });
}
