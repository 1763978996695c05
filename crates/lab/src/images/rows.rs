//! One image of each kind of damage that the documents name, made without chance.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::base;
use super::seen::{By, Seen, look};
use crate::cmd::{run, text};

const SIZE: u64 = 24 << 20;

/// An image of the table in docs/testing.md.
pub(super) struct Row {
    pub(super) image: &'static str,
    shape: &'static [&'static str],
    debugfs: &'static [&'static str],
    /// A change behind the checksums' back.
    edit: fn(&Path) -> Result<()>,
    /// What is called on the mount.
    calls: &'static [&'static str],
    /// The test of Quire's side.
    pub(super) test: &'static str,
}

const EXT4: &[&str] = &["-t", "ext4"];
const PLAIN: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
const GROUPS: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^flex_bg,^resize_inode"];
const NEW: &str = "echo x >new";

/// The inode of "victim": after "kept", 12 files in it, "busy", its 40 and "deep", and "append".
const ROWS: &[Row] = &[
    Row {
        image: "orphan list corrupt",
        shape: EXT4,
        debugfs: &["ssv last_orphan 900"],
        edit: nothing,
        calls: &[NEW],
        test: "`fs`: `a_corrupt_record_of_orphans_leaves_an_image_that_others_can_use`; `cli`: \
               `a_mount_without_its_record_of_orphans_leaves_plain_ext4`",
    },
    Row {
        image: "one orphan damaged (its extent tree)",
        shape: PLAIN,
        debugfs: &[
            "sif victim links_count 0",
            "sif victim block[0] 0x11223344",
            "ssv last_orphan VICTIM",
            "unlink victim",
        ],
        edit: nothing,
        calls: &[NEW],
        test: "`fs`: `an_orphan_that_is_damaged_does_not_stop_the_mount`",
    },
    Row {
        image: "an orphan, with `quota`",
        shape: &["-t", "ext4", "-O", "quota"],
        debugfs: &["sif victim links_count 0", "ssv last_orphan VICTIM", "unlink victim"],
        edit: nothing,
        calls: &[NEW],
        test: "`cli`: `recover_claims_only_what_it_did`",
    },
    Row {
        image: "made for the Hurd",
        shape: &["-t", "ext2", "-o", "hurd", "-b", "1024", "-I", "256"],
        debugfs: &[],
        edit: nothing,
        calls: &[NEW, "rm victim"],
        test: "`fs`: `an_image_made_for_the_hurd_stays_one`",
    },
    Row {
        image: "root directory unusable",
        shape: EXT4,
        debugfs: &["sif <2> mode 0100644"],
        edit: nothing,
        calls: &[],
        test: "`fs`: `a_root_directory_that_cannot_be_used_is_refused_by_its_number`",
    },
    Row {
        image: "a log that spoils the root directory's inode",
        shape: PLAIN,
        debugfs: &[],
        edit: log_over_root,
        calls: &[],
        test: "`fs`: `a_log_that_spoils_the_root_is_refused_before_it_is_replayed`; `cli`: \
               `recover_decides_before_it_writes`",
    },
    Row {
        image: "an attribute's value in an inode, without `ea_inode`",
        shape: PLAIN,
        debugfs: &["ea_set append user.a value"],
        edit: value_inode,
        calls: &["getfattr -n user.a append", "setfattr -n user.b -v 1 append"],
        test: "`fs`: `values_in_inodes_without_their_feature_are_refused`",
    },
    Row {
        image: "inline flag without `inline_data`",
        shape: PLAIN,
        debugfs: &["sif append flags 0x10000000"],
        edit: nothing,
        calls: &["cat append", "echo x >>append"],
        test: "`fs`: `an_inline_flag_without_its_feature_is_refused`",
    },
    Row {
        image: "inline file of 1 GiB",
        shape: &["-t", "ext4", "-O", "inline_data", "-I", "256"],
        debugfs: &["write /dev/null inline", "sif inline size 0x40000000"],
        edit: nothing,
        calls: &["head -c 4096 inline"],
        test: "`fs`: `an_inline_file_is_zeros_behind_what_its_inode_holds_and_counts_its_size`",
    },
    Row {
        image: "a symbolic link in its inode is not as long as it says",
        shape: EXT4,
        debugfs: &["sif short size 65"],
        edit: nothing,
        calls: &["readlink -v short", "rm short"],
        test: "`fs`: `a_link_that_is_shorter_than_its_size_is_read_unless_it_is_in_the_inode_s_map`, \
               `a_link_s_text_is_never_named_as_a_block`",
    },
    Row {
        image: "block bitmap does not match its checksum",
        shape: EXT4,
        debugfs: &["set_bg 0 block_bitmap_csum 0x12345678", "set_bg 0 checksum calc"],
        edit: nothing,
        calls: &[NEW, "rm victim"],
        test: "`fs`: `a_bitmap_with_a_bit_changed_is_refused`",
    },
    Row {
        image: "a group in use says that it was never used",
        shape: GROUPS,
        debugfs: &["set_bg 0 flags 0x6", "set_bg 0 checksum calc"],
        edit: nothing,
        calls: &[NEW],
        test: "`fs`: `a_used_group_that_says_it_was_never_used_keeps_its_data`",
    },
    Row {
        image: "a file's blocks are marked free",
        shape: GROUPS,
        debugfs: &["freeb 1 8000"],
        edit: nothing,
        calls: &["rm victim", NEW],
        test: "`fs`: `after_a_free_of_blocks_that_are_free_nothing_is_taken_in_their_group`",
    },
    Row {
        image: "an inode in use is marked free",
        shape: PLAIN,
        debugfs: &["freei <VICTIM>"],
        edit: nothing,
        calls: &["cat victim", NEW],
        test: "`fs`: `an_inode_in_use_that_is_marked_free_is_not_handed_out`",
    },
    Row {
        image: "a file's extent tree is garbage",
        shape: EXT4,
        debugfs: &["sif append block[0] 0x11223344"],
        edit: nothing,
        calls: &["cat append", NEW],
        test: "`cli`: `umount_after_an_error_names_what_to_do`",
    },
    Row {
        image: "the same, with `errors=remount-ro` in the superblock",
        shape: &["-t", "ext4", "-e", "remount-ro"],
        debugfs: &["sif append block[0] 0x11223344"],
        edit: nothing,
        calls: &["cat append", NEW],
        test: "`cli`: `umount_after_an_error_names_what_to_do`",
    },
    Row {
        image: "truncated",
        shape: EXT4,
        debugfs: &[],
        edit: cut,
        calls: &[],
        test: "`cli`: `recover_says_what_a_mount_would_refuse`",
    },
    Row {
        image: "group descriptors are garbage",
        shape: EXT4,
        debugfs: &[],
        edit: garbage_descriptors,
        calls: &[],
        test: "`cli`: `recover_says_what_a_mount_would_refuse`",
    },
    Row {
        image: "superblock does not match its checksum, and the log is empty",
        shape: EXT4,
        debugfs: &[],
        edit: spoilt_superblock,
        calls: &[],
        test: "`layout`: `a_flipped_bit_is_refused`",
    },
];

