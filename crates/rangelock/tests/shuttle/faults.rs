//! The models find every planted defect.

use crate::guarantees::{
    callback_release_elsewhere, cancel_unblocks, downgrade_and_shrink, mutual_exclusion, narrowing_wakes,
    requests_in_order, try_beside_lock, whole_range_is_not_passed,
};
use crate::harness::{Start, check_finds, check_pct_finds};
use crate::states::{expansion, late_for_the_single_slot, shared_holders_of_one_range, words_and_queues};
use crate::wide::{wide_beside_narrow, wide_beside_queues, wide_shrinks, wide_waits_for_all};
use rangelock::Fault;

#[test]
fn a_skipped_overlap_check_is_found() {
    for start in [Start::New, Start::Expanded] {
        check_finds(Fault::SkipOverlapCheck, start, mutual_exclusion);
        check_finds(Fault::SkipOverlapCheck, start, callback_release_elsewhere);
        check_finds(Fault::SkipOverlapCheck, start, downgrade_and_shrink);
        check_finds(Fault::SkipOverlapCheck, start, try_beside_lock);
        check_finds(Fault::SkipOverlapCheck, start, requests_in_order);
        check_finds(Fault::SkipOverlapCheck, start, wide_waits_for_all);
    }
}

#[test]
fn lost_wakeups_are_found() {
    for start in [Start::New, Start::Expanded] {
        check_finds(Fault::LoseWakeups, start, mutual_exclusion);
        check_finds(Fault::LoseWakeups, start, narrowing_wakes);
        check_finds(Fault::LoseWakeups, start, requests_in_order);
        check_finds(Fault::LoseWakeups, start, cancel_unblocks);
    }
}

#[test]
fn requests_that_pass_waiters_are_found() {
    check_finds(Fault::PassWaiters, Start::New, whole_range_is_not_passed);
    check_finds(Fault::PassWaiters, Start::Expanded, whole_range_is_not_passed);
}

#[test]
fn defects_of_ranges_with_several_slots_are_found() {
    check_finds(Fault::WakeAtFirstSlot, Start::Expanded, wide_waits_for_all);
    check_finds(Fault::WakeAtFirstSlot, Start::Expanded, mutual_exclusion);
    check_finds(Fault::EnterFirstSlotOnly, Start::Expanded, words_and_queues);
    check_finds(Fault::KeepPartialGrant, Start::Expanded, words_and_queues);
    check_finds(Fault::EnterSlotsOneByOne, Start::Expanded, mutual_exclusion);
    check_finds(Fault::ShrinkKeepsSlots, Start::Expanded, narrowing_wakes);
}

#[test]
fn defects_between_word_and_queue_are_found() {
    for start in [Start::New, Start::Expanded] {
        for fault in [Fault::InflateDropsHolders, Fault::ReleaseIgnoresQueue, Fault::DeflateInUse] {
            check_finds(fault, start, shared_holders_of_one_range);
            check_finds(fault, start, words_and_queues);
        }
    }
}

#[test]
fn defects_of_wide_requests_are_found() {
    check_finds(Fault::IgnoreWide, Start::Expanded, wide_beside_narrow);
    check_finds(Fault::IgnoreWide, Start::Expanded, whole_range_is_not_passed);
    check_finds(Fault::CheckWideOnce, Start::Expanded, wide_beside_queues);
    check_finds(Fault::WideSkipsSlots, Start::Expanded, wide_beside_narrow);
    check_finds(Fault::WideSkipsSlots, Start::Expanded, wide_waits_for_all);
    check_finds(Fault::ShrinkMovesWide, Start::Expanded, wide_shrinks);
}

#[test]
fn defects_of_the_expansion_are_found() {
    check_pct_finds(Fault::ReuseSingleSlot, Start::New, late_for_the_single_slot);
    check_finds(Fault::ExpandDropsHolders, Start::New, expansion);
    check_finds(Fault::ExpandDropsWaiters, Start::New, expansion);
    check_finds(Fault::MissExpansion, Start::New, expansion);
    check_finds(Fault::MissExpansion, Start::New, mutual_exclusion);
}

#[test]
fn a_cancel_that_grants_nothing_is_found() {
    check_finds(Fault::CancelGrantsNothing, Start::New, cancel_unblocks);
    check_finds(Fault::CancelGrantsNothing, Start::Expanded, cancel_unblocks);
}

#[test]
fn every_fault_has_a_model() {
    let models = include_str!("faults.rs");
    for fault in Fault::ALL {
        assert!(models.contains(&format!("Fault::{fault:?}")), "{fault:?} is missing");
    }
}
