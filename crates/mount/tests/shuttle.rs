//! Models of the server beside a kernel that sends few background requests at a time. A request that waits for itself
//! the scheduler reports as a deadlock.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p parext4-mount --release --test shuttle`.
#![cfg(shuttle)]

use std::sync::Arc;

use fuser::INodeNo;
use parext4_mount::models::{Invalidation, Kernel, KernelPages};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::spawn;
use shuttle::{Config, Runner};

/// Limit of the kernel's concurrent background requests.
const BACKGROUND: usize = 4;
/// Direct reads and writes of programs: enough to fill that limit.
const DIRECT: usize = 6;
/// Threads that block on the kernel: fewer than requests, so that some queue.
const THREADS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Request {
    DirectWrite,
    /// Past the end of the volume's file: the kernel must write back first.
    DirectRead,
    WriteBack,
    /// The volume is unmounted.
    Destroy,
}

/// A kernel that has a dirty page of the file whenever its pages are to be dropped.
#[derive(Debug)]
struct ModelKernel {
    /// Background requests that may still be sent.
    free: Mutex<usize>,
    freed: Condvar,
    /// `/dev/fuse`: requests, and where to answer them.
    requests: Mutex<Sender<(Request, Sender<()>)>>,
}

impl ModelKernel {
    /// Sends a background request, and waits for the answer.
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
        let (answer, answered) = channel();
        self.requests.lock().unwrap().send((request, answer)).unwrap();
        answered.recv().expect("the request is answered");
    }
}

impl Kernel for ModelKernel {
    fn drop_pages(&self, _: INodeNo, _: i64, _: i64) {
        self.send_in_background(Request::WriteBack);
    }
}

/// The thread of the server that carries out all requests.
fn serve(requests: &Receiver<(Request, Sender<()>)>, invalidation: &Invalidation) {
    let pages = Arc::new(KernelPages::new(INodeNo(12), true));
    for (request, reply) in requests {
        let (pages, answer) = (Arc::clone(&pages), move || reply.send(()).unwrap());
        match request {
            Request::DirectWrite => invalidation.drop_written(pages, 0, 4096, answer),
            Request::DirectRead => match invalidation.place() {
                Some(place) => invalidation.drop_all(pages, move || {
                    answer();
                    drop(place);
                }),
                None => answer(),
            },
            Request::WriteBack => answer(),
            Request::Destroy => return answer(),
        }
    }
}

/// Programs send direct requests, of which `most_direct` may wait for the kernel.
fn direct_requests(most_direct: usize) {
    let (sender, requests) = channel();
    let (free, requests_sent) = (Mutex::new(BACKGROUND), Mutex::new(sender));
    let kernel = Arc::new(ModelKernel { free, freed: Condvar::new(), requests: requests_sent });
    let invalidation = Arc::new(Invalidation::with_limits(kernel.clone(), THREADS, most_direct));
    let server = {
        let invalidation = Arc::clone(&invalidation);
        spawn(move || serve(&requests, &invalidation))
    };
    let program = |nth| {
        let kernel = Arc::clone(&kernel);
        let request = if nth % 2 == 0 { Request::DirectWrite } else { Request::DirectRead };
        spawn(move || kernel.send_in_background(request))
    };
    let programs: Vec<_> = (0..DIRECT).map(program).collect();
    programs.into_iter().for_each(|program| program.join().unwrap());
    invalidation.finish();
    kernel.send(Request::Destroy);
    server.join().unwrap();
}

fn run(scheduler: impl Scheduler + 'static, most_direct: usize) {
    Runner::new(scheduler, Config::default()).run(move || direct_requests(most_direct));
}

#[test]
fn direct_requests_leave_room_for_the_write_back_that_they_wait_for() {
    run(RandomScheduler::new(2000), BACKGROUND / 2);
    run(PctScheduler::new(3, 2000), BACKGROUND / 2);
    let without_limit = std::thread::spawn(|| run(RandomScheduler::new(2000), BACKGROUND));
    assert!(without_limit.join().is_err(), "the model does not notice that the limit is missing");
}