/// Makes the images of the table in a directory, and looks at each as the kernel and as Quire mount it.
pub(super) fn rows(dir: &Path) -> Result<Vec<(&'static Row, Seen, Seen)>> {
    ROWS.iter().map(|row| one(dir, row).with_context(|| row.image)).collect()
}

fn one(dir: &Path, row: &'static Row) -> Result<(&'static Row, Seen, Seen)> {
    let image = base::format(&dir.join("row.img"), SIZE, row.shape)?;
    base::fill(&image, 1)?;
    let stat = image.debugfs(false, &["stat victim".into()])?;
    let ino = stat.split("Inode: ").nth(1).and_then(|rest| rest.split(' ').next()).context("victim's inode")?;
    let commands: Vec<String> = row.debugfs.iter().map(|c| c.replace("VICTIM", ino)).collect();
    if !commands.is_empty() {
        base::debugfs(image.path(), &commands)?;
    }
    (row.edit)(image.path())?;
    let mnt = dir.join("mnt");
    let (ours, theirs) = (image.copy("ours.img")?, image.copy("theirs.img")?);
    Ok((row, look(By::Kernel, &theirs, &mnt, row.calls)?, look(By::Quire, &ours, &mnt, row.calls)?))
}

fn nothing(_: &Path) -> Result<()> {
    Ok(())
}

fn change(image: &Path, change: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let mut bytes = fs::read(image)?;
    change(&mut bytes)?;
    Ok(fs::write(image, bytes)?)
}

fn cut(image: &Path) -> Result<()> {
    Ok(fs::File::options().write(true).open(image)?.set_len(SIZE / 2)?)
}

fn garbage_descriptors(image: &Path) -> Result<()> {
    change(image, |bytes| {
        // Behind the superblock's block of 1 KiB.
        bytes[2048..3072].fill(0xa5);
        Ok(())
    })
}

/// The label is another.
fn spoilt_superblock(image: &Path) -> Result<()> {
    change(image, |bytes| {
        bytes[1024 + 0x78] ^= 1;
        Ok(())
    })
}

/// `e_value_inum` of the attribute "a", 12 bytes before its name.
fn value_inode(image: &Path) -> Result<()> {
    change(image, |bytes| {
        let name = bytes.windows(4).position(|w| w == [b'a', 0, 0, 0]).context("the attribute's name")?;
        bytes[name - 12..name - 8].copy_from_slice(&11_u32.to_le_bytes());
        Ok(())
    })
}

/// A transaction that is whole, and writes zeros over the first block of the inode table.
fn log_over_root(image: &Path) -> Result<()> {
    let said = run(base::tool("debugfs").args(["-R", "imap <2>"]).arg(image))?;
    let block = said.split("at block ").nth(1).and_then(|rest| rest.split(',').next()).context("the root's block")?;
    let zeros = image.with_extension("zeros");
    fs::write(&zeros, [0; 1024])?;
    base::debugfs(image, &["jo".into(), format!("jw -b {block} {}", text(&zeros)), "jc".into()])
}
