//! The models by hazard, and the planted fault that each must notice. A model passes with all
//! guards in place, and fails when a fault removes the guard of its hazard (`src/fault.rs`).
//!
//! | | hazard | model | fault |
//! |---|---|---|---|
//! | H1 | two writers zero each other's part of a block | `writes::two_writers_initialise_one_block`, `policies::two_writers_initialise_one_block_alone` | `OwnBytesOnly` |
//! | H2 | zeros overwrite data that was written after them | `writes::a_write_holds_its_block_until_its_zeros_are_there` | `ReleaseAtSubmission` |
//! | H3 | a file grows over stale bytes, or its last block is zeroed under a writer | `writes::a_file_grows_over_zeros` | `TailNotZeroed`, `ZeroTailWithoutRange` |
//! | H4 | the size is visible before the blocks below it are converted | `sizes::blocks_below_the_size_are_converted` | `SizeFirst` |
//! | H5 | a page is filled during a direct write, and stays stale | `buffered::a_direct_write_races_with_a_page_being_filled` | `PagesOutsideRange`, `PagesNotDiscarded` |
//! | H6 | a page is clean before the map shows its data | `buffered::a_page_is_clean_when_the_map_shows_its_data` | `CleanBeforeConversion` |
//! | H8 | a commit reveals data that is not durable, or is not durable itself | `crashes::no_crash_reveals_unwritten_data`, `crashes::synced_data_survives_any_crash`, `crashes::a_sync_that_shares_a_commit_flushes_its_own_data` | `DataUnflushed`, `CommitUnflushed`, `ShareEveryFlush` |
//! | H9 | zeros over blocks whose contents are not known | `full::a_write_that_is_widened_spares_its_neighbours`, `full::operations_of_one_queue_are_widened_one_after_the_other` | `WidenUnchecked`, `WidenAsWrite` |
//! | H10 | no space is left for the conversion | `full::a_write_completes_though_space_has_run_out` | `ReserveNothing` |
//! | H11 | a truncation races with a conversion | `sizes::a_truncation_races_with_a_write`, `sizes::an_append_races_with_a_truncation`, `queues::a_truncation_races_with_a_write_of_a_queue`, `policies::a_truncation_waits_for_writes_that_share_the_file` | `ReleaseBeforeConversion`, `ReleaseAtSubmission` |
//! | H12 | blocks under a read are used again | `writes::blocks_under_a_read_are_not_reused`, `layout::punched_blocks_are_not_reused_under_a_read` | `ReadWithoutRange`, `PunchWithoutRange` |
//! | H13 | blocks are used again before their free is durable | `crashes::freed_blocks_wait_for_their_commit`, `layout::punched_blocks_wait_for_their_commit`, `checkpoints::freed_blocks_wait_for_their_checkpoint` | `ReuseAtOnce`, `FreedDuringCheckpoint` |
//! | H14 | the size shrinks | `sizes::writes_that_extend_the_file_leave_the_largest_size` | `SizeLowered` |
//! | H15 | a failed extension removes data of concurrent extensions | `appends::an_append_that_fails_leaves_its_neighbours_alone`, `appends::an_append_that_fails_leaves_writes_past_the_end_alone`; unwritten blocks past the end need no orphan entry | `FailedClaimTakesAll`, `FailedClaimTakesAnnounced` |
//! | H16 | written blocks past the size after a crash | `sizes::a_size_and_the_blocks_under_it_commit_together` | `SizeLater` |
//! | H17 | the size on the device covers unwritten data | `sizes::a_size_and_the_blocks_under_it_commit_together`, `sizes::blocks_below_the_size_are_converted`, `crashes::no_crash_reveals_unwritten_data`, and `buffered::the_size_on_the_device_covers_only_written_data` | `SizeFirst`, `DataUnflushed`, `DiskSizeFirst` |
//! | H18 | a sync leaves out a size that grew over written blocks | `sizes::a_sync_carries_a_size_that_grew_over_written_blocks` | `GrowUnjoined` |
//! | H19 | a truncation races with a page being filled | `buffered::a_truncation_races_with_a_page_being_filled` | `PagesOutsideRange` |
//! | H20 | a write, a read or an append races with a collapse or an insertion | `layout::a_write_races_with_a_collapse`, `layout::a_read_races_with_an_insertion`, `layout::an_append_races_with_a_shifted_range` | `ShiftOutsideRange`, `ShiftKeepsClaims` |
//! | H21 | the edges of a hole are zeroed under another operation | `layout::the_edges_of_two_holes_are_in_one_block`, `layout::a_hole_races_with_a_write` | `EdgesOutsideRange` |
//! | H22 | overlapping writes and reads are mixed | `writes::overlapping_writes_are_whole`, `writes::reads_never_see_half_an_overwrite`, `buffered::buffered_reads_never_see_half_a_write` | `ReleaseAtSubmission`, `ReadWithoutRange` |
//! | H23 | a write stops short | `buffered::a_failed_write_leaves_no_data_past_the_end` | `FailedWriteNotDiscarded` |
//! | H25 | the time of an overwrite is lost | `commits::times_of_writes_are_in_the_next_commit`, `commits::the_time_of_an_overwrite_is_in_the_next_commit`, `commits::a_sync_of_the_volume_includes_the_times_of_earlier_writes` | `ListedAfterCommit`, `TimesUnlisted`, `TimesLeftToCommit` |
//! | H26 | a refused operation has an effect | `queues::a_refused_operation_has_no_effect`, `queues::an_operation_refused_for_cached_pages_has_no_effect` | `NowaitClaims`, `NowaitPagesLate` |
//! | H27 | appends are lost, torn or overwrite each other | `appends::appends_are_neither_lost_nor_torn`, `appends::an_append_races_with_a_write_past_the_end`, `appends::an_append_after_a_truncation_goes_to_the_end`, `appends::an_append_whose_block_is_punched_leaves_no_gap`, `queues::an_append_of_a_queue_whose_block_is_punched_leaves_no_gap`, `appends::an_append_of_a_part_of_a_sector_overwrites_no_later_append` | `AppendAtSize`, `WithdrawLate`, `ClaimAgain`, `OvertakenClaimKept` |
//! | H28 | direct and buffered I/O do not see each other's writes | as H5 and H6, and `buffered::writers_of_one_page_keep_out_of_each_others_bytes`, `buffered::a_dirty_page_stays_until_it_is_zeroed` | theirs, and `DroppedUnwritten` |
//! | H29 | data in memory finds no space, or keeps its reservation for good | `buffered::accepted_data_has_its_space_reserved`, `buffered::reserved_space_is_released` | `DelayNothing`, `DelayLeaked` |
//! | H29 | the indirect block of a dirty page is freed | `claims::a_dirty_page_keeps_its_indirect_block` | `DelayedIgnored`, `DelayedUnlocked` |
//! | H30 | a copy of the map or of the size is stale | `sizes::a_reader_within_the_size_sees_the_data`, `queues::a_read_of_a_queue_within_the_size_sees_the_data` | `StaleSize` |
//! | H30 | a read goes past the range that it holds, to a size that was raised during the read | `queues::a_read_of_a_queue_ends_where_its_range_does` | `ReadPastRange` |
//! | H30 | a mark is lost, or in no transaction | `conversions::marks_survive_commits` | `MarkAnyTransaction`, `EncodeUnfolded` |
//! | H30 | a mark goes to a leaf that is folded, split or removed | `conversions::marks_survive_a_leaf_that_fills_and_splits`, `conversions::marks_are_dropped_with_truncated_blocks` | `FoldUnretired`, `LeafListFirst`, `MarksWithoutRoom` |
//! | H30 | a change of a leaf or of a shown region is lost to a concurrent change | `conversions::holes_of_one_leaf_are_filled_in_parallel`, `conversions::leaf_updates_race_with_splits_and_holes` | `LeafUnlocked`, `PublishUnchecked` |
//! | H30 | a written block is shown as unwritten | `conversions::marks_survive_a_leaf_that_fills_and_splits`, `conversions::a_first_read_of_a_region_sees_concurrent_conversions` | `MarkNotInView`, `BitsCopied`, `ViewUnlocked` |
//! | H31 | a completion waits for a commit that waits for it | `commits::no_completion_waits_for_a_commit_that_waits_for_it` | `HandleInHandle` |
//! | H32 | extents are merged that a write in flight needs split | `full::extents_stay_cut_for_writes_under_way` | `PinsForgotten` |
//! | H33 | an operation with a large range starves | `queues::small_ranges_do_not_overtake_a_waiting_large_range` | `PassWaiters` |
//! | H34 | a waiting operation blocks operations of other ranges | `queues::a_waiting_operation_blocks_only_overlapping_ranges` | `HoldWholeFile` |
//! | H35 | an owner writes after another machine has taken its volume over | `leases::an_owner_that_was_stopped_does_not_write` | `LeaseIgnored`, `OtherOwnerIgnored`, `LateUpdate` |
//! | H35 | a machine reads a clean block, stops, and opens the volume while another one uses it | `leases::of_machines_that_open_a_clean_volume_one_writes` | `LateClaim` |
//! | H35 | a machine reads a clean block, stops, and waits for less than the lease of the owner of meanwhile | `leases::a_late_machine_outlasts_the_lease_of_the_owner_of_meanwhile` | `LateClaim`, `LateWait` |
//! | H36 | contents in the inode change under a read | `inline::a_read_sees_contents_in_the_inode_whole` | `InlineUnheld` |
//! | H36 | contents leave the inode before their block is written | `inline::contents_that_leave_the_inode_are_in_their_block` | `MovedUnwritten` |
//! | H37 | space is charged to an owner that the inode no longer has | `quotas::space_moves_with_its_owner` | `TransferUnlocked` |
//! | H38 | two threads fill parts of one cluster in different clusters of the volume | `clusters::holes_of_one_cluster_are_filled_in_parallel` | `ClusterUnlocked` |
//! | H38 | a dirty page that relies on a cluster of its file loses it | `clusters::a_dirty_page_keeps_its_space_if_its_cluster_is_freed` | `UnmapBlocksOnly` |
//! | H39 | writes under way exceed a limit of a quota together | `quotas::writes_under_way_stay_within_the_limit` | `ChargeUnlocked` |
//! | H40 | a write finds no space although another one returns some | `full::a_write_gets_the_space_that_another_one_returns` | `ClaimsIgnored`, `EventsIgnored` |
//! | H40 | several writes fail although one operation returns enough for all | `full::several_writes_get_the_space_that_one_operation_returns` | `ClaimsIgnored`, `EventsIgnored`, `EpochUnfinished` |
//! | H40 | a write waits for claims that began after it had found no space | `full::a_write_that_does_not_fit_waits_for_no_later_claim` | `LaterClaimsAwaited` |
//! | H40 | write-backs without space take the blocks of each other in turn | `full::write_backs_without_space_for_their_trees_keep_their_blocks` | `UnmappedFreed` |
//!
//! Models without a hazard number:
//!
//! | subject | model | fault |
//! |---|---|---|
//! | handles and credits of the running transaction | `gates` | `EnterClosed`, `LeaveWithoutWake`, `SpareTwice` |
//! | a thread whose transaction another thread commits, against later commits | `commits::a_sync_waits_for_no_commit_after_its_own` | `WaitForTheLog` |
//! | flushes of threads whose lost writes the device reports once (I8) | `flushes` | `FlushesOverlap`, `FailedFlushForgotten` |
//! | stolen windows of free blocks | `space` | `WindowOutlivesReturn` |
//! | truncated blocks that are allocated again | `conversions::reallocated_blocks_are_unwritten` | `StaleWrittenBits` |
//! | preallocated blocks that are used, and freed | `preallocation` | `PreallocationFreedInUse`, `PreallocateBelowSize`, `FillUnchecked`, `AllocatedAsPreallocated` |
//! | indirect blocks in memory, against fills of the blocks below them and against eviction | `claims::holes_of_one_indirect_block_are_filled_in_parallel`, `claims::indirect_blocks_in_use_stay_in_memory`, `claims::an_indirect_block_that_was_read_before_a_change_is_read_again` | `LeafAddedTwice`, `LeavesDroppedInUse`, `OldLeafKept` |
//! | inodes that are created, evicted, read again, and deleted | `inodes` | `LoadTwice`, `ForgetBeforeFree`, `InsertUnmarked`, `LinksBeforeContents` |
//! | an inode with more names than links, found by one of them as it is deleted | `inodes::an_inode_with_more_names_than_links_is_deleted_once` | `NamedUnlocked` |
//! | extended attributes of one inode | `xattrs` | `XattrsUnlocked` |
//! | the last name of an inode that cannot be deleted | `xattrs::the_last_name_of_an_inode_that_cannot_be_deleted_stays` | `LinksUnlocked` |
//! | the sleep of a queue's thread | `queues::a_parked_queue_thread_is_woken` | `SleepUnchecked` |
//! | cancelled operations of queues | `queues::cancelled_operations_leave_no_trace`, `queues::a_dropped_queue_leaves_no_trace` | `ClaimLeaked` |
//! | a page is filled once, and every waiter is woken | `pages::a_page_is_filled_by_one_thread_while_the_rest_wait` | `WaitersNotWoken`, `WakeTooEarly` |
//! | eviction against pins and changes | `pages::a_page_in_use_stays`, `pages::a_dirty_page_stays` | `EvictPinned`, `EvictDirty` |
//! | nodes of trees that move between files | `pages::a_freed_leaf_is_reused_by_another_file` | `PinUnchecked`, `EnterFreedLeaf`, `FreeUsedLeaf`, `LeafNamedFirst` |
//! | write-back against changes | `pages::a_page_changed_during_write_back_is_written_again` | `WriteBackCleansAll`, `WriteBackTwice` |
//! | a region of pages is found clean while a page of it is dirtied | `pages::a_search_finds_a_page_that_was_dirtied_while_its_region_was_checked` | `RegionCleanWhileChecked`, `RegionUnchecked`, `RegionChecksOverlap` |
//! | discarding against write-back and filling (the cache's part of H5, H19 and H21) | `pages::discarding_waits_for_write_backs`, `pages::discarding_waits_for_fillings` | `DiscardHeld`, `WaitersNotWoken`, `WakeTooEarly` |
//! | a discard of a page that is evicted as its last user leaves | `pages::a_discard_is_woken_for_a_page_that_is_evicted_as_its_last_user_leaves` | `WakeIfStillMarked` |
//! | writers that wait for memory with their ranges held | `writers` | `SlotFreedUnnotified` |
//! | write-back against operations that hold the pages' ranges | `policies::filling_a_page_spares_dirty_pages_held_by_a_writer` | `WriteBackWithoutRange` |
//! | write-back in batches against direct I/O (H5, H6) | `buffered::a_joined_write_back_races_with_a_direct_write_of_a_clean_page`, `buffered::pages_of_a_batch_are_clean_when_its_requests_are_done` | `RewriteNotMarked`, `BatchUnawaited` |
//! | syncs against write-back by other threads | `buffered::a_sync_waits_for_write_back_by_another_thread`, `buffered::a_sync_that_waits_for_a_write_back_reports_its_failure` | `SyncUnwaited`, `FailureUnseen` |
//! | the list of files with dirty pages, against syncs of all | `buffered::a_sync_of_all_covers_files_written_by_other_threads` | `ListedAhead`, `ListedByOthers` |
//! | the list of files with dirty pages, against renames that replace a file | `replacements::a_rename_knows_a_dirty_file_that_write_back_checks` | `UnlistedWhileChecked` |
//! | the list of files with dirty pages, against two checks of one file | `buffered::a_sync_of_all_covers_a_file_that_left_the_list` | `ListedByChecks` |
//! | checkpoints concurrent with commits, and crashes of both | `checkpoints::synced_data_survives_a_crash_during_a_checkpoint` | `TailBeforeHome` |
//! | emptying the log during commits | `checkpoints::synced_data_survives_a_crash_after_the_log_was_emptied` | `TailBeforeHome`, `EmptyLogUnrecorded` |
//! | the order of writes to the log, to home locations, by recovery, and of data that a transaction reveals: states of crashes of random sequences | `sweep::the_sweep_notices_faults_of_order`, `sweep::the_sweep_notices_contents_that_leave_their_inode_unwritten` | `DataUnflushed`, `CommitUnflushed`, `TailBeforeHome`, `EmptyLogUnrecorded`, `ReplayUnflushed`, `MovedUnwritten` |
//! | closing against queues and syncs | `queues::a_close_races_with_a_queue`, `queues::a_close_does_not_wait_for_the_range_of_a_queue`, `crashes::a_close_races_with_a_sync` | `QueueWhileClosing` |
//!
//! Hazards that cannot occur here:
//!
//! | | hazard | why |
//! |---|---|---|
//! | H7 | the range is released between a direct write and its buffered rest | no operation falls back: a direct one off the sectors is refused, and a read without memory for its pages reads past the cache under the same range |
//! | H23 | memory that is copied under a range faults into the same file | the engine takes slices, and maps nothing: a caller must first copy memory that is mapped from a file system which this process serves |
//! | H24 | set-ID bits stay after a write by another user | the caller knows the writing user, and the engine does not: it clears the bits only when the owner changes |
//!
//! Syncs of a queue run in a thread of the system, which the scheduler does not control.

