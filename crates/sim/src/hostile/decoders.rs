//! Every decoder of the layout crate on the same bytes. Only panics count.

use quire_layout::dir::{DirFormat, Hasher};
use quire_layout::extent::{self, Node};
use quire_layout::group_desc::{DescChecksum, GroupDesc};
use quire_layout::inode::Inode;
use quire_layout::jbd2::fast_commit::{FastCommitScan, FastCommits};
use quire_layout::jbd2::{self, Checksums, Commit, JournalSuperblock, LogFormat, LogSeed, Revokes, Tags};
use quire_layout::nvlog;
use quire_layout::qlog::{Head, Record, Signature, delta, ranges};
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, BlockSize, FileBlock, GroupNo, Ino, Tid};
use quire_layout::{acl::Acl, indirect, inline_data, orphan_file, xattr};

/// Gives `input` to all decoders; those of blocks get one block of it, padded with zeros.
pub fn decode_all(sb: &Superblock, input: &[u8]) {
    if let Ok(other) = Superblock::decode_unverified(input) {
        (0..other.group_count().min(8)).for_each(|g| {
            let _ = (other.descriptor_at(GroupNo(g)), other.group_start(GroupNo(g)), other.has_backup(GroupNo(g)));
        });
        // It goes through all groups, which a mount has bounded by the device's size before.
        let _ = (other.group_count() < 1 << 16).then(|| other.overhead_clusters());
        let _ = (other.clusters_per_group(), other.features().access(), format!("{other:?}"));
    }
    let _ = (Superblock::decode(input), Superblock::decode_torn(input));
    let _ = GroupDesc::decode(sb, DescChecksum::None, GroupNo(0), input);
    let _ = (Acl::decode(input), Acl::from_xattr(input));
    let mut block = input.to_vec();
    block.resize(sb.block_size().bytes(), 0);
    inode(sb, &block);
    blocks(sb, &block);
    log(&block, input);
}

fn inode(sb: &Superblock, block: &[u8]) {
    let Ok(inode) = Inode::decode(Ino(12), &block[..sb.inode_size()], None) else { return };
    let _ = (
        xattr::decode_inline(Ino(12), &inode, xattr::ValueInodes::Allowed),
        xattr::inline_capacity(&inode),
        quire_layout::inode::device_number(inode.block_area()),
        inode.project(),
    );
    let _ = (inline_data::content(Ino(12), &inode), inline_data::tail(Ino(12), &inode));
    let _ = inode.sectors(sb.features(), sb.block_size().bytes64());
    if extent::check_root(inode.block_area(), |b, n| b.0.checked_add(n).is_some()).is_ok() {
        look(Node::new(inode.block_area()));
    }
}

/// Whatever a node says that has passed its check may be asked for.
fn look(node: Node<'_>) {
    let _ = node.search(FileBlock(1000));
    for i in 0..node.entries() {
        if node.depth() == 0 {
            let _ = (node.extent(i).end(), node.extent(i).part(FileBlock(3), FileBlock(9)), node.extent(i).encode());
        } else {
            let _ = node.index(i);
        }
    }
}

fn blocks(sb: &Superblock, block: &[u8]) {
    if extent::check_block(block, None, |b, n| b.0.checked_add(n).is_some()).is_ok() {
        look(Node::new(block));
    }
    let _ = indirect::check_block(block, |b, _| b.0 < sb.blocks_count());
    let format = DirFormat::of(sb, Ino(12), &Inode::new(sb.inode_size(), 32));
    let _ = (format.check_leaf(block), format.check_root(block, Ino(12)), format.check_node(block));
    let _ = (format.find(block, b"name"), format.has_room(block, 20), format.entries(block).count());
    if let Ok(hasher) = Hasher::for_new(sb) {
        let _ = format.hashed(block, 0, &hasher);
    }
    let mut change = block.to_vec();
    let _ = (format.insert(&mut change, b"name", Ino(12), Default::default()), format.remove(&mut change, 24));
    for node in [format.node(block).ok(), format.root(block, Ino(12)).ok().map(|(_, n)| n)].into_iter().flatten() {
        let at = node.search(block, 0x8000_0000);
        let _ = (node.child(block, at), node.hash(block, at));
    }
    if xattr::check_block(block, BlockNo(9), None, xattr::ValueInodes::Allowed).is_ok() {
        let _ = (xattr::decode_block(block, BlockNo(9)), xattr::block_hash(block));
    }
    if orphan_file::check(block, BlockNo(9), None).is_ok() {
        let _ = orphan_file::free_slot(block);
    }
}

