//! Requests that fail: each returns its buffer and releases its range.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use parext4::device::{
    CallKind, Done, FaultDevice, FaultKind, FaultPlan, InlineQueue, Queue, QueueWaker, Request,
    forward_device,
};
use parext4::{Device, Error, FileSize, InodeFlags, IoRequest, MemDevice, ResearchOptions, SplitAt, Volume};

use super::test_volume::{Kind, TestVolume, WAIT, append, buffer, contents, harvest_all, one, read, write};
use testkit::Image;
use testkit::volume::{DirectFiles as _, Shape, assert_recovers, untimed};

type Check = fn(&Error) -> bool;

#[test]
fn bad_requests_return_their_buffers() {
    let test = TestVolume::new(Kind::Threads, 4096);
    let other = TestVolume::new(Kind::Inline, 4096);
    let file = test.volume.create_direct("/file").unwrap();
    let stranger = other.volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    let mut queue = test.volume.io_queue(4);
    let buf = || buffer(&[7; 1024]);
    let invalid = |error: &Error| matches!(error, Error::Invalid(_));
    let too_large = |error: &Error| matches!(error, Error::FileTooLarge);
    let cases: [(&_, _, Check); 9] = [
        (&file, IoRequest::Write { buf: buf(), len: 1025, offset: 0 }, invalid),
        (&file, IoRequest::Read { buf: buf(), len: 1025, offset: 0 }, invalid),
        (&file, IoRequest::Append { buf: buf(), len: usize::MAX }, invalid),
        (&file, IoRequest::Write { buf: buf(), len: 512, offset: 100 }, invalid),
        (&file, IoRequest::Read { buf: buf(), len: 512, offset: 100 }, invalid),
        (&file, IoRequest::Write { buf: buf(), len: 100, offset: 0 }, invalid),
        (&file, IoRequest::Read { buf: buf(), len: 100, offset: 0 }, invalid),
        (&file, IoRequest::Write { buf: buf(), len: 512, offset: u64::MAX - 511 }, too_large),
        (&stranger, IoRequest::Write { buf: buf(), len: 512, offset: 0 }, invalid),
    ];
    for (file, request, is_it) in cases {
        let what = format!("{request:?}");
        let done = one(&mut queue, file, request, WAIT);
        let error = done.result.unwrap_err();
        assert!(is_it(&error), "{what}: {error}");
        assert!(done.buf.unwrap()[..] == [7; 1024], "{what}");
    }
    assert!(matches!(one(&mut queue, &stranger, IoRequest::SyncAll, WAIT).result, Err(Error::Invalid(_))));
    // All ranges are free, and an unaligned end refuses appends, as it does without a queue.
    file.write_all_at(&[2; 8192], 0).unwrap();
    one(&mut queue, &file, append(&[3; 100]), WAIT).result.unwrap();
    assert!(matches!(one(&mut queue, &file, append(&[3; 512]), WAIT).result, Err(Error::Invalid(_))));
    file.set_len(8192).unwrap();
    assert_eq!(one(&mut queue, &file, append(&[3; 512]), WAIT).result.unwrap(), 8192);
    drop((queue, file, stranger));
    test.close();
    other.close();
}

#[test]
fn immutable_files_and_read_only_volumes_refuse_writes_only() {
    let Some(image) = Image::mke2fs(16, &["-b", "4096"]) else { return };
    let volume = image.open();
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    let flags = file.inode_ref().flags();
    file.inode_ref().set_flags(flags | InodeFlags::IMMUTABLE).unwrap();
    let mut queue = volume.io_queue(4);
    assert!(matches!(one(&mut queue, &file, write(&[1; 512], 0), WAIT).result, Err(Error::NotPermitted(_))));
    assert!(matches!(one(&mut queue, &file, append(&[1; 512]), WAIT).result, Err(Error::NotPermitted(_))));
    assert_eq!(one(&mut queue, &file, read(4096, 0), WAIT).result.unwrap(), 4096);
    file.inode_ref().set_flags(flags | InodeFlags::APPEND).unwrap();
    assert!(matches!(one(&mut queue, &file, write(&[1; 512], 0), WAIT).result, Err(Error::NotPermitted(_))));
    assert_eq!(one(&mut queue, &file, append(&[1; 512]), WAIT).result.unwrap(), 4096);
    drop((queue, file));
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn a_volume_with_a_queue_does_not_close() {
    let test = TestVolume::new(Kind::Threads, 4096);
    let file = test.volume.create_direct("/file").unwrap();
    let mut queue = test.volume.io_queue(4);
    assert!(matches!(test.volume.clone().close(), Err(Error::Busy(_))));
    one(&mut queue, &file, append(&[1; 512]), WAIT).result.unwrap();
    drop((queue, file));
    test.close();
}

/// One queue with a write of each kind, reads, appends and syncs.
fn requests() -> Vec<IoRequest> {
    vec![
        write(&[2; 4096], 0),
        write(&[3; 512], 5 * 1024 + 512),
        write(&[4; 3 * 1024], 20 * 1024),
        read(8192, 0),
        append(&[5; 1024]),
        write(&[6; 700], 70 * 1024),
        IoRequest::SyncData,
        read(512, 512),
        append(&[7; 2048]),
        IoRequest::SyncAll,
    ]
}

/// Runs the requests with a fault at one call. Returns false if there was no such call.
fn with_fault(kind: FaultKind, call: u64, at_once: bool, split_at: SplitAt) -> bool {
    let what = format!("{kind:?} call {call} fails, at once: {at_once}, {split_at}");
    let memory = Arc::new(Shape::new(8, 1024, true).make_poisoned());
    let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as _, FaultPlan::default()));
    let volume = Volume::open_device(
        Arc::clone(&device) as _,
        &untimed().research(ResearchOptions::new().split_at(split_at)),
    )
    .unwrap();
    let file = volume.create_direct("/file").unwrap();
    file.allocate(0..32 << 10, FileSize::Extend).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    volume.sync().unwrap();

    device.arm(FaultPlan::at(call).kind(kind));
    let mut queue = volume.io_queue(4);
    let mut done = Vec::new();
    for (token, request) in (0..).zip(requests()) {
        queue.submit(&file, request, token, WAIT);
        if !at_once {
            done.extend(harvest_all(&mut queue));
        }
    }
    done.extend(harvest_all(&mut queue));
    assert_eq!(done.len(), requests().len());
    for (completion, request) in done.iter().zip(requests()) {
        let (IoRequest::Write { buf, .. } | IoRequest::Append { buf, .. }) = request else { continue };
        assert!(
            completion.buf.as_ref().unwrap()[..] == buf[..],
            "{what}: the buffer of {}",
            completion.token
        );
    }
    let failed = device.failed();
    if let Some(failed) = failed {
        let errors: Vec<_> = done.iter().filter_map(|done| done.result.as_ref().err()).collect();
        assert!(
            errors.iter().any(|error| matches!(error, Error::Device { .. } | Error::Stopped(_))),
            "{what}: no operation got the error of {failed:?}"
        );
        if failed.kind != CallKind::Read {
            assert!(matches!(file.write_all_at(&[1; 512], 0), Err(Error::Stopped(_))), "{what}: not stopped");
            let done = one(&mut queue, &file, append(&[9; 512]), WAIT);
            assert!(matches!(done.result, Err(Error::Stopped(_))), "{what}");
            assert!(done.buf.unwrap()[..] == [9; 512]);
        }
    }
    device.disarm();
    // No range is held, and the file has the written contents.
    assert!(contents(&file).iter().all(|&byte| byte < 10), "{what}: the file has other contents");
    drop((queue, file));
    assert_eq!(volume.close().is_ok(), failed.is_none_or(|failed| failed.kind == CallKind::Read), "{what}");
    assert_recovers(&memory, &what);
    failed.is_some()
}

