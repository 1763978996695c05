//! Hashes of names, by which an htree directory is ordered.
//!
//! Guarantees: the same numbers as the kernel and e2fsprogs for every version that an image may name, with name
//! bytes taken as signed or unsigned numbers (`s_flags`: images carry the habit of the machine that made them).
//! Source: kernel documentation, "ext4: directory entries, hash tree directories".

use crate::error::{Corrupt, Structure};
use crate::superblock::Superblock;

/// `dx_root.info.hash_version` and `s_def_hash_version`. The unsigned variants (3 to 5) are read, but never stored in a
/// root: neither the kernel nor e2fsck accepts an index whose root says them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashVersion {
    Legacy,
    HalfMd4,
    Tea,
}

impl HashVersion {
    /// The number on disk.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            HashVersion::Legacy => 0,
            HashVersion::HalfMd4 => 1,
            HashVersion::Tea => 2,
        }
    }
}

/// A name's place in the order of a directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NameHash {
    /// What the index is ordered by. Even: the lowest bit marks continuation in index entries.
    pub major: u32,
    /// Tells apart names of one `major`; 0 for the legacy hash.
    pub minor: u32,
}

/// The last hash; no name has it. The kernel uses it as the end of a listing.
const END: u32 = 0xFFFF_FFFE;

/// Hashes names as one directory does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hasher {
    version: HashVersion,
    unsigned: bool,
    seed: [u32; 4],
}

impl Hasher {
    #[must_use]
    pub fn new(version: HashVersion, unsigned: bool, seed: [u32; 4]) -> Self {
        // A seed of zeros means the standard one of MD4.
        let seed = if seed == [0; 4] { [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476] } else { seed };
        Hasher { version, unsigned, seed }
    }

    /// The hasher of a directory whose root says `version`, on this file system.
    ///
    /// # Errors
    /// Corrupt: an unknown version. (6, SipHash, needs a casefolded and encrypted directory.)
    pub fn for_root(version: u8, sb: &Superblock) -> Result<Self, Corrupt> {
        let (version, unsigned) = match version {
            0 => (HashVersion::Legacy, sb.unsigned_hash()),
            1 => (HashVersion::HalfMd4, sb.unsigned_hash()),
            2 => (HashVersion::Tea, sb.unsigned_hash()),
            3 => (HashVersion::Legacy, true),
            4 => (HashVersion::HalfMd4, true),
            5 => (HashVersion::Tea, true),
            _ => return Err(Corrupt::new(Structure::HtreeNode, "unknown hash version")),
        };
        Ok(Self::new(version, unsigned, sb.hash_seed()))
    }

    /// The hasher of directories that this file system indexes from now on: the one by which [`Hasher::for_root`] reads
    /// them, when their root has this hasher's [version](Hasher::version). So of an unsigned variant (3 to 5) in the
    /// superblock only the algorithm counts, and `s_flags` says whether bytes have a sign.
    ///
    /// # Errors
    /// Corrupt: the superblock names an unknown version.
    pub fn for_new(sb: &Superblock) -> Result<Self, Corrupt> {
        let version = match sb.hash_version() {
            unsigned @ 3..=5 => unsigned - 3,
            version => version,
        };
        Self::for_root(version, sb).map_err(|c| Corrupt { structure: Structure::Superblock, ..c })
    }

    #[must_use]
    pub fn version(&self) -> HashVersion {
        self.version
    }

    /// The hash of a name.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let (major, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => self.half_md4(name),
            HashVersion::Tea => self.tea(name),
        };
        let major = major & !1;
        NameHash { major: if major == END { END - 2 } else { major }, minor }
    }

    /// A 32-bit number that tells apart names of one `major` also where the minor hash does not (legacy).
    #[must_use]
    pub fn tie_break(&self, name: &[u8], hash: NameHash) -> u32 {
        if self.version == HashVersion::Legacy { self.half_md4(name).1 } else { hash.minor }
    }

    /// A byte as the number that goes into the hash.
    fn char(&self, c: u8) -> u32 {
        if self.unsigned { u32::from(c) } else { i32::from(c.cast_signed()).cast_unsigned() }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut older, mut newer) = (0x37AB_E8F9u32, 0x12A3_FE2Du32);
        for &c in name {
            let mut h = older.wrapping_add(newer ^ self.char(c).wrapping_mul(7_152_373));
            if h & 0x8000_0000 != 0 {
                h = h.wrapping_sub(0x7FFF_FFFF);
            }
            (older, newer) = (newer, h);
        }
        newer << 1
    }

    fn half_md4(&self, name: &[u8]) -> (u32, u32) {
        let mut state = self.seed;
        let mut rest = name;
        while !rest.is_empty() {
            half_md4_round(&mut state, &self.words::<8>(rest));
            rest = rest.get(32..).unwrap_or_default();
        }
        (state[1], state[2])
    }

    fn tea(&self, name: &[u8]) -> (u32, u32) {
        let mut state = [self.seed[0], self.seed[1]];
        let mut rest = name;
        while !rest.is_empty() {
            tea_round(&mut state, self.words::<4>(rest));
            rest = rest.get(16..).unwrap_or_default();
        }
        (state[0], state[1])
    }

    /// The first `4 * N` bytes as big-endian words; what is missing is filled from the number of bytes left.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let len = u32::try_from(rest.len()).expect("a name is short");
        let pad = (len & 0xFF) * 0x0101_0101;
        let mut out = [pad; N];
        for (word, bytes) in out.iter_mut().zip(rest.chunks(4)) {
            *word = bytes.iter().fold(pad, |w, c| (w << 8).wrapping_add(self.char(*c)));
        }
        out
    }
}

