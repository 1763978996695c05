//! Inodes that the file system has for itself.

use super::record::Superblock;
use crate::bytes::le32;
use crate::units::Ino;

/// `s_usr_quota_inum`, `s_grp_quota_inum`, `s_prj_quota_inum`.
const QUOTA_FILES: [usize; 3] = [0x240, 0x244, 0x26C];

/// True if no name may lead to the inode: a reserved one other than the root directory, the orphan file, a quota file.
#[must_use]
pub fn is_special(sb: &Superblock, ino: Ino) -> bool {
    let reserved = ino != Ino::ROOT && ino < sb.first_ino();
    let is_quota_file = QUOTA_FILES.iter().any(|at| Ino(le32(sb.bytes(), *at)) == ino);
    reserved || ino == sb.orphan_file_ino() || is_quota_file
}
