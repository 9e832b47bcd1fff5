//! The contracts of [`Device`] and [`Queue`], as checks that run on any device.
//!
//! The tests of each device call them. A check panics where the device breaks its contract.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4_device::{AlignedBuf, Device, Done, Op, Queue, Request, Segment, open_queue};

/// Size in bytes of the device that the checks of queues need. It reads as zeros.
pub const SIZE: u64 = 4 << 20;

/// A check of a queue.
pub type QueueCheck = fn(&Arc<dyn Device>);

/// All checks of queues, with their names.
pub const QUEUE_CHECKS: &[(&str, QueueCheck)] = &[
    ("what_is_written_is_read", what_is_written_is_read),
    ("segments_are_gathered_in_order", segments_are_gathered_in_order),
    ("many_and_odd_segments_are_gathered", many_and_odd_segments_are_gathered),
    ("requests_may_be_large", requests_may_be_large),
    ("more_requests_than_the_queue_is_deep", more_requests_than_the_queue_is_deep),
    ("bad_requests_fail_and_give_their_buffers_back", bad_requests_fail_and_give_their_buffers_back),
    ("empty_requests_succeed", empty_requests_succeed),
    ("dropping_a_queue_completes_its_requests", dropping_a_queue_completes_its_requests),
    ("a_wake_ends_the_wait_of_a_harvest", a_wake_ends_the_wait_of_a_harvest),
    ("a_wake_before_the_harvest_is_not_lost", a_wake_before_the_harvest_is_not_lost),
    ("a_canceled_request_never_reaches_the_device", a_canceled_request_never_reaches_the_device),
    ("a_harvest_without_wait_does_not_block", a_harvest_without_wait_does_not_block),
    ("a_queue_may_move_to_another_thread", a_queue_may_move_to_another_thread),
    ("queues_of_one_device_do_not_disturb_each_other", queues_of_one_device_do_not_disturb_each_other),
];

/// Returns bytes that differ between offsets and between seeds.
pub fn pattern(seed: u8, len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    for (index, byte) in buf.iter_mut().enumerate() {
        *byte = (index % 251) as u8 ^ (index >> 9) as u8 ^ seed;
    }
    buf
}

/// Checks that a device refuses requests that are not aligned or not inside it, and accepts empty
/// ones.
pub fn refuses_bad_requests(device: &dyn Device) {
    let sector = device.sector_size() as usize;
    let kind = |result: io::Result<_>| result.unwrap_err().kind();
    for (offset, len) in [(1, sector), (0, sector / 2), (sector as u64 / 2, sector)] {
        let mut buf = vec![0; len];
        let read = device.read_at(offset, &mut [IoSliceMut::new(&mut buf)]);
        assert_eq!(kind(read), io::ErrorKind::InvalidInput);
        assert_eq!(kind(write_at(device, offset, &buf)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(device.discard(offset, len as u64)), io::ErrorKind::InvalidInput);
    }
    for offset in [device.size(), u64::MAX - (sector as u64 - 1)] {
        let error = read_at(device, offset, sector).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains(&format!("offset {offset} len {sector}")), "{error}");
        assert_eq!(kind(write_at(device, offset, &vec![0; sector])), io::ErrorKind::InvalidInput);
        assert_eq!(kind(device.discard(offset, sector as u64)), io::ErrorKind::InvalidInput);
    }
    device.read_at(device.size(), &mut []).unwrap();
    device.write_at(0, &[]).unwrap();
    device.discard(0, 0).unwrap();
}

/// Checks that threads read back what they wrote to regions of their own, many times.
pub fn threads_do_not_disturb_each_other(device: &dyn Device) {
    const REGION: usize = 12 << 10;
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..40u8 {
                    let offset = (usize::from(thread) * REGION) as u64;
                    let bytes = pattern(thread << 6 | round, REGION);
                    write_at(device, offset, &bytes).unwrap();
                    assert_eq!(read_at(device, offset, REGION).unwrap()[..], bytes[..]);
                }
            });
        }
    });
}