#[test]
fn every_call_to_the_device_may_fail() {
    for (at_once, split_at) in
        [(true, SplitAt::Completion), (false, SplitAt::Completion), (true, SplitAt::Submission)]
    {
        for kind in [FaultKind::Writes, FaultKind::Reads, FaultKind::Flushes] {
            for call in 1.. {
                if !with_fault(kind, call, at_once, split_at) {
                    break;
                }
            }
        }
    }
}

/// A device in memory. While the flag is set, it opens queues that fail.
#[derive(Debug)]
struct FailingQueues {
    memory: Arc<MemDevice>,
    fails: AtomicBool,
}

impl Device for FailingQueues {
    forward_device!(this => this.memory; size, sector_size, network, read_only, read_at, write_at, flush, discard);

    fn native_queue(self: Arc<Self>, _depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        if self.fails.load(Ordering::Relaxed) {
            return Ok(Some(Box::new(FailingQueue { device: self, requests: Vec::new() })));
        }
        Ok(Some(Box::new(InlineQueue::new(self))))
    }
}

/// A queue that cannot be harvested. The device performs its requests when it is dropped.
#[derive(Debug)]
struct FailingQueue {
    device: Arc<FailingQueues>,
    requests: Vec<Request>,
}

struct NoWake;

impl Wake for NoWake {
    fn wake(self: Arc<Self>) {}
}

impl Queue for FailingQueue {
    fn submit(&mut self, request: Request) {
        self.requests.push(request);
    }

    fn harvest(&mut self, _wait: bool, _done: &mut Vec<Done>) -> io::Result<()> {
        Err(io::Error::other("the queue fails"))
    }

    fn in_flight(&self) -> usize {
        self.requests.len()
    }

    fn cancel(&mut self, _token: u64) -> bool {
        false
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(Arc::new(NoWake))
    }
}

impl Drop for FailingQueue {
    fn drop(&mut self) {
        for request in self.requests.drain(..) {
            request.perform(&*self.device);
        }
    }
}

#[test]
fn a_queue_that_fails_while_it_has_writes_stops_the_volume() {
    let memory = Arc::new(Shape::new(8, 1024, true).make_poisoned());
    let device = Arc::new(FailingQueues { memory: Arc::clone(&memory), fails: AtomicBool::new(false) });
    let volume = Volume::open_device(Arc::clone(&device) as _, &untimed()).unwrap();
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    volume.sync().unwrap();
    let fail = |request| {
        device.fails.store(true, Ordering::Relaxed);
        let mut queue = volume.io_queue(4);
        device.fails.store(false, Ordering::Relaxed);
        queue.submit(&file, request, 1, WAIT);
        for _ in 0..2 {
            assert!(matches!(queue.harvest(&mut Vec::new()), Err(Error::Device { .. })));
        }
        assert_eq!(queue.in_flight(), 1);
    };
    fail(read(4096, 0));
    file.write_all_at(&[2; 4096], 0).unwrap();
    volume.sync().unwrap();
    // A retry that succeeded could be overwritten by this one.
    fail(write(&[3; 4096], 0));
    assert!(matches!(file.write_all_at(&[4; 4096], 0), Err(Error::Stopped(_))));
    assert!(matches!(volume.sync(), Err(Error::Stopped(_))));
    // No range is held.
    assert_eq!(contents(&file), [vec![3; 4096], vec![1; 4096]].concat());
    drop(file);
    assert!(volume.close().is_err());
    assert_recovers(&memory, "a failed queue");
}
