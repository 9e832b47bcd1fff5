//! The contract of `Queue`, on every queue.

use super::*;
use std::io::ErrorKind;
use std::time::Instant;

#[test]
fn what_is_written_is_read() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 4);
        let data = pattern(1, 64 << 10);
        succeed(&mut *queue, write(1, 8192, &data));
        succeed(&mut *queue, flush(2));
        let done = one(&mut *queue, read(3, 8192, 64 << 10));
        assert_eq!((done.token, bytes(&done)), (3, &data[..]));
        assert!(bytes(&one(&mut *queue, read(4, 0, 8192))).iter().all(|&byte| byte == 0));
        assert_eq!(super::super::read(device, 8192, 64 << 10).unwrap()[..], data[..]);
    });
}

#[test]
fn segments_are_gathered_in_order() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 4);
        let buf = Arc::new(pattern(2, 32 << 10));
        let places = [(8192, 4096), (0, 512), (0, 0), (8192, 8192), (20480, 512)];
        let segments = places.map(|(start, len)| Segment { buf: buf.clone(), start, len });
        let want: Vec<u8> = segments.iter().flat_map(|segment| segment.bytes().unwrap()).copied().collect();
        let op = Op::Write { offset: 4096, segments: segments.into_iter().collect() };
        let Done { op, result, .. } = one(&mut *queue, Request { token: 1, op });
        result.unwrap();
        let Op::Write { segments, .. } = op else { panic!("{op:?}") };
        assert_eq!(segments.len(), places.len());
        assert_eq!(bytes(&one(&mut *queue, read(2, 4096, want.len()))), want);
    });
}

#[test]
fn many_and_odd_segments_are_gathered() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 4);
        let buf = Arc::new(pattern(3, 4096));
        // More segments than one system call accepts, of lengths that direct I/O does not accept.
        for (count, len) in [(3000, 512), (512, 8), (8, 64)] {
            let segment = |index: usize| Segment { buf: buf.clone(), start: index * 8 % 3000, len };
            let segments: Vec<_> = (0..count).map(segment).collect();
            let want: Vec<u8> =
                segments.iter().flat_map(|segment| segment.bytes().unwrap()).copied().collect();
            let op = Op::Write { offset: 4096, segments: segments.into() };
            succeed(&mut *queue, Request { token: 1, op });
            assert!(bytes(&one(&mut *queue, read(2, 4096, want.len()))) == want, "{count} of {len}");
        }
    });
}

#[test]
fn requests_may_be_large() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 2);
        let data = pattern(4, 3 << 20);
        succeed(&mut *queue, write(1, 4096, &data));
        assert!(bytes(&one(&mut *queue, read(2, 4096, 3 << 20))) == &data[..]);
    });
}

#[test]
fn more_requests_than_the_queue_is_deep() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 8);
        for token in 0..1000 {
            queue.submit(write(token, token * 4096, &pattern(token as u8, 4096)));
        }
        assert_eq!(queue.in_flight(), 1000);
        let done = finish(&mut *queue);
        assert!(done.iter().map(|done| done.token).eq(0..1000));
        done.iter().for_each(|done| assert!(done.result.is_ok(), "{done:?}"));
        for token in 0..1000 {
            queue.submit(read(token, token * 4096, 4096));
        }
        for done in finish(&mut *queue) {
            assert_eq!(bytes(&done), &pattern(done.token as u8, 4096)[..], "{}", done.token);
        }
    });
}

fn kind(done: Done) -> ErrorKind {
    done.result.unwrap_err().kind()
}

#[test]
fn bad_requests_fail_and_give_their_buffers_back() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 4);
        let queue = &mut *queue;
        let end = device.size();
        for (offset, len) in [(1, 512), (0, 256), (256, 512)] {
            assert_eq!(kind(one(queue, read(1, offset, len))), ErrorKind::InvalidInput);
        }
        assert_eq!(kind(one(queue, write(1, 8, &[0; 512]))), ErrorKind::InvalidInput);
        for offset in [end, end - 4096, u64::MAX - 4095] {
            assert_eq!(kind(one(queue, read(1, offset, 8192))), ErrorKind::UnexpectedEof);
            assert_eq!(kind(one(queue, write(1, offset, &[0; 8192]))), ErrorKind::InvalidInput);
        }
        let outside = Segment { buf: Arc::new(AlignedBuf::zeroed(4096)), start: 4096, len: 512 };
        let op = Op::Write { offset: 0, segments: [outside].into_iter().collect() };
        assert_eq!(kind(one(queue, Request { token: 1, op })), ErrorKind::InvalidInput);
        let op = Op::Read { offset: 0, buf: AlignedBuf::zeroed(512), len: 1024 };
        let done = one(queue, Request { token: 1, op });
        assert!(matches!(&done.op, Op::Read { buf, .. } if buf.len() == 512));
        assert_eq!(kind(done), ErrorKind::InvalidInput);
    });
}

