//! Which model notices which hazard, and the fault that shows it. A model passes with all guards in place, and
//! fails when the fault is planted that takes the hazard's guard away (`src/fault.rs`).
//!
//! | | hazard | model | fault |
//! |---|---|---|---|
//! | H1 | two writers zero each other's part of a block | `writes::two_writers_initialise_one_block`, `policies::two_writers_initialise_one_block_alone` | `OwnBytesOnly` |
//! | H2 | zeros land over what was written after them | `writes::a_write_holds_its_block_until_its_zeros_are_there` | `ReleaseAtSubmission` |
//! | H3 | a file grows over rubbish, or its last block is zeroed under a writer | `writes::a_file_grows_over_zeros` | `TailKept`, `TailUnheld` |
//! | H4 | the size shows before what it covers is converted | `sizes::what_the_size_covers_is_converted` | `SizeFirst` |
//! | H5 | a page is filled beside a direct write, and stays stale | `buffered::a_direct_write_meets_a_page_that_comes_into_being` | `PagesUnheld`, `PagesKept` |
//! | H6 | a page is clean before the map shows its data | `buffered::a_page_is_clean_when_the_map_shows_its_data` | `CleanBeforeConversion` |
//! | H8 | a commit reveals data that is not durable, or is not durable itself | `crashes::no_crash_shows_what_was_not_written`, `crashes::what_was_synced_survives_any_crash`, `crashes::a_sync_that_shares_a_commit_flushes_its_own_data` | `DataUnflushed`, `CommitUnflushed`, `ShareEveryFlush` |
//! | H9 | zeros over blocks whose contents are not known | `full::a_write_that_is_widened_spares_its_neighbours`, `full::operations_of_one_queue_are_widened_one_after_the_other` | `WidenBlindly`, `WidenAsWrite` |
//! | H10 | no space is left for the conversion | `full::a_write_completes_though_space_has_run_out` | `ReserveNothing` |
//! | H11 | a truncation meets a conversion | `sizes::a_truncation_meets_a_write`, `sizes::an_append_meets_a_truncation`, `queues::a_truncation_meets_a_write_of_a_queue`, `policies::a_truncation_waits_for_what_shares_the_file` | `ReleaseBeforeConversion`, `ReleaseAtSubmission` |
//! | H12 | blocks under a read are used again | `writes::blocks_under_a_read_are_not_given_to_others`, `layout::punched_blocks_are_not_given_to_others_under_a_read` | `ReadUnheld`, `PunchUnheld` |
//! | H13 | blocks are used again before their free is durable | `crashes::freed_blocks_wait_for_their_commit`, `layout::punched_blocks_wait_for_their_commit`, `checkpoints::freed_blocks_wait_until_they_are_home` | `ReuseAtOnce`, `FreedOnItsWayHome` |
//! | H14 | the size goes back | `sizes::writes_that_extend_the_file_leave_the_largest_size` | `SizeLowered` |
//! | H15 | an extension that fails takes its neighbours' data along | `appends::an_append_that_fails_leaves_its_neighbours_alone`; unwritten blocks behind the end need no orphan entry | `FailedClaimTakesAll` |
//! | H16 | written blocks behind the size after a crash | `sizes::a_size_and_the_blocks_under_it_commit_together` | `SizeLater` |
//! | H17 | the size on the device covers what is not there | `sizes::a_size_and_the_blocks_under_it_commit_together`, `sizes::what_the_size_covers_is_converted`, `crashes::no_crash_shows_what_was_not_written`, and `buffered::the_size_on_the_device_covers_what_is_there` | `SizeFirst`, `DataUnflushed`, `DiskSizeFirst` |
//! | H18 | a sync leaves out a size that grew over written blocks | `sizes::a_sync_carries_a_size_that_grew_over_written_blocks` | `GrowUnjoined` |
//! | H19 | a truncation meets a page that comes into being | `buffered::a_truncation_meets_a_page_that_comes_into_being` | `PagesUnheld` |
//! | H20 | a write, a read or an append meets what moves | `layout::a_write_meets_a_collapse`, `layout::a_read_meets_an_insertion`, `layout::an_append_meets_what_moves` | `ShiftUnheld`, `ShiftKeepsClaims` |
//! | H21 | the edges of a hole are zeroed under another | `layout::the_edges_of_two_holes_are_in_one_block`, `layout::a_hole_meets_a_write` | `EdgesUnheld` |
//! | H22 | overlapping writes and reads are mixed | `writes::overlapping_writes_are_whole`, `writes::reads_never_see_half_an_overwrite`, `buffered::buffered_reads_never_see_half_a_write` | `ReleaseAtSubmission`, `ReadUnheld` |
//! | H23 | a write stops short | `buffered::a_write_that_fails_leaves_nothing_behind_the_end` | `ShortKept` |
//! | H25 | the time of an overwrite is lost | `commits::times_ride_along_with_the_next_commit`, `commits::the_time_of_an_overwrite_rides_along_with_a_commit` | `ListedForEver`, `TimesUnlisted` |
//! | H26 | what is refused has an effect | `queues::what_is_refused_has_no_effect`, `queues::what_is_refused_for_pages_has_no_effect` | `NowaitClaims`, `NowaitPagesLate` |
//! | H27 | appends are lost, torn or laid over each other | `appends::appends_are_neither_lost_nor_torn`, `appends::an_append_meets_a_write_behind_the_end`, `appends::an_append_after_a_truncation_goes_to_the_end`, `appends::an_append_whose_block_is_punched_leaves_no_gap` | `AppendAtSize`, `WithdrawLate`, `ClaimAgain` |
//! | H28 | direct and buffered I/O do not see each other's writes | as H5 and H6, and `buffered::writers_of_one_page_keep_out_of_each_others_bytes`, `buffered::what_is_dirty_stays_until_it_is_zeros` | theirs, and `DroppedUnwritten` |
//! | H29 | data in memory finds no space, or keeps it for ever | `buffered::data_that_was_taken_has_its_space`, `buffered::space_that_was_kept_comes_back` | `DelayNothing`, `DelayForgotten` |
//! | H30 | what was seen of the map or the size is stale | `sizes::a_reader_within_the_size_sees_the_data` | `StaleSize` |
//! | H30 | a read goes past the range that it holds, to a size that was raised meanwhile | `queues::a_read_of_a_queue_ends_where_its_range_does` | `EndUnheld` |
//! | H30 | a mark is lost, or in no transaction | `conversions::marks_survive_commits` | `MarkAnyTransaction`, `EncodeUnfolded` |
//! | H30 | a mark goes to a leaf that is folded, split or removed | `conversions::marks_survive_a_leaf_that_fills_and_splits`, `conversions::marks_go_with_the_blocks_that_are_cut_off` | `FoldUnretired`, `DirectoryFirst`, `MarksWithoutRoom` |
//! | H30 | a change of a leaf or of what is shown is lost to another beside it | `conversions::holes_of_one_leaf_are_filled_side_by_side`, `conversions::leaves_change_beside_splits_and_holes` | `LeafUnheld`, `UpdateBlindly` |
//! | H30 | what was written is not shown | `conversions::marks_survive_a_leaf_that_fills_and_splits`, `conversions::what_is_looked_at_first_shows_what_comes_meanwhile` | `MarkUnshown`, `BitsCopied`, `ViewUnheld` |
//! | H31 | a completion waits for a commit that waits for it | `commits::no_completion_waits_for_a_commit_that_waits_for_it` | `HandleInHandle` |
//! | H32 | extents are joined that a write under way needs cut | `full::extents_stay_cut_for_writes_under_way` | `PinsForgotten` |
//! | H33 | who needs much waits for ever | `queues::who_needs_much_is_not_passed_by_those_who_need_little` | `PassWaiters` |
//! | H34 | who waits blocks others elsewhere | `queues::who_waits_blocks_nobody_elsewhere` | `HoldWholeFile` |
//!
//! Models of what has no number:
//!
//! | subject | model | fault |
//! |---|---|---|
//! | handles and credits of the running transaction | `gates` | `EnterClosed`, `LeaveQuietly`, `SpareTwice` |
//! | a thread whose transaction another thread commits, against later commits | `commits::a_sync_waits_for_no_commit_after_its_own` | `WaitForTheLog` |
//! | windows of free blocks, taken back | `space` | `WindowOutlivesReturn` |
//! | blocks that were cut off and come back | `conversions::blocks_that_come_back_hold_nothing` | `BitsKept` |
//! | blocks mapped ahead, used by others, given back | `ahead` | `AheadUnheld`, `AheadWithin`, `FillBlindly`, `KeptAsAhead` |
//! | inodes that are evicted, read again, and deleted | `inodes` | `LoadTwice`, `ForgetBeforeFree`, `PutUnmarked` |
//! | extended attributes of one inode | `xattrs` | `XattrsUnheld` |
//! | the last name of an inode that cannot be deleted | `xattrs::the_last_name_of_an_inode_that_cannot_be_deleted_stays` | `LinksUnheld` |
//! | the sleep of a queue's thread | `queues::who_is_parked_is_woken` | `SleepUnchecked` |
//! | operations of queues that are given up | `queues::cancelled_operations_leave_no_trace`, `queues::a_dropped_queue_leaves_no_trace` | `StakeForgotten` |
//! | a page is filled once, and nobody waits for ever | `pages::a_page_is_filled_by_one_while_others_wait` | `WaitersForgotten`, `WakeTooEarly` |
//! | eviction against pins and changes | `pages::a_page_in_use_stays`, `pages::a_dirty_page_stays` | `EvictPinned`, `EvictDirty` |
//! | nodes of trees that go from file to file | `pages::a_leaf_that_is_freed_is_another_files` | `PinUnchecked`, `EnterFreedLeaf`, `FreeUsedLeaf`, `LeafNamedFirst` |
//! | write-back against changes | `pages::what_is_changed_during_its_write_back_is_written_again` | `WriteBackCleansAll`, `WriteBackTwice` |
//! | discarding against write-back and filling (the cache's part of H5, H19 and H21) | `pages::discarding_waits_for_write_backs`, `pages::discarding_waits_for_fillings` | `DiscardHeld`, `WaitersForgotten`, `WakeTooEarly` |
//! | writers that wait for memory with their ranges held | `writers` | `PlaceFreedUnheard` |
//! | write-back against those who hold their pages | `policies::who_brings_a_page_in_leaves_those_to_their_writer_that_are_in_its_way` | `WriteBackUnheld` |
//! | write-back in batches against those who go past the cache (H5, H6) | `buffered::a_joined_write_back_meets_a_direct_write_of_a_clean_page`, `buffered::pages_of_a_batch_are_clean_when_its_requests_are_done` | `RewriteUnheld`, `BatchUnawaited` |
//! | syncs against write-back by others | `buffered::a_sync_waits_for_what_others_write_back`, `buffered::who_waits_for_a_write_back_hears_that_it_fails` | `SyncUnwaited`, `FailureUnseen` |
//! | the list of files with dirty pages, against syncs of all | `buffered::a_sync_of_all_knows_the_files_that_others_write_to` | `ListedAhead`, `ListedByOthers` |
//! | the list of files with dirty pages, against renames over other files | `replacements::a_rename_knows_a_dirty_file_that_write_back_checks` | `UnlistedWhileChecked` |
//! | checkpoints beside commits, and crashes of both | `checkpoints::what_was_synced_survives_a_crash_of_a_checkpoint` | `TailBeforeHome` |
//! | emptying the log beside commits | `checkpoints::what_was_synced_survives_a_crash_after_the_log_was_emptied` | `TailBeforeHome`, `EmptyLogUnseen` |
//! | closing against queues and syncs | `queues::a_close_meets_a_queue`, `crashes::a_close_meets_a_sync` | `QueueWhileClosing` |
//!
//! What cannot go wrong here:
//!
//! | | hazard | why |
//! |---|---|---|
//! | H7 | the range is let go between a direct write and its buffered rest | no operation falls back: a direct one off the sectors is refused, and a read that finds no memory for its pages goes past them under the same range |
//! | H23 | memory that is copied under a range faults into the same file | the engine is given slices, and maps nothing: who hands memory in that is mapped from a file system which this process serves must copy it before |
//! | H24 | set-ID bits stay when others write | whose they are a caller knows, and the engine does not: it takes them away with a new owner only |
//!
//! Syncs of a queue run in a thread of the system, which the scheduler does not see.

use std::collections::BTreeSet;
use std::fs::read_to_string;

/// What is in backticks.
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
fn the_tables_say_what_there_is() {
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
    for number in 1..=34 {
        assert!(hazards.contains(&format!("H{number}")), "H{number} is missing");
    }
    let source = source("src/fault.rs");
    let (_, list) = source.split_once("pub enum Fault {").expect("the list of faults");
    let (list, _) = list.split_once("\n}").expect("its end");
    for fault in list.lines().filter_map(|line| line.trim().strip_suffix(',')) {
        assert!(fault == "None" || faults.contains(fault), "{fault} is missing");
    }
}
