//! The contract of `Queue`, on every queue.

use super::on_every_queue;

macro_rules! on_every_queue {
    ($($check:ident)*) => {
        $(
            #[test]
            fn $check() {
                on_every_queue(device_testkit::contract::$check);
            }
        )*
    };
}

on_every_queue! {
    what_is_written_is_read
    segments_are_gathered_in_order
    many_and_odd_segments_are_gathered
    requests_may_be_large
    more_requests_than_the_queue_is_deep
    bad_requests_fail_and_give_their_buffers_back
    empty_requests_succeed
    dropping_a_queue_completes_its_requests
    a_wake_ends_the_wait_of_a_harvest
    a_wake_before_the_harvest_is_not_lost
    a_canceled_request_never_reaches_the_device
    a_harvest_without_wait_does_not_block
    a_queue_may_move_to_another_thread
    queues_of_one_device_do_not_disturb_each_other
}

#[test]
fn no_check_is_left_out() {
    let here = include_str!("behaviour.rs");
    for (name, _) in device_testkit::contract::QUEUE_CHECKS {
        assert!(here.contains(name), "{name}");
    }
}