#[test]
fn empty_requests_succeed() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 4);
        succeed(&mut *queue, read(1, device.size(), 0));
        succeed(&mut *queue, write(1, 0, &[]));
        let op = Op::Write { offset: 0, segments: [].into_iter().collect() };
        succeed(&mut *queue, Request { token: 1, op });
    });
}

#[test]
fn dropping_a_queue_completes_its_requests() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 4);
        let shared = Arc::new(pattern(5, 64 << 10));
        for token in 0..32 {
            let segment = Segment::whole(shared.clone());
            let op = Op::Write { offset: token << 16, segments: [segment].into_iter().collect() };
            queue.submit(Request { token, op });
            if token == 20 {
                queue.harvest(false, &mut Vec::new()).unwrap();
            }
        }
        drop(queue);
        assert_eq!(Arc::strong_count(&shared), 1, "a buffer was lost");
        for index in 0..32 {
            assert!(super::super::read(device, index << 16, 64 << 10).unwrap()[..] == shared[..]);
        }
    });
}

#[test]
fn a_wake_ends_the_wait_of_a_harvest() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 4);
        let waker = queue.waker();
        for _ in 0..20 {
            let theirs = waker.clone();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(1));
                theirs.wake();
                theirs.wake();
            });
            // This harvest may answer only the first of the two wakes.
            queue.harvest(true, &mut Vec::new()).unwrap();
            thread.join().unwrap();
            waker.wake();
            queue.harvest(true, &mut Vec::new()).unwrap();
        }
        succeed(&mut *queue, write(1, 0, &[1; 512]));
    });
}

#[test]
fn a_wake_before_the_harvest_is_not_lost() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 4);
        let waker = queue.waker();
        for _ in 0..100 {
            waker.wake();
            queue.harvest(true, &mut Vec::new()).unwrap();
        }
        waker.wake();
        drop(queue);
        waker.wake();
    });
}

#[test]
fn a_canceled_request_never_reaches_the_device() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 1);
        for token in 0..100 {
            queue.submit(write(token, token * 4096, &pattern(token as u8 | 1, 4096)));
        }
        let canceled: Vec<u64> = (0..100).rev().step_by(3).filter(|&token| queue.cancel(token)).collect();
        assert!(!queue.cancel(100));
        for done in finish(&mut *queue) {
            let was_canceled = canceled.contains(&done.token);
            match done.result {
                Ok(()) => assert!(!was_canceled),
                Err(error) => assert!(was_canceled && error.raw_os_error() == Some(125), "{error}"),
            }
            let written = super::super::read(device, done.token * 4096, 4096).unwrap()[0] != 0;
            let first_byte_is_zero = pattern(done.token as u8 | 1, 4096)[0] == 0;
            assert!(first_byte_is_zero || written != was_canceled, "{}", done.token);
        }
        assert!(!queue.cancel(0));
    });
}

#[test]
fn a_harvest_without_wait_does_not_block() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 4);
        let mut done = Vec::new();
        queue.harvest(false, &mut done).unwrap();
        queue.submit(flush(7));
        let start = Instant::now();
        while done.is_empty() {
            queue.harvest(false, &mut done).unwrap();
            assert!(start.elapsed() < Duration::from_secs(10), "never done");
        }
        assert_eq!((done[0].token, queue.in_flight()), (7, 0));
    });
}

#[test]
fn a_queue_may_move_to_another_thread() {
    on_every_queue(|device| {
        let mut queue = open_queue(device, 2);
        let submit = move || {
            for token in 0..10 {
                queue.submit(write(token, token * 4096, &pattern(token as u8, 4096)));
            }
            let mut done = Vec::new();
            queue.harvest(true, &mut done).unwrap();
            (queue, done.len())
        };
        // The thread ends while its requests are in flight.
        let (mut queue, first) = std::thread::spawn(submit).join().unwrap();
        assert_eq!(first + finish(&mut *queue).len(), 10);
    });
}

#[test]
fn queues_of_one_device_do_not_disturb_each_other() {
    on_every_queue(|device| {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let mut queue = open_queue(device, 4);
                    for round in 0..20u8 {
                        let place = |token: u64| (thread * 8 + token) << 12;
                        let data = |token: u64| pattern(round ^ (thread * 8 + token) as u8, 4096);
                        (0..8).for_each(|token| queue.submit(write(token, place(token), &data(token))));
                        finish(&mut *queue).into_iter().for_each(|done| done.result.unwrap());
                        (0..8).for_each(|token| queue.submit(read(token, place(token), 4096)));
                        for done in finish(&mut *queue) {
                            assert!(bytes(&done) == &data(done.token)[..]);
                        }
                    }
                });
            }
        });
    });
}
