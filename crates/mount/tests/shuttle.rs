//! Models of the server beside a kernel that sends at most four background requests at a time. The scheduler reports a
//! request that waits for itself as a deadlock.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p parext4-mount --release --test shuttle`.
#![cfg(shuttle)]

use std::ffi::OsStr;
use std::sync::Arc;

use fuser::INodeNo;
use parext4_mount::models::{Invalidation, Kernel, KernelPages, MemoryBudget};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::spawn;
use shuttle::{Config, Runner};

/// Limit of the kernel's concurrent background requests.
const MAX_BACKGROUND: usize = 4;
/// Direct reads and writes of programs: more than that limit.
const DIRECT: usize = 6;
/// Threads that block on the kernel: fewer than requests, so that requests queue.
const THREADS: usize = 2;
/// Limit of the writes that the server has memory for.
const MEMORY: usize = 1;

/// A server, with or without one of its guards.
#[derive(Clone, Copy, Debug)]
struct Guards {
    /// Limit of the direct requests that wait for the kernel.
    max_direct: usize,
    /// A write frees its memory before it waits for the kernel.
    frees_memory_first: bool,
}

const ALL: Guards = Guards { max_direct: MAX_BACKGROUND / 2, frees_memory_first: true };

#[derive(Clone, Copy, Debug)]
enum Request {
    DirectWrite,
    /// A read past the end of the volume's file: the kernel must write back first.
    DirectRead,
    WriteBack,
    /// The volume is unmounted.
    Destroy,
}

/// A kernel that has a dirty page of the file whenever the server has it drop the pages.
#[derive(Debug)]
struct ModelKernel {
    /// Number of background requests that the kernel may still send.
    free: Mutex<usize>,
    freed: Condvar,
    /// `/dev/fuse`: requests, each with the channel of its reply.
    requests: Mutex<Sender<(Request, Sender<()>)>>,
}

impl ModelKernel {
    /// Sends a background request, and blocks until the reply.
    fn send_in_background(&self, request: Request) {
        let mut free = self.free.lock().unwrap();
        while *free == 0 {
            free = self.freed.wait(free).unwrap();
        }
        *free -= 1;
        drop(free);
        self.send(request);
        *self.free.lock().unwrap() += 1;
        self.freed.notify_one();
    }

    fn send(&self, request: Request) {
        let (reply, replied) = channel();
        self.requests.lock().unwrap().send((request, reply)).unwrap();
        replied.recv().expect("the request is answered");
    }
}

impl Kernel for ModelKernel {
    fn drop_pages(&self, _: INodeNo, _: i64, _: i64) {
        self.send_in_background(Request::WriteBack);
    }

    fn forget_name(&self, _: INodeNo, _: &OsStr) {}
}

/// The thread of the server that reads all requests. It hands writes, with a copy of their data, to other threads.
fn serve(requests: &Receiver<(Request, Sender<()>)>, invalidation: &Arc<Invalidation>, guards: Guards) {
    let pages = Arc::new(KernelPages::new(INodeNo(12), true));
    let memory = Arc::new(MemoryBudget::with_limit(MEMORY));
    for (request, replies) in requests {
        let (pages, reply) = (Arc::clone(&pages), move || replies.send(()).unwrap());
        match request {
            Request::DirectWrite => {
                let (invalidation, mut reserved) = (Arc::clone(invalidation), Some(memory.reserve(1)));
                spawn(move || {
                    if guards.frees_memory_first {
                        reserved = None;
                    }
                    invalidation.drop_written(pages, 0, 4096, move || {
                        reply();
                        drop(reserved);
                    });
                });
            }
            Request::DirectRead => match invalidation.try_wait_for_kernel() {
                Some(permit) => invalidation.drop_all(pages, move || {
                    reply();
                    drop(permit);
                }),
                None => reply(),
            },
            Request::WriteBack => {
                drop(memory.reserve(1));
                reply();
            }
            Request::Destroy => return reply(),
        }
    }
}

/// Programs send direct requests.
fn direct_requests(guards: Guards) {
    let (sender, requests) = channel();
    let (free, requests_sent) = (Mutex::new(MAX_BACKGROUND), Mutex::new(sender));
    let kernel = Arc::new(ModelKernel { free, freed: Condvar::new(), requests: requests_sent });
    let invalidation = Arc::new(Invalidation::with_limits(kernel.clone(), THREADS, guards.max_direct));
    let server = {
        let invalidation = Arc::clone(&invalidation);
        spawn(move || serve(&requests, &invalidation, guards))
    };
    let program = |nth| {
        let kernel = Arc::clone(&kernel);
        let request = if nth % 2 == 0 { Request::DirectWrite } else { Request::DirectRead };
        spawn(move || kernel.send_in_background(request))
    };
    let programs: Vec<_> = (0..DIRECT).map(program).collect();
    programs.into_iter().for_each(|program| program.join().unwrap());
    invalidation.join();
    kernel.send(Request::Destroy);
    server.join().unwrap();
}

fn run(scheduler: impl Scheduler + 'static, guards: Guards) {
    Runner::new(scheduler, Config::default()).run(move || direct_requests(guards));
}

#[test]
fn direct_requests_leave_room_for_the_write_back_that_they_wait_for() {
    run(RandomScheduler::new(2000), ALL);
    run(PctScheduler::new(3, 2000), ALL);
    for without_guard in
        [Guards { max_direct: MAX_BACKGROUND, ..ALL }, Guards { frees_memory_first: false, ..ALL }]
    {
        let failed = std::thread::spawn(move || run(RandomScheduler::new(2000), without_guard));
        assert!(
            failed.join().is_err(),
            "the model does not detect that a guard is missing: {without_guard:?}"
        );
    }
}