/// A read returns the bytes that were written.
pub fn what_is_written_is_read(device: &Arc<dyn Device>) {
    let mut queue = open_queue(device, 4);
    let data = pattern(1, 64 << 10);
    succeed(&mut *queue, write(1, 8192, &data));
    succeed(&mut *queue, flush(2));
    let done = one(&mut *queue, read(3, 8192, 64 << 10));
    assert_eq!((done.token, bytes(&done)), (3, &data[..]));
    assert!(bytes(&one(&mut *queue, read(4, 0, 8192))).iter().all(|&byte| byte == 0));
    assert_eq!(read_at(device, 8192, 64 << 10).unwrap()[..], data[..]);
}

/// Segments are gathered in order.
pub fn segments_are_gathered_in_order(device: &Arc<dyn Device>) {
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
}

/// Many and odd segments are gathered.
pub fn many_and_odd_segments_are_gathered(device: &Arc<dyn Device>) {
    let mut queue = open_queue(device, 4);
    let buf = Arc::new(pattern(3, 4096));
    // More segments than one system call accepts, of lengths that direct I/O does not accept.
    for (count, len) in [(3000, 512), (512, 8), (8, 64)] {
        let segment = |index: usize| Segment { buf: buf.clone(), start: index * 8 % 3000, len };
        let segments: Vec<_> = (0..count).map(segment).collect();
        let want: Vec<u8> = segments.iter().flat_map(|segment| segment.bytes().unwrap()).copied().collect();
        let op = Op::Write { offset: 4096, segments: segments.into() };
        succeed(&mut *queue, Request { token: 1, op });
        assert!(bytes(&one(&mut *queue, read(2, 4096, want.len()))) == want, "{count} of {len}");
    }
}

/// Requests may be large.
pub fn requests_may_be_large(device: &Arc<dyn Device>) {
    let mut queue = open_queue(device, 2);
    let data = pattern(4, 3 << 20);
    succeed(&mut *queue, write(1, 4096, &data));
    assert!(bytes(&one(&mut *queue, read(2, 4096, 3 << 20))) == &data[..]);
}

/// More requests than the queue is deep.
pub fn more_requests_than_the_queue_is_deep(device: &Arc<dyn Device>) {
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
}

fn kind_of(done: Done) -> ErrorKind {
    done.result.unwrap_err().kind()
}

/// Bad requests fail and give their buffers back.
pub fn bad_requests_fail_and_give_their_buffers_back(device: &Arc<dyn Device>) {
    let mut queue = open_queue(device, 4);
    let queue = &mut *queue;
    let end = device.size();
    for (offset, len) in [(1, 512), (0, 256), (256, 512)] {
        assert_eq!(kind_of(one(queue, read(1, offset, len))), ErrorKind::InvalidInput);
    }
    assert_eq!(kind_of(one(queue, write(1, 8, &[0; 512]))), ErrorKind::InvalidInput);
    for offset in [end, end - 4096, u64::MAX - 4095] {
        assert_eq!(kind_of(one(queue, read(1, offset, 8192))), ErrorKind::UnexpectedEof);
        assert_eq!(kind_of(one(queue, write(1, offset, &[0; 8192]))), ErrorKind::InvalidInput);
    }
    let outside = Segment { buf: Arc::new(AlignedBuf::zeroed(4096)), start: 4096, len: 512 };
    let op = Op::Write { offset: 0, segments: [outside].into_iter().collect() };
    assert_eq!(kind_of(one(queue, Request { token: 1, op })), ErrorKind::InvalidInput);
    let op = Op::Read { offset: 0, buf: AlignedBuf::zeroed(512), len: 1024 };
    let done = one(queue, Request { token: 1, op });
    assert!(matches!(&done.op, Op::Read { buf, .. } if buf.len() == 512));
    assert_eq!(kind_of(done), ErrorKind::InvalidInput);
}

/// Empty requests succeed.
pub fn empty_requests_succeed(device: &Arc<dyn Device>) {
    let mut queue = open_queue(device, 4);
    succeed(&mut *queue, read(1, device.size(), 0));
    succeed(&mut *queue, write(1, 0, &[]));
    let op = Op::Write { offset: 0, segments: [].into_iter().collect() };
    succeed(&mut *queue, Request { token: 1, op });
}

/// Dropping a queue completes its requests.
pub fn dropping_a_queue_completes_its_requests(device: &Arc<dyn Device>) {
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
        assert!(read_at(device, index << 16, 64 << 10).unwrap()[..] == shared[..]);
    }
}

