//! Fallback to threads if the system forbids io_uring.

use std::time::Instant;

use super::*;
use seccompiler::{SeccompAction, SeccompFilter};

/// Number of the system call `io_uring_setup` on every architecture.
const IO_URING_SETUP: i64 = 425;
const EPERM: u32 = 1;

/// Makes the kernel refuse `io_uring_setup` to this thread and to threads that it starts, as
/// container runtimes do.
fn forbid_io_uring() {
    let rules = [(IO_URING_SETUP, Vec::new())].into();
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(EPERM),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

#[test]
fn threads_serve_where_io_uring_is_forbidden() {
    let forbidden = || {
        forbid_io_uring();
        let (_dir, device) = image(Direct::Auto).unwrap();
        let mut queue = open_queue(&device, 4);
        assert!(format!("{queue:?}").starts_with("ThreadQueue"), "{queue:?}");
        let data = pattern(1, 1 << 20);
        succeed(&mut *queue, write(1, 4096, &data));
        succeed(&mut *queue, flush(2));
        assert!(bytes(&one(&mut *queue, read(3, 4096, 1 << 20))) == &data[..]);

        let dir = TempDir::new().unwrap();
        let file = std::fs::File::create_new(dir.path().join("file")).unwrap();
        let mut queue = open_file_queue(file, 4, false).unwrap();
        assert!(format!("{queue:?}").starts_with("ThreadQueue"), "{queue:?}");
        succeed(&mut *queue, write(1, 1 << 20, &data));
        assert_eq!(dir.path().join("file").metadata().unwrap().len(), 2 << 20);
    };
    std::thread::spawn(forbidden).join().unwrap();
}

/// Returns true if the queue's descriptor is readable now.
fn is_readable(queue: &dyn Queue) -> bool {
    let descriptor = queue.descriptor().expect("a ring");
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut events = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut events, Some(&now)).unwrap() == 1
}

#[test]
fn each_wake_since_it_was_armed_makes_the_descriptor_readable() {
    let (_dir, device) = image(Direct::Auto).unwrap();
    let mut queue = open_queue(&device, 4);
    if queue.descriptor().is_none() {
        return device_testkit::skip::skip_allowed("the kernel has no io_uring");
    }
    let waker = queue.waker();
    let mut done = Vec::new();
    for _ in 0..3 {
        queue.arm();
        queue.harvest(false, &mut done).unwrap();
        // This one is reaped by the harvest before the wait.
        waker.wake();
        while is_readable(&*queue) {
            queue.harvest(false, &mut done).unwrap();
        }
        waker.wake();
        let deadline = Instant::now() + Duration::from_mins(1);
        while !is_readable(&*queue) {
            assert!(Instant::now() < deadline, "the second wake is lost");
        }
    }
    assert!(done.is_empty());
    // A harvest that blocks returns for the earlier wakes.
    queue.harvest(true, &mut done).unwrap();
}
