//! Recovery against its judge: e2fsck recovers one copy of a dirty image, we the other, and they must be equal block by
//! block outside four fields of the superblock.
//!
//! The dirty images come from three sources: forged by this test with every feature and position of the log
//! (`forge`), written by debugfs (`debugfs_made`), and copied from under a live kernel mount (`kernel_made`).

mod continued;
mod damaged;
mod debugfs_made;
mod dumped;
mod forge;
mod forged;
mod hostile;
mod interrupted;
mod judge;
mod kernel_made;
mod seeds;
