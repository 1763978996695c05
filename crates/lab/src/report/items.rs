//! What each technique, figure and table of the four papers is shown by.

use crate::results::{Paper, Verdict};

/// How an item is shown.
pub(super) enum By {
    /// By the claims of these studies whose place begins so.
    Claims(&'static str, &'static [&'static str]),
    /// By a test of this name.
    Test(&'static str),
    /// By a test of this name, which shows other than what the paper has, and what is other and why.
    Less(&'static str, &'static str),
    /// It is measured apart from the laboratory's studies, by this command; what came of it, and where.
    Elsewhere(&'static str, Verdict, &'static str, &'static str),
    /// It cannot be had here, and why; these studies draw the part that can.
    Not(&'static [&'static str], &'static str),
}

/// What measured bricks of GlusterFS on disks of the model, as it is recorded.
pub(super) const GLUSTER: &str = "sudo scripts/clusters.py bench gluster --rounds 3 --quick --device hdd15k";

use By::{Claims, Elsewhere, Less, Not, Test};

pub(super) const ITEMS: &[(Paper, &str, By)] = &[
    (
        Paper::Joj,
        "single-I/O commit: data and metadata in one sequential write that checks itself",
        Test("single_io_commits_with_one_write_and_one_flush"),
    ),
    (
        Paper::Joj,
        "a journaling mode for each file, set by the application",
        Test("a_mode_is_set_ruled_handed_down_or_the_default"),
    ),
    (
        Paper::Joj,
        "growth of files in ordered mode goes in place",
        Test("growth_of_an_ordered_file_goes_in_place_before_the_commit"),
    ),
    (
        Paper::Joj,
        "an fsync of stock ext4 with data journaling writes earlier journaled buffers home",
        Test("an_fsync_that_checkpoints_writes_earlier_journaled_blocks_home"),
    ),
    (
        Paper::Joj,
        "figure 1: the calls of a transaction; four syncs with a rollback journal, one with a write-ahead log",
        Test("a_transaction_syncs_once_with_a_write_ahead_log_and_four_times_with_a_rollback_journal"),
    ),
    (
        Paper::Joj,
        "section 3.1: nine small writes of 2,576 bytes are 45,056 bytes of log",
        Test("nine_small_writes_take_two_blocks_of_log_at_most_and_eleven_as_whole_blocks"),
    ),
    (
        Paper::Joj,
        "section 2.1: what is overwritten or deleted before it goes home never does",
        Test("what_dies_in_the_log_is_never_written_home"),
    ),
    (
        Paper::Joj,
        "section 2.1: a commit that checks itself: recovery has to know corruption from the end of the log",
        Test("a_tear_is_no_damage_and_damage_is_no_tear"),
    ),
    (
        Paper::Joj,
        "section 2.1: with journal_async_commit ordered mode has no order between data and the commit that names it",
        Less(
            "ordered_data_takes_a_flush_of_its_own_only_where_it_must",
            "data in place is flushed before a commit that checks itself, because recovery would believe the commit \
             without the data",
        ),
    ),
    (
        Paper::Joj,
        "section 2.2: a change of a file's mode flushes all pending transactions",
        Less(
            "a_mode_may_change_at_any_time",
            "it flushes nothing: a block whose record is in the log goes on through the log, whatever the mode says, \
             until it has gone home or is revoked, so a replay cannot undo a later write in place",
        ),
    ),
    (
        Paper::Joj,
        "section 2.2: a block that a journaled file frees and an ordered one takes may be undone by a replay; revoke \
         records are not in the prototype",
        Less("a_revoked_block_is_not_replayed", "Quire revokes what is freed, as ext4 does, so no replay undoes it"),
    ),
    (Paper::Joj, "section 2.2: which journal suits which log", Claims("section 2.2", &["joj-sqlite", "joj-mounts"])),
    (Paper::Joj, "figure 2: 12 SQLite cases on a tablet's eMMC", Claims("figure 2", &["joj-sqlite"])),
    (Paper::Joj, "figure 3: the same on an Intel 311 SSD", Claims("figure 3", &["joj-sqlite"])),
    (Paper::Joj, "the 24 cases of figures 2 and 3 together", Claims("section 3.1", &["joj-sqlite", "joj-mounts"])),
    (
        Paper::Joj,
        "figures 2 and 3: error bars: most tests show stable results",
        Claims("figures 2 and 3, error bars", &["joj-sqlite", "joj-mounts"]),
    ),
    (
        Paper::Joj,
        "figure 4: full protection, the database's alone, none",
        Claims("figure 4", &["joj-sqlite", "joj-mounts"]),
    ),
    (
        Paper::Djfs,
        "section II.1, figure 1: jbd2's commit: descriptor, blocks, a flush, the commit block with FUA, all as whole \
         blocks",
        Test("calls_cost_one_block_and_one_flush_beside_what_they_cost_with_jbd2"),
    ),
    (Paper::Djfs, "section II.1: implicit checkpoint when a timer expires", Test("what_is_old_in_the_log_goes_home")),
    (
        Paper::Djfs,
        "section II.1: explicit checkpoint when the journal has no room",
        Test("a_full_log_is_checkpointed_and_wraps"),
    ),
    (
        Paper::Djfs,
        "section V.1: journaling without flushes: an fsync asks nothing of the device",
        Test("an_fsync_into_nvram_asks_nothing_of_the_device"),
    ),
    (
        Paper::Djfs,
        "section V.2, figure 4: delta journaling: a block is logged whole, then as what differs",
        Test("a_torn_transaction_in_nvram_is_dropped_and_deltas_are_merged"),
    ),
    (
        Paper::Djfs,
        "section V.2: of descriptor and commit blocks only the bytes that they use are logged",
        Test("descriptor_and_commit_take_what_they_use_and_whole_blocks_without_deltas"),
    ),
    (
        Paper::Djfs,
        "section V.2: the tag of a block has the offset and the length of what is logged of it",
        Less(
            "descriptor_and_commit_take_what_they_use_and_whole_blocks_without_deltas",
            "a record has the length of its body and no offset, because bodies stand in the order of their records",
        ),
    ),
    (
        Paper::Djfs,
        "section V.2: a block that several writes change in a transaction has one difference taken",
        Test("a_block_that_changes_twice_in_a_transaction_is_one_delta"),
    ),
    (
        Paper::Djfs,
        "section V.2: a difference is an exclusive or, compressed by LZO",
        Less(
            "a_delta_makes_the_image",
            "it is an LZ4 block; what differs by a few bytes is written as one without a search",
        ),
    ),
    (
        Paper::Djfs,
        "section V.2: originals of changed blocks are in DRAM; a copy is dropped when its difference is taken",
        Less(
            "base_images_are_bounded_by_the_cache",
            "the image that was logged last stays until it has gone home: it is written from there, and the next \
             difference is taken from it; such images take twice the cache's size at most",
        ),
    ),
    (
        Paper::Djfs,
        "section V.3, figure 5: regions go home in the background, one at a time, and commits wait when all are full",
        Test("regions_go_home_and_commits_stall_when_all_are_full"),
    ),
    (
        Paper::Djfs,
        "section V.3: at a switch of regions blocks are in the normal state again, and are logged whole",
        Test("a_region_switch_logs_whole_blocks_again_and_takes_one_flush"),
    ),
    (
        Paper::Djfs,
        "section V.3: a region is freed by one flush and one FUA write",
        Less(
            "a_region_switch_logs_whole_blocks_again_and_takes_one_flush",
            "one flush and no FUA write: the journal's superblock is written before the flush, and what frees the \
             region is stored in the NVRAM",
        ),
    ),
    (
        Paper::Djfs,
        "section V.4: recovery after a crash during a checkpoint, or during recovery",
        Test("a_power_cut_while_a_region_goes_home_and_one_in_recovery_lose_no_commit"),
    ),
    (
        Paper::Djfs,
        "section VI.1: stores pass the processor's caches into NVRAM, and are fenced",
        Test("regions_go_home_and_commits_stall_when_all_are_full"),
    ),
    (
        Paper::Djfs,
        "an fsync of ext4 with full journaling writes earlier journaled buffers home",
        Test("an_fsync_of_full_journaling_writes_earlier_journaled_blocks_home"),
    ),
    (Paper::Djfs, "figure 2: what consistency costs ext4", Claims("figure 2", &["djfs-randwrite", "djfs-mounts"])),
    (
        Paper::Djfs,
        "figure 3: external journaling, journaling in NVRAM",
        Claims("figure 3", &["djfs-randwrite", "djfs-mounts"]),
    ),
    (
        Paper::Djfs,
        "figure 6: recovery: a torn transaction is dropped, deltas are merged with whole blocks",
        Test("a_torn_transaction_in_nvram_is_dropped_and_deltas_are_merged"),
    ),
    (
        Paper::Djfs,
        "figure 7: random writes by frequency of fsync",
        Claims("figure 7", &["djfs-randwrite", "djfs-mounts"]),
    ),
    (
        Paper::Djfs,
        "table 1: flushes, FUA and journal writes of TPC-C",
        Claims("table 1", &["djfs-table1", "djfs-table1-mounts"]),
    ),
    (Paper::Djfs, "figure 8: TPC-C on SQLite", Claims("figure 8", &["djfs-tpcc", "djfs-table1-mounts"])),
    (Paper::Djfs, "section V.2: what deltas cost to compute", Claims("section V.2", &["djfs-tpcc"])),
    (Paper::Djfs, "figure 9: TPC-C by the NVRAM's latency", Claims("figure 9", &["djfs-tpcc", "djfs-table1-mounts"])),
    (Paper::Djfs, "figure 10: what base images cost the page cache", Claims("figure 10", &["djfs-figure10"])),
    (
        Paper::Okeanos,
        "section 4, figure 3: wasteless journaling: a tag to each write, a copy of what is written",
        Less(
            "a_whole_block_counts_by_the_bytes_that_differ",
            "a record has the bytes in which the block differs from what it was; the paper copies the write itself, \
             whatever it changes, with one tag (offset, length) to a write",
        ),
    ),
    (
        Paper::Okeanos,
        "section 4: several writes share a multiwrite block; metadata and what a write changes wholly are regular \
         blocks",
        Test("small_writes_of_several_files_share_a_block_of_the_log_and_whole_blocks_do_not"),
    ),
    (
        Paper::Okeanos,
        "section 4: recovery merges multiwrite records with the blocks at home; regular blocks go home without a read",
        Test("recovery_reads_the_home_of_a_part_of_a_block_and_not_that_of_a_whole_one"),
    ),
    (
        Paper::Okeanos,
        "sections 3, 4, figure 2: selective journaling by write size; update sequences",
        Test("a_sequence_goes_the_way_of_its_first_update"),
    ),
    (
        Paper::Okeanos,
        "sections 3, 4: with wasteless updates are atomic, a prefix of them is recovered",
        Test("wasteless_requests_are_a_prefix"),
    ),
    (
        Paper::Okeanos,
        "section 4: what selective logs is atomic for its block, what it writes in place is as with ordered",
        Test("selective_updates_below_a_page_are_whole_and_others_as_ordered"),
    ),
    (
        Paper::Okeanos,
        "figure 1: journal traffic by request size",
        Claims("figure 1", &["okeanos-requests", "okeanos-streams-mounts"]),
    ),
    (
        Paper::Okeanos,
        "figure 4a: journal traffic of slow streams",
        Claims("figure 4a", &["okeanos-slow", "okeanos-mounts"]),
    ),
    (Paper::Okeanos, "figure 4b: traffic to the file system", Claims("figure 4b", &["okeanos-slow", "okeanos-mounts"])),
    (Paper::Okeanos, "recovery time", Claims("section 6, recovery", &["okeanos-slow", "okeanos-streams-mounts"])),
    (Paper::Okeanos, "figure 4c: latency of fast streams", Claims("figure 4c", &["okeanos-fast", "okeanos-mounts"])),
    (
        Paper::Okeanos,
        "asynchronous writes",
        Claims("section 6, asynchronous", &["okeanos-asynchronous", "okeanos-streams-mounts"]),
    ),
    (Paper::Okeanos, "section 3: write-home of journaled buffers by age", Test("what_is_old_in_the_log_goes_home")),
    (Paper::Okeanos, "section 3: write-home for lack of journal space", Test("a_full_log_is_checkpointed_and_wraps")),
    (
        Paper::Okeanos,
        "section 1, contribution (iv): up to an order of magnitude in several metrics",
        Claims("section 1", &["okeanos-slow"]),
    ),
    (
        Paper::Okeanos,
        "section 1, contribution (v): wasteless doubles what parallel checkpointing writes, at a parallel file system",
        Elsewhere(
            GLUSTER,
            Verdict::Held,
            "held (1 of 1)",
            "by the medians of writes of 1 KiB in docs/clusters.md, \"GlusterFS' bricks and figure 5c\"; rounds reach \
             out of 1.8 to 2.2 times on both sides; of a data server alone (figure 5c) the ratio is more than three in \
             both studies, so it is about two of these bricks only",
        ),
    ),
    (
        Paper::Okeanos,
        "figures 4c and 4d: NILFS2 beside ext3",
        Not(
            &["okeanos-fast", "okeanos-mounts", "okeanos-readback", "okeanos-streams-mounts"],
            "the kernel here has no NILFS2; the studies draw the side of ext3's modes, 4d's in `okeanos-readback` and \
             `okeanos-streams-mounts`",
        ),
    ),
    (Paper::Okeanos, "figure 5a: Postmark", Claims("figure 5a", &["okeanos-postmark", "okeanos-applications-mounts"])),
    (
        Paper::Okeanos,
        "figure 5b: the transaction log of InnoDB",
        Claims("figure 5b", &["okeanos-innodb", "okeanos-applications-mounts"]),
    ),
    (
        Paper::Okeanos,
        "figure 5c: PVFS2 with an MPI-IO benchmark, throughput (the data server alone)",
        Claims("figure 5c", &["okeanos-server", "okeanos-applications-mounts"]),
    ),
    (
        Paper::Okeanos,
        "figure 5c: the same with a parallel file system: bricks of GlusterFS for PVFS2",
        Elsewhere(
            GLUSTER,
            Verdict::NotHeld,
            "1 held, 1 differs, 2 not held",
            "writes of 1 KiB in docs/clusters.md, \"GlusterFS' bricks and figure 5c\". Wasteless is more than twice as \
             fast as ordered, supposedly by what a write takes beside the disk, of which bricks have no calibration \
             (okeanos-5c-mounts has one of the data server alone). The kernel's journal is below ordered, supposedly \
             because a synchronous write of today's data=journal also writes the block home; of the data server alone \
             one that leaves blocks in memory is above ordered (okeanos-5c-mounts), and bricks with it are not \
             measured. Selective is as fast as wasteless, because it logs the same below a page",
        ),
    ),
    (
        Paper::Okeanos,
        "figure 5d: the same, bytes (the data server alone)",
        Claims("figure 5d", &["okeanos-server", "okeanos-applications-mounts"]),
    ),
    (
        Paper::Rfj,
        "section 3.2: journal what is overwritten, write what is new in place first",
        Test("what_is_overwritten_is_journaled_and_what_is_new_is_not"),
    ),
    (
        Paper::Rfj,
        "section 2.2: after a crash writeback mode may have metadata of data that was never written",
        Less(
            "writeback_data_survives_as_ordered_data_does",
            "Quire writes data of both modes before metadata names it, so that a crash leaves what it leaves with \
             ordered; the modes of the studies' baselines differ by what a commit does with other files' data",
        ),
    ),
    (
        Paper::Rfj,
        "section 2.3, figure 3: ordered mode: new data is in place before the metadata; what is overwritten may be \
         new or old",
        Test("ordered_data_survives_and_stale_data_is_never_seen"),
    ),
    (
        Paper::Rfj,
        "section 2.4, figures 1 and 4: journal mode: data and metadata are committed to the journal, and recovered",
        Test("journaled_requests_are_a_prefix"),
    ),
    (
        Paper::Rfj,
        "section 3.2, figures 6 and 7: ordering-enforced writeback: the flusher writes new data, the journaling thread \
         polls a list of it and then logs the metadata",
        Less(
            "a_commit_leaves_new_data_to_the_flusher_and_names_it_when_it_is_in_place",
            "there is no list, and nobody polls: metadata joins a transaction when its data has been written, so that \
             a commit finds none that it would have to wait for",
        ),
    ),
    (
        Paper::Rfj,
        "section 4.2: as reliable as journal mode",
        Less(
            "overwriting_requests_are_whole",
            "each write request is whole or absent after a crash, as with journal mode, which keeps the order of requests, \
             too; RFJ writes new blocks in place before the commit that names them, also in the paper",
        ),
    ),
    (
        Paper::Rfj,
        "section 4.2: existing tools recover it",
        Test("e2fsck_recovers_what_overwriting_requests_left_in_the_log"),
    ),
    (
        Paper::Rfj,
        "a commit of ext3's ordered mode flushes other files' data, one of writeback does not",
        Test("a_commit_of_ordered_writes_other_files_data_and_one_of_writeback_leaves_it_until_it_is_old"),
    ),
    (Paper::Rfj, "section 1: RFJ's write latency beside ordered's", Claims("section 1", &["rfj-fileserver"])),
    (
        Paper::Rfj,
        "figure 2: the modes of ext3 under a file server",
        Claims("figure 2", &["rfj-fileserver", "rfj-mounts"]),
    ),
    (
        Paper::Rfj,
        "figure 5: writes that are new, and that overwrite",
        Not(
            &["rfj-fileserver"],
            "no package has the traces of Microsoft's servers, and the text prints no share of theirs; `quire-lab \
             classify TRACE` counts them, and figure rfj-5 has programs of this laboratory",
        ),
    ),
    (Paper::Rfj, "figure 8: RFJ against the modes of ext3", Claims("figure 8", &["rfj-fileserver", "rfj-mounts"])),
    (
        Paper::Rfj,
        "section 4.3: the workload's new writes, and RFJ with many overwrites",
        Claims("section 4.3", &["rfj-fileserver", "rfj-mounts"]),
    ),
];