fn log(block: &[u8], input: &[u8]) {
    if let Ok(jsb) = JournalSuperblock::decode(block) {
        let _ = (jsb.log_format(), jsb.end(), jsb.users().count(), jsb.features().names());
    }
    let _ = (jbd2::Header::decode(input), Commit::decode(input), FastCommits::new(input).count());
    packed(input);
    let mut scan = FastCommitScan::new(Tid(1));
    let _ = (scan.feed(input), scan.area());
    for checksums in [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3] {
        for wide in [false, true] {
            let block_size = BlockSize::K1;
            let f = LogFormat { block_size, checksums, wide, async_commit: wide, seed: LogSeed(7), uuid: [0; 16] };
            let _ = (f.tail_matches(block), f.tail_matches(input), f.commit_matches(block), f.commit_matches(input));
            let _ = (Tags::new(&f, block).count(), Tags::new(&f, input).count());
            let _ = (Revokes::new(&f, block).map(Iterator::count), Revokes::new(&f, input).map(Iterator::count));
        }
    }
}

/// What Quire's log is made of.
fn packed(input: &[u8]) {
    let bs = BlockSize::K1;
    if let Some((head, mut sum)) = Head::decode(LogSeed(7), bs, input) {
        sum.feed_first(input);
        let _ = (head, sum.matches());
    }
    if let Some(record) = input.first_chunk().and_then(|b| Record::decode(bs, b)) {
        let _ = (record.table_len(), record.kind.is_self_contained());
    }
    let count = input.first().map_or(0, |n| u16::from(*n));
    if let Some(ranges) = ranges::decode_table(bs, input, count) {
        let _ = ranges::apply(&ranges, input, &mut vec![0; bs.bytes()]);
    }
    let _ = delta::apply(input, &mut vec![0; bs.bytes()]);
    if let Some(signature) = input.first_chunk().and_then(|b| Signature::decode(b).ok()) {
        let _ = (signature.check(bs), signature.in_nvram());
    }
    in_nvram(input);
}

/// What its log in NVRAM is made of.
fn in_nvram(input: &[u8]) {
    let Some(label) = input.first_chunk().and_then(nvlog::Label::decode) else { return };
    let _ = (label.check(), label.capacity(), label.place(label.tail));
    if let Some(head) = input.last_chunk().and_then(|b| nvlog::Head::decode(&label, label.tail, b)) {
        let _ = (head.images_at(label.granule), head.commit_at(label.granule));
    }
}

#[cfg(test)]
mod tests {
    use super::super::base::{Base, RECIPES};
    use super::decode_all;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    static BASE: LazyLock<Base> = LazyLock::new(|| Base::new(&RECIPES[0]));

    proptest! {
        #[test]
        fn any_bytes(input in prop::collection::vec(any::<u8>(), 0..1100)) {
            decode_all(&BASE.sb, &input);
        }

        #[test]
        fn real_blocks_with_a_few_other_bytes(
            place in any::<prop::sample::Index>(),
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            len in 0usize..1025,
        ) {
            let p = place.get(&BASE.places);
            let mut b = vec![0; p.len];
            BASE.image.read(p.at, &mut b);
            for (at, v) in edits {
                let at = at.index(b.len());
                b[at] = v;
            }
            b.truncate(len.max(1000));
            decode_all(&BASE.sb, &b);
        }
    }
}
