//! Tests the decision of a standby as tables of polls.

use super::*;
use parext4::device::LockOwner;

const WAIT: u64 = 21;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn open(sequence: u32) -> Mmp {
    Mmp::Open { node: "first".into(), sequence, wait: seconds(WAIT), silent_after: seconds(10) }
}

fn lock(alive: bool) -> Option<LockOwner> {
    Some(LockOwner { name: "client.1".into(), alive })
}

fn free(mmp: Mmp) -> PollResult {
    PollResult { lock: None, mmp }
}

fn held(mmp: Mmp) -> PollResult {
    PollResult { lock: lock(true), mmp }
}

/// A poll that takes no time.
fn poll(watch: &mut Watch, at: u64, poll_result: PollResult) -> Verdict {
    watch.saw(poll_result, seconds(at), seconds(at))
}

#[test]
fn an_owner_is_gone_once_its_sequence_has_not_changed_for_the_wait() {
    // Without a lock, the other machine may be opening the volume, and then changes nothing for the
    // same time.
    for (lock, wait) in [(None, WAIT + 5), (lock(true), WAIT)] {
        let mut watch = Watch::new(POLL);
        let poll_result = |sequence| PollResult { lock: lock.clone(), mmp: open(sequence) };
        assert_eq!(poll(&mut watch, 0, poll_result(1)), Verdict::Owned(seconds(0)));
        assert_eq!(poll(&mut watch, wait - 1, poll_result(1)), Verdict::Owned(seconds(wait - 1)));
        assert_eq!(poll(&mut watch, wait, poll_result(2)), Verdict::Owned(seconds(0)));
        assert_eq!(poll(&mut watch, 2 * wait - 1, poll_result(2)), Verdict::Owned(seconds(wait - 1)));
        assert_eq!(poll(&mut watch, 2 * wait, poll_result(2)), Verdict::Gone(Gone::Silent(seconds(wait))));
    }
}

#[test]
fn the_next_poll_is_when_the_silence_is_long_enough() {
    let mut watch = Watch::new(POLL);
    assert_eq!(watch.next_poll(seconds(0)), POLL);
    poll(&mut watch, 1, held(open(1)));
    assert_eq!(watch.next_poll(seconds(1)), POLL);
    assert_eq!(watch.next_poll(seconds(21)), seconds(1));
    assert_eq!(watch.next_poll(seconds(30)), SHORTEST_POLL);
    watch.failed();
    assert_eq!(watch.next_poll(seconds(30)), POLL);
}

#[test]
fn a_failed_or_slow_poll_begins_the_silence_anew() {
    let mut watch = Watch::new(POLL);
    poll(&mut watch, 0, held(open(1)));
    watch.failed();
    assert_eq!(poll(&mut watch, 60, held(open(1))), Verdict::Owned(seconds(0)));
    assert_eq!(watch.saw(held(open(1)), seconds(62), seconds(100)), Verdict::Owned(seconds(0)));
    assert_eq!(poll(&mut watch, 120, held(open(1))), Verdict::Owned(seconds(20)));
    assert_eq!(poll(&mut watch, 121, held(open(1))), Verdict::Gone(Gone::Silent(seconds(21))));
}

#[test]
fn silence_ends_where_the_poll_starts() {
    let mut watch = Watch::new(POLL);
    watch.saw(held(open(1)), seconds(0), seconds(4));
    assert_eq!(watch.saw(held(open(1)), seconds(24), seconds(26)), Verdict::Owned(seconds(20)));
    assert_eq!(watch.saw(held(open(1)), seconds(25), seconds(25)), Verdict::Gone(Gone::Silent(seconds(21))));
}

#[test]
fn a_closed_volume_is_free_unless_it_is_locked() {
    let mut watch = Watch::new(POLL);
    let locked = |mmp| PollResult { lock: lock(true), mmp };
    assert_eq!(poll(&mut watch, 0, locked(Mmp::Closed)), Verdict::Owned(seconds(0)));
    assert_eq!(poll(&mut watch, 90, locked(Mmp::Closed)), Verdict::Owned(seconds(90)));
    assert_eq!(poll(&mut watch, 91, free(Mmp::Closed)), Verdict::Gone(Gone::Closed));
    assert_eq!(poll(&mut Watch::new(POLL), 0, free(Mmp::Closed)), Verdict::Gone(Gone::Closed));
}

#[test]
fn a_lock_whose_owner_is_unheard_of_lapses_unless_the_sequence_changes() {
    let unheard = |sequence| PollResult { lock: lock(false), mmp: open(sequence) };
    let mut watch = Watch::new(POLL);
    poll(&mut watch, 0, PollResult { lock: lock(true), mmp: open(1) });
    assert_eq!(poll(&mut watch, 3, unheard(1)), Verdict::Owned(seconds(3)));
    assert_eq!(poll(&mut watch, 7, unheard(2)), Verdict::Owned(seconds(0)));
    assert_eq!(poll(&mut watch, 11, unheard(2)), Verdict::Owned(seconds(4)));
    assert_eq!(poll(&mut watch, 16, unheard(2)), Verdict::Owned(seconds(9)), "the next update may be late");
    assert_eq!(poll(&mut watch, 17, unheard(2)), Verdict::Gone(Gone::LockLapsed(seconds(10))));
    // Heard again.
    poll(&mut watch, 18, PollResult { lock: lock(true), mmp: open(2) });
    assert_eq!(poll(&mut watch, 19, unheard(2)), Verdict::Owned(seconds(12)));
}

#[test]
fn a_volume_without_mmp_is_watched_by_its_lock() {
    let mut watch = Watch::new(POLL);
    assert_eq!(poll(&mut watch, 0, free(Mmp::Absent)), Verdict::Unknown);
    assert_eq!(
        poll(&mut watch, 1, PollResult { lock: lock(true), mmp: Mmp::Absent }),
        Verdict::Owned(seconds(0))
    );
    assert_eq!(poll(&mut watch, 2, free(Mmp::Absent)), Verdict::Gone(Gone::Closed));
    let unheard = || PollResult { lock: lock(false), mmp: Mmp::Absent };
    assert_eq!(poll(&mut watch, 3, unheard()), Verdict::Owned(seconds(0)));
    assert_eq!(poll(&mut watch, 8, unheard()), Verdict::Gone(Gone::LockLapsed(seconds(5))));
}

#[test]
fn a_volume_that_e2fsck_has_is_left_alone() {
    let mut watch = Watch::new(POLL);
    for at in [0, 100] {
        assert_eq!(
            poll(&mut watch, at, PollResult { lock: lock(false), mmp: Mmp::Checked }),
            Verdict::Checked
        );
    }
}