/// MD4's compression with half of its rounds.
fn half_md4_round(state: &mut [u32; 4], x: &[u32; 8]) {
    const ROUNDS: [(u32, [usize; 8], [u32; 4]); 3] = [
        (0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (0x5A82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (0x6ED9_EBA1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (round, (k, order, shifts)) in ROUNDS.into_iter().enumerate() {
        for (step, i) in order.into_iter().enumerate() {
            let f = match round {
                0 => d ^ (b & (c ^ d)),
                1 => (b & c).wrapping_add((b ^ c) & d),
                _ => b ^ c ^ d,
            };
            let t = a.wrapping_add(f).wrapping_add(x[i]).wrapping_add(k).rotate_left(shifts[step % 4]);
            (a, b, c, d) = (d, t, b, c);
        }
    }
    for (s, v) in state.iter_mut().zip([a, b, c, d]) {
        *s = s.wrapping_add(v);
    }
}

/// The Tiny Encryption Algorithm, 16 cycles.
fn tea_round(state: &mut [u32; 2], key: [u32; 4]) {
    let [mut y, mut z] = *state;
    let mut sum = 0u32;
    let mix = |v: u32, k0: u32, k1: u32, sum: u32| {
        (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        y = y.wrapping_add(mix(z, key[0], key[1], sum));
        z = z.wrapping_add(mix(y, key[2], key[3], sum));
    }
    state[0] = state[0].wrapping_add(y);
    state[1] = state[1].wrapping_add(z);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 12345678-1234-5678-9abc-def012345678, as the superblock keeps it.
    const SEED: [u32; 4] = [0x7856_3412, 0x7856_3412, 0xF0DE_BC9A, 0x7856_3412];

    /// What libext2fs answers for the versions 0 to 5.
    #[rustfmt::skip]
    #[allow(clippy::type_complexity)]
    const ANSWERS: &[(&str, usize, [u32; 4], [(u32, u32); 6])] = &[
        ("a", 1, [0; 4], [(0xE74B53E2, 0x00000000), (0xD5FA7D7A, 0xACB48187), (0x6D0EA4C0, 0xC18922DF), (0xE74B53E2, 0x00000000), (0xD5FA7D7A, 0xACB48187), (0x6D0EA4C0, 0xC18922DF)]),
        ("a", 1, SEED, [(0xE74B53E2, 0x00000000), (0xD4F14B26, 0xB85CB33F), (0x93241D68, 0x15040513), (0xE74B53E2, 0x00000000), (0xD4F14B26, 0xB85CB33F), (0x93241D68, 0x15040513)]),
        ("README.md", 1, [0; 4], [(0x3F05638C, 0x00000000), (0x58AB47A2, 0x08611D5E), (0x0E2301B0, 0x7E54A89F), (0x3F05638C, 0x00000000), (0x58AB47A2, 0x08611D5E), (0x0E2301B0, 0x7E54A89F)]),
        ("README.md", 1, SEED, [(0x3F05638C, 0x00000000), (0x949A8646, 0x37118B4C), (0xD858515A, 0x6B56ADF7), (0x3F05638C, 0x00000000), (0x949A8646, 0x37118B4C), (0xD858515A, 0x6B56ADF7)]),
        ("héllo-wörld", 1, [0; 4], [(0x030E0FFC, 0x00000000), (0x569E31DC, 0xDF49A167), (0x36DB452E, 0x10BC4A78), (0xDC831620, 0x00000000), (0xEE31688A, 0x162EFC42), (0x9999F404, 0x4B25F49C)]),
        ("héllo-wörld", 1, SEED, [(0x030E0FFC, 0x00000000), (0x07AB964C, 0x1307F345), (0x7A6E9F9C, 0xE6EFE379), (0xDC831620, 0x00000000), (0x9F5BC9F0, 0xD5040290), (0x82D896FE, 0x69E92331)]),
        ("0123456789abcdef", 1, [0; 4], [(0x415C16FE, 0x00000000), (0x8CB502B6, 0x5ACF4F33), (0x5A0788B2, 0xEFA4E711), (0x415C16FE, 0x00000000), (0x8CB502B6, 0x5ACF4F33), (0x5A0788B2, 0xEFA4E711)]),
        ("0123456789abcdef", 1, SEED, [(0x415C16FE, 0x00000000), (0x6E8EFD10, 0x05D80A3A), (0x3B314F9E, 0x19C15BD5), (0x415C16FE, 0x00000000), (0x6E8EFD10, 0x05D80A3A), (0x3B314F9E, 0x19C15BD5)]),
        ("0123456789abcdef0123456789abcdef", 1, [0; 4], [(0x6D4A15EE, 0x00000000), (0x36184620, 0xC959DF59), (0xCBE95E3C, 0x17627589), (0x6D4A15EE, 0x00000000), (0x36184620, 0xC959DF59), (0xCBE95E3C, 0x17627589)]),
        ("0123456789abcdef0123456789abcdef", 1, SEED, [(0x6D4A15EE, 0x00000000), (0xFC027CD8, 0xF04B9592), (0x77C45510, 0xA936FDF1), (0x6D4A15EE, 0x00000000), (0xFC027CD8, 0xF04B9592), (0x77C45510, 0xA936FDF1)]),
        ("a-much-longer-name-that-needs-more-than-one-round-of-every-hash-ÄÖÜß-0123456789", 1, [0; 4], [(0x831CA86A, 0x00000000), (0x04657C58, 0x8B21E3F4), (0xA01858EE, 0xFFA6C714), (0x2FE982BE, 0x00000000), (0x506A5140, 0x3CBF2DF5), (0xF434CE74, 0x06DAAD36)]),
        ("a-much-longer-name-that-needs-more-than-one-round-of-every-hash-ÄÖÜß-0123456789", 1, SEED, [(0x831CA86A, 0x00000000), (0x4ACD1DF2, 0x466EB0FD), (0x96F4DF34, 0x5393A3EA), (0x2FE982BE, 0x00000000), (0x363FD8D4, 0x7290E4DB), (0x06C3A934, 0x7F033821)]),
        ("x", 255, [0; 4], [(0x30557DA6, 0x00000000), (0x2AA7169E, 0x655F9D9C), (0x6C4C00EE, 0x0EAFDB6B), (0x30557DA6, 0x00000000), (0x2AA7169E, 0x655F9D9C), (0x6C4C00EE, 0x0EAFDB6B)]),
        ("x", 255, SEED, [(0x30557DA6, 0x00000000), (0x34D28950, 0x4735860E), (0x6AEDFF40, 0x642F619E), (0x30557DA6, 0x00000000), (0x34D28950, 0x4735860E), (0x6AEDFF40, 0x642F619E)]),
        ("ÿ", 127, [0; 4], [(0x675740EA, 0x00000000), (0xD706C71E, 0x6ECC9D3C), (0xFF10EECC, 0x7446AF64), (0x31602BCE, 0x00000000), (0x26BB6B40, 0xE2160D47), (0x7ED42276, 0x0C3293C7)]),
        ("ÿ", 127, SEED, [(0x675740EA, 0x00000000), (0x1A1F710A, 0xC659C513), (0xCA3A0C0A, 0xFB25DC6E), (0x31602BCE, 0x00000000), (0x2D98F532, 0x235D2C58), (0x2D0CBF5E, 0x08F0CFDB)]),
    ];

    #[test]
    fn hashes_are_those_of_e2fsprogs() {
        let versions = [HashVersion::Legacy, HashVersion::HalfMd4, HashVersion::Tea];
        for (name, times, seed, answers) in ANSWERS {
            let name = name.repeat(*times);
            for (i, (major, minor)) in answers.iter().enumerate() {
                let h = Hasher::new(versions[i % 3], i >= 3, *seed).hash(name.as_bytes());
                assert_eq!((h.major, h.minor), (*major, *minor), "{name} version {i}");
            }
        }
    }
}
