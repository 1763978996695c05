//! Feature words of the superblock and what this implementation does about each bit.
//!
//! Source: kernel documentation, "ext4: super block". The policy follows FORMAT rules: an unknown INCOMPAT bit
//! refuses the mount, an unknown RO_COMPAT bit makes it read-only; each refusal names the feature.

use crate::error::Unsupported;

/// Feature bits: `s_feature_compat`.
pub mod compat {
    pub const DIR_PREALLOC: u32 = 0x1;
    pub const IMAGIC_INODES: u32 = 0x2;
    pub const HAS_JOURNAL: u32 = 0x4;
    pub const EXT_ATTR: u32 = 0x8;
    pub const RESIZE_INODE: u32 = 0x10;
    pub const DIR_INDEX: u32 = 0x20;
    pub const SPARSE_SUPER2: u32 = 0x200;
    pub const FAST_COMMIT: u32 = 0x400;
    pub const STABLE_INODES: u32 = 0x800;
    pub const ORPHAN_FILE: u32 = 0x1000;
}

/// Feature bits: `s_feature_incompat`.
pub mod incompat {
    pub const COMPRESSION: u32 = 0x1;
    pub const FILETYPE: u32 = 0x2;
    pub const RECOVER: u32 = 0x4;
    pub const JOURNAL_DEV: u32 = 0x8;
    pub const META_BG: u32 = 0x10;
    pub const EXTENTS: u32 = 0x40;
    pub const BIT64: u32 = 0x80;
    pub const MMP: u32 = 0x100;
    pub const FLEX_BG: u32 = 0x200;
    pub const EA_INODE: u32 = 0x400;
    pub const DIRDATA: u32 = 0x1000;
    pub const CSUM_SEED: u32 = 0x2000;
    pub const LARGEDIR: u32 = 0x4000;
    pub const INLINE_DATA: u32 = 0x8000;
    pub const ENCRYPT: u32 = 0x1_0000;
    pub const CASEFOLD: u32 = 0x2_0000;
    /// Quire's own logs (docs/format.md). Unregistered; every other tool refuses the image while it is set.
    pub const QUIRE_LOG: u32 = 0x8_0000;
}

/// Feature bits: `s_feature_ro_compat`.
pub mod ro_compat {
    pub const SPARSE_SUPER: u32 = 0x1;
    pub const LARGE_FILE: u32 = 0x2;
    pub const BTREE_DIR: u32 = 0x4;
    pub const HUGE_FILE: u32 = 0x8;
    pub const GDT_CSUM: u32 = 0x10;
    pub const DIR_NLINK: u32 = 0x20;
    pub const EXTRA_ISIZE: u32 = 0x40;
    pub const QUOTA: u32 = 0x100;
    pub const BIGALLOC: u32 = 0x200;
    pub const METADATA_CSUM: u32 = 0x400;
    pub const READONLY: u32 = 0x1000;
    pub const PROJECT: u32 = 0x2000;
    pub const SHARED_BLOCKS: u32 = 0x4000;
    pub const VERITY: u32 = 0x8000;
    pub const ORPHAN_PRESENT: u32 = 0x1_0000;
}

/// What this implementation does about a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// Read and written.
    Full,
    /// Read and kept intact, never written: the mount is read-only.
    ReadOnly,
    /// Not even read: the mount is refused.
    None,
}

struct Known {
    bit: u32,
    name: &'static str,
    support: Support,
}

const fn known(bit: u32, name: &'static str, support: Support) -> Known {
    Known { bit, name, support }
}

use Support::{Full, None as No, ReadOnly};

/// Compat features never stop a mount.
const COMPAT: &[Known] = &[
    known(compat::DIR_PREALLOC, "dir_prealloc", Full),
    known(compat::IMAGIC_INODES, "imagic_inodes", Full),
    known(compat::HAS_JOURNAL, "has_journal", Full),
    known(compat::EXT_ATTR, "ext_attr", Full),
    known(compat::RESIZE_INODE, "resize_inode", Full),
    known(compat::DIR_INDEX, "dir_index", Full),
    known(compat::SPARSE_SUPER2, "sparse_super2", Full),
    known(compat::FAST_COMMIT, "fast_commit", Full),
    known(compat::STABLE_INODES, "stable_inodes", Full),
    known(compat::ORPHAN_FILE, "orphan_file", Full),
];

const INCOMPAT: &[Known] = &[
    known(incompat::COMPRESSION, "compression", No),
    known(incompat::FILETYPE, "filetype", Full),
    known(incompat::RECOVER, "needs_recovery", Full),
    known(incompat::JOURNAL_DEV, "journal_dev", No),
    known(incompat::META_BG, "meta_bg", Full),
    known(incompat::EXTENTS, "extent", Full),
    known(incompat::BIT64, "64bit", Full),
    known(incompat::MMP, "mmp", ReadOnly),
    known(incompat::FLEX_BG, "flex_bg", Full),
    known(incompat::EA_INODE, "ea_inode", ReadOnly),
    known(incompat::DIRDATA, "dirdata", No),
    known(incompat::CSUM_SEED, "metadata_csum_seed", Full),
    known(incompat::LARGEDIR, "large_dir", Full),
    known(incompat::INLINE_DATA, "inline_data", Full),
    known(incompat::ENCRYPT, "encrypt", No),
    known(incompat::CASEFOLD, "casefold", No),
    known(incompat::QUIRE_LOG, "quire_log", Full),
];