use std::collections::BTreeSet;
use std::fs::read_to_string;

use parext4::fault::Fault;

/// Returns the parts of the text in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn source(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn model(name: &str) -> (String, &str) {
    let (module, function) = name.split_once("::").unwrap_or((name, ""));
    (source(&format!("tests/shuttle/{module}.rs")), function)
}

#[test]
fn the_tables_list_every_model_and_fault() {
    let (mut hazards, mut faults) = (BTreeSet::new(), BTreeSet::new());
    let tables = include_str!("hazards.rs");
    for row in tables.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        // The first table has a column for the number, the second has none.
        let (models, planted) = (cells[cells.len() - 3], cells[cells.len() - 2]);
        hazards.insert(cells[0].to_owned());
        let models: Vec<_> = quoted(models).map(model).collect();
        for (text, function) in &models {
            assert!(text.contains(&format!("fn {function}")), "no such model: {row}");
        }
        for fault in quoted(planted) {
            let named = models.iter().any(|(text, _)| text.contains(&format!("Fault::{fault}")));
            assert!(named, "no model in that row has {fault}: {row}");
            faults.insert(fault.to_owned());
        }
    }
    for number in 1..=38 {
        assert!(hazards.contains(&format!("H{number}")), "H{number} is missing");
    }
    for fault in Fault::ALL {
        assert!(faults.contains(&format!("{fault:?}")), "{fault:?} is missing");
    }
}