/// A wake ends the wait of a harvest.
pub fn a_wake_ends_the_wait_of_a_harvest(device: &Arc<dyn Device>) {
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
}

/// A wake before the harvest is not lost.
pub fn a_wake_before_the_harvest_is_not_lost(device: &Arc<dyn Device>) {
    let mut queue = open_queue(device, 4);
    let waker = queue.waker();
    for _ in 0..100 {
        waker.wake();
        queue.harvest(true, &mut Vec::new()).unwrap();
    }
    waker.wake();
    drop(queue);
    waker.wake();
}

/// A canceled request never reaches the device.
pub fn a_canceled_request_never_reaches_the_device(device: &Arc<dyn Device>) {
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
        let written = read_at(device, done.token * 4096, 4096).unwrap()[0] != 0;
        let first_byte_is_zero = pattern(done.token as u8 | 1, 4096)[0] == 0;
        assert!(first_byte_is_zero || written != was_canceled, "{}", done.token);
    }
    assert!(!queue.cancel(0));
}

/// A harvest without wait does not block.
pub fn a_harvest_without_wait_does_not_block(device: &Arc<dyn Device>) {
    let mut queue = open_queue(device, 4);
    let mut done = Vec::new();
    queue.harvest(false, &mut done).unwrap();
    queue.submit(flush(7));
    let start = Instant::now();
    while done.is_empty() {
        queue.harvest(false, &mut done).unwrap();
        assert!(start.elapsed() < Duration::from_mins(1), "never done");
    }
    assert_eq!((done[0].token, queue.in_flight()), (7, 0));
}

/// A queue may move to another thread.
pub fn a_queue_may_move_to_another_thread(device: &Arc<dyn Device>) {
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
}

/// Queues of one device do not disturb each other.
pub fn queues_of_one_device_do_not_disturb_each_other(device: &Arc<dyn Device>) {
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
}

/// Returns a read of `len` bytes.
pub fn read(token: u64, offset: u64, len: usize) -> Request {
    // The buffer is longer than the read, whose end the tests check.
    let buf = AlignedBuf::zeroed(len.next_multiple_of(512) + 512);
    Request { token, op: Op::Read { offset, buf, len } }
}

/// Returns a write of `bytes`.
pub fn write(token: u64, offset: u64, bytes: &[u8]) -> Request {
    let segment = Segment::whole(Arc::new(AlignedBuf::from_slice(bytes)));
    Request { token, op: Op::Write { offset, segments: [segment].into_iter().collect() } }
}

/// Returns a flush.
pub fn flush(token: u64) -> Request {
    Request { token, op: Op::Flush }
}

/// Harvests until nothing is in flight, and returns the completions sorted by token.
pub fn finish(queue: &mut dyn Queue) -> Vec<Done> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        let before = (queue.in_flight(), done.len());
        queue.harvest(true, &mut done).unwrap();
        assert_eq!(before.0 - queue.in_flight(), done.len() - before.1);
    }
    done.sort_by_key(|done| done.token);
    done
}

/// Submits one request and returns its completion.
pub fn one(queue: &mut dyn Queue, request: Request) -> Done {
    queue.submit(request);
    let mut done = finish(queue);
    assert_eq!(done.len(), 1);
    done.pop().unwrap()
}

/// Returns the bytes that a successful read returned.
pub fn bytes(done: &Done) -> &[u8] {
    done.result.as_ref().unwrap();
    let Op::Read { buf, len, .. } = &done.op else { panic!("{done:?} is no read") };
    assert!(buf[*len..].iter().all(|&byte| byte == 0), "wrote past the length of the read");
    &buf[..*len]
}

/// Performs a request, which must succeed.
pub fn succeed(queue: &mut dyn Queue, request: Request) {
    one(queue, request).result.unwrap();
}

fn write_at(device: &dyn Device, offset: u64, bytes: &[u8]) -> io::Result<()> {
    device.write_at(offset, &[IoSlice::new(bytes)])
}

fn read_at(device: &dyn Device, offset: u64, len: usize) -> io::Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len);
    device.read_at(offset, &mut [IoSliceMut::new(&mut buf)])?;
    Ok(buf)
}
