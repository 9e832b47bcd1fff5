//! Models of the server beside a kernel that sends at most four background requests at a time. The
//! scheduler reports a request that waits for itself as a deadlock.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p parext4-mount --release --test shuttle`.
#![cfg(shuttle)]

use std::ffi::{OsStr, OsString};
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
/// Renames in one directory: more than threads.
const RENAMES: usize = 3;
/// Threads that block on the kernel's pages: fewer than requests, so that requests queue.
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
    /// The threads that block on pages send no names.
    sends_names_apart: bool,
}

const ALL: Guards =
    Guards { max_direct: MAX_BACKGROUND / 2, frees_memory_first: true, sends_names_apart: true };

#[derive(Clone, Copy, Debug)]
enum Request {
    DirectWrite,
    /// A read past the end of the volume's file: the kernel must write back first.
    DirectRead,
    /// A rename over a dirty file: the kernel must write back first, and then forget the new name.
    /// The kernel holds the directory until the reply.
    Rename,
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
    /// The lock of the directory.
    directory: Mutex<()>,
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

    /// Sends a request of a program, and blocks until the reply.
    fn send_for_program(&self, request: Request) {
        match request {
            Request::Rename => {
                let _held = self.directory.lock().unwrap();
                self.send(request);
            }
            _ => self.send_in_background(request),
        }
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

    fn drop_attributes(&self, _: INodeNo) {}

    fn forget_name(&self, _: INodeNo, _: &OsStr) {
        drop(self.directory.lock().unwrap());
    }
}

/// The thread of the server that reads all requests. It hands writes, with a copy of their data, to
/// other threads.
fn serve(
    requests: &Receiver<(Request, Sender<()>)>,
    kernel: &Arc<ModelKernel>,
    invalidation: &Arc<Invalidation>,
    guards: Guards,
) {
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
            Request::Rename => {
                let (kernel, sender) = (Arc::clone(kernel), Arc::clone(invalidation));
                invalidation.drop_all(Arc::clone(&pages), move || {
                    if guards.sends_names_apart {
                        sender.forget_name(INodeNo(2), OsString::from("name"));
                    } else {
                        sender.drop_all(pages, move || kernel.forget_name(INodeNo(2), OsStr::new("name")));
                    }
                    reply();
                });
            }
            Request::WriteBack => {
                let _request = pages.start_write_back();
                drop(memory.reserve(1));
                reply();
            }
            Request::Destroy => return reply(),
        }
    }
}

/// Each program sends a request.
fn serve_programs(programs: &[Request], guards: Guards) {
    let (sender, requests) = channel();
    let kernel = Arc::new(ModelKernel {
        free: Mutex::new(MAX_BACKGROUND),
        freed: Condvar::new(),
        directory: Mutex::new(()),
        requests: Mutex::new(sender),
    });
    let invalidation = Arc::new(Invalidation::with_limits(kernel.clone(), THREADS, guards.max_direct));
    let server = {
        let (kernel, invalidation) = (Arc::clone(&kernel), Arc::clone(&invalidation));
        spawn(move || serve(&requests, &kernel, &invalidation, guards))
    };
    let program = |&request| {
        let kernel = Arc::clone(&kernel);
        spawn(move || kernel.send_for_program(request))
    };
    let programs: Vec<_> = programs.iter().map(program).collect();
    programs.into_iter().for_each(|program| program.join().unwrap());
    invalidation.join();
    kernel.send(Request::Destroy);
    server.join().unwrap();
}

fn run(scheduler: impl Scheduler + 'static, programs: &'static [Request], guards: Guards) {
    Runner::new(scheduler, Config::default()).run(move || serve_programs(programs, guards));
}

/// Asserts that all requests of `programs` are answered, and that the model detects if one of the
/// guards is missing.
fn assert_all_are_answered(programs: &'static [Request], without_guard: &[Guards]) {
    run(RandomScheduler::new(2000), programs, ALL);
    run(PctScheduler::new(3, 2000), programs, ALL);
    for &guards in without_guard {
        let failed = std::thread::spawn(move || run(RandomScheduler::new(2000), programs, guards));
        assert!(failed.join().is_err(), "the model does not detect that a guard is missing: {guards:?}");
    }
}

#[test]
fn direct_requests_leave_room_for_the_write_back_that_they_wait_for() {
    const PROGRAMS: [[Request; 2]; DIRECT / 2] = [[Request::DirectWrite, Request::DirectRead]; DIRECT / 2];
    let without_guard =
        [Guards { max_direct: MAX_BACKGROUND, ..ALL }, Guards { frees_memory_first: false, ..ALL }];
    assert_all_are_answered(PROGRAMS.as_flattened(), &without_guard);
}

#[test]
fn renames_do_not_wait_for_names_that_wait_for_their_directory() {
    assert_all_are_answered(&[Request::Rename; RENAMES], &[Guards { sends_names_apart: false, ..ALL }]);
}