const RO_COMPAT: &[Known] = &[
    known(ro_compat::SPARSE_SUPER, "sparse_super", Full),
    known(ro_compat::LARGE_FILE, "large_file", Full),
    known(ro_compat::BTREE_DIR, "btree_dir", ReadOnly),
    known(ro_compat::HUGE_FILE, "huge_file", Full),
    known(ro_compat::GDT_CSUM, "uninit_bg", Full),
    known(ro_compat::DIR_NLINK, "dir_nlink", Full),
    known(ro_compat::EXTRA_ISIZE, "extra_isize", Full),
    known(ro_compat::QUOTA, "quota", ReadOnly),
    known(ro_compat::BIGALLOC, "bigalloc", ReadOnly),
    known(ro_compat::METADATA_CSUM, "metadata_csum", Full),
    known(ro_compat::READONLY, "read-only", ReadOnly),
    known(ro_compat::PROJECT, "project", ReadOnly),
    known(ro_compat::SHARED_BLOCKS, "shared_blocks", ReadOnly),
    known(ro_compat::VERITY, "verity", ReadOnly),
    known(ro_compat::ORPHAN_PRESENT, "orphan_present", Full),
];

/// The three feature words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    pub compat: u32,
    pub incompat: u32,
    pub ro_compat: u32,
}

/// How an image with these features may be mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    ReadWrite,
    /// Read-only, because of the features named.
    ReadOnly(Vec<String>),
}

impl Features {
    #[must_use]
    pub fn has_compat(&self, bit: u32) -> bool {
        self.compat & bit != 0
    }

    #[must_use]
    pub fn has_incompat(&self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    #[must_use]
    pub fn has_ro_compat(&self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }

    #[must_use]
    pub fn metadata_csum(&self) -> bool {
        self.has_ro_compat(ro_compat::METADATA_CSUM)
    }

    /// How an image with these features may be mounted.
    ///
    /// # Errors
    /// Names every INCOMPAT feature that this version cannot read.
    pub fn access(&self) -> Result<Access, Unsupported> {
        let refused = with_support(INCOMPAT, "incompat", self.incompat, No, No);
        if !refused.is_empty() {
            return Err(Unsupported::new(format!("file system feature {}", refused.join(", "))));
        }
        let mut read_only = with_support(INCOMPAT, "incompat", self.incompat, ReadOnly, No);
        read_only.extend(with_support(RO_COMPAT, "ro_compat", self.ro_compat, ReadOnly, ReadOnly));
        Ok(if read_only.is_empty() { Access::ReadWrite } else { Access::ReadOnly(read_only) })
    }

    /// Names of all set features, in the order of `dumpe2fs`; unknown ones as `FEATURE_I20`-style names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let words = [(COMPAT, "C", self.compat), (INCOMPAT, "I", self.incompat), (RO_COMPAT, "R", self.ro_compat)];
        let mut out = Vec::new();
        for (table, letter, word) in words {
            for bit in (0..32).map(|n| 1u32 << n).filter(|b| word & b != 0) {
                out.push(match table.iter().find(|k| k.bit == bit) {
                    Some(k) => k.name.to_owned(),
                    None => format!("FEATURE_{letter}{}", bit.trailing_zeros()),
                });
            }
        }
        out
    }
}

/// Names of the set bits whose support is `wanted`; a bit that the table does not know counts as `unknown`.
fn with_support(table: &[Known], word_name: &str, word: u32, wanted: Support, unknown: Support) -> Vec<String> {
    let bits = (0..32).map(|n| 1u32 << n).filter(|b| word & b != 0);
    bits.filter_map(|bit| match table.iter().find(|k| k.bit == bit) {
        Some(k) => (k.support == wanted).then(|| k.name.to_owned()),
        None => (unknown == wanted).then(|| format!("{word_name} {bit:#x}")),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_mke2fs_features_are_read_write() {
        let f = Features { compat: 0x3c, incompat: 0x2c2, ro_compat: 0x46b };
        assert_eq!(f.access(), Ok(Access::ReadWrite));
    }

    #[test]
    fn unknown_bits_are_named() {
        let f = Features { incompat: 0x8000_0000, ..Features::default() };
        assert!(f.access().unwrap_err().what.contains("0x80000000"));
        let f = Features { ro_compat: 0x4000_0000, ..Features::default() };
        assert_eq!(f.access(), Ok(Access::ReadOnly(vec!["ro_compat 0x40000000".into()])));
        assert_eq!(f.names(), ["FEATURE_R30"]);
    }
}
