//! Maps each request of the kernel to an operation of the [`Server`], and decides which thread
//! executes it.
//!
//! 1. A request thread reads a request; `fuser` calls the method of [`filesystem`] for it.
//! 2. The request is listed as [in flight](crate::in_flight) until it is answered.
//! 3. The same thread executes it if [`RequestThreads::try_execute`] permits. Otherwise a read or
//!    write that bypasses the volume's page cache goes to a [queue thread](QueueThreads), and any
//!    other request to a [worker](Deferred).
//! 4. The thread that has executed the request sends the [reply](reply::Reply). If the kernel must
//!    drop pages first, the threads of [`Invalidation`] or, after them, a worker send it.

mod deferred;
mod filesystem;
mod read_write;
mod rename;
mod reply;
mod shutdown;
mod switch;

use std::io;
use std::sync::Arc;

use fuser::{FileHandle, INodeNo};

use crate::in_flight::{InFlightRequest, RequestInfo, Stage, Watchdog};
use crate::kernel_cache::{Invalidation, KernelPages};
use crate::protocol::Outcome;
use crate::report::Requests;
use crate::server::Server;
use crate::threads::{
    IdleHeap, Latency, MemoryBudget, QueueThreads, RequestThreads, Reservation, SharedBuffers, WorkerPool,
};
use deferred::Deferred;
use reply::Reply;

/// Executes the requests of one mount.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    server: Arc<Server>,
    request_threads: Arc<RequestThreads>,
    workers: Arc<WorkerPool>,
    /// A thread that drops files which programs have closed. To drop a file may block on the
    /// volume.
    closer: WorkerPool,
    queue_threads: Arc<QueueThreads>,
    /// The memory of requests that other threads execute.
    memory: Arc<MemoryBudget>,
    deferred: Arc<Deferred>,
    _watchdog: Watchdog,
}

/// Limit of worker threads. Requests may block on each other, so the limit is far above the number
/// of busy threads. No worker blocks on the kernel.
const MAX_WORKERS: usize = 512;

/// Limit of the memory of a request other than a read or write, in bytes: that of the value of an
/// attribute.
const MAX_ARGUMENTS: usize = 64 << 10;

impl Dispatcher {
    /// Starts the queue threads and the watchdog.
    pub fn new(server: Arc<Server>) -> io::Result<Self> {
        let request_threads = Arc::new(RequestThreads::new(server.options.threads));
        let buffers = Arc::<SharedBuffers>::default();
        let volume =
            server.volume().map_err(|failure| io::Error::from_raw_os_error(failure.errno().code()))?;
        let queue_threads = Arc::new(QueueThreads::start(&volume, &buffers)?);
        drop(volume);
        let workers = Arc::new(WorkerPool::new("parext4-worker", MAX_WORKERS));
        let deferred = Arc::new(Deferred {
            server: Arc::clone(&server),
            workers: Arc::clone(&workers),
            buffers,
            invalidation: Invalidation::new(server.notifier.clone()),
        });
        let (checked, received, mut heap) =
            (Arc::clone(&server), Arc::clone(&request_threads), IdleHeap::default());
        let _watchdog = Watchdog::start(Arc::clone(&server.in_flight), move || {
            checked.log_refused();
            heap.check(received.received());
        })?;
        let (closer, memory) = (WorkerPool::new("parext4-close", 1), Arc::default());
        Ok(Self { server, request_threads, workers, closer, queue_threads, memory, deferred, _watchdog })
    }

    /// Returns the threads that read requests.
    pub fn request_threads(&self) -> Arc<RequestThreads> {
        Arc::clone(&self.request_threads)
    }

    /// Executes an operation and replies with its result. The operation waits for the device only
    /// if the mount syncs every change.
    fn execute<T, R: Reply<T> + Send + 'static>(
        &self,
        info: RequestInfo,
        reply: R,
        operation: impl FnOnce(&Server) -> Outcome<T> + Send + 'static,
    ) {
        let syncs = self.server.options.sync || self.server.options.dirsync;
        let latency = if syncs { Latency::Long } else { Latency::Short };
        self.execute_with(info, latency, reply, operation);
    }

    /// Like [`execute`](Self::execute), for an operation that waits for the device.
    fn execute_long<T, R: Reply<T> + Send + 'static>(
        &self,
        info: RequestInfo,
        reply: R,
        operation: impl FnOnce(&Server) -> Outcome<T> + Send + 'static,
    ) {
        self.execute_with(info, Latency::Long, reply, operation);
    }

    /// Executes fsync(2) and replies. If write-back fails while the request waits for a thread, the
    /// reply does not report that, so the sync keeps the failure on record.
    fn execute_sync(
        &self,
        ino: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: impl Reply<()> + Send + 'static,
    ) {
        let losses = self.kernel_pages(handle).map_or(0, |pages| pages.losses());
        self.execute_long(RequestInfo::new("fsync", ino), reply, move |server| {
            server.sync_file(handle, data_only, losses)
        });
    }

    fn execute_with<T, R: Reply<T> + Send + 'static>(
        &self,
        info: RequestInfo,
        latency: Latency,
        reply: R,
        operation: impl FnOnce(&Server) -> Outcome<T> + Send + 'static,
    ) {
        self.run(info, latency, move |server| reply.send(server.handle_corruption(operation(server))));
    }

    /// Like [`execute_long`](Self::execute_long), after the kernel has written back its dirty pages
    /// of files.
    fn execute_after_write_back<T, R: Reply<T> + Send + 'static>(
        &self,
        info: RequestInfo,
        files: impl IntoIterator<Item = Arc<KernelPages>>,
        reply: R,
        operation: impl FnOnce(&Server) -> Outcome<T> + Send + 'static,
    ) {
        let dirty: Vec<_> = files.into_iter().filter(|pages| pages.may_be_dirty()).collect();
        if dirty.is_empty() {
            return self.execute_long(info, reply, operation);
        }
        let deferred = Arc::clone(&self.deferred);
        let in_flight = self.server.in_flight.add(info);
        in_flight.enter(Stage::WaitingForKernel);
        let _scope = self.request_threads.begin_request().hand_off();
        self.deferred.drop_each(dirty, move || {
            deferred.run_in_worker(in_flight, move |deferred, _in_flight| {
                reply.send(deferred.server.handle_corruption(operation(&deferred.server)));
            });
        });
    }

    /// Runs an operation in the calling thread, or in a worker if no other thread would be left to
    /// read requests.
    fn run(&self, info: RequestInfo, latency: Latency, operation: impl FnOnce(&Server) + Send + 'static) {
        self.run_deferred(info, latency, |deferred, _in_flight| operation(&deferred.server));
    }

    /// Like [`run`](Self::run), for an operation that another thread may have to finish.
    fn run_deferred(
        &self,
        info: RequestInfo,
        latency: Latency,
        operation: impl FnOnce(&Arc<Deferred>, InFlightRequest) + Send + 'static,
    ) {
        let in_flight = self.server.in_flight.add(info);
        let scope = self.request_threads.begin_request();
        if let Some(_executing) = self.request_threads.try_execute(latency) {
            return operation(&self.deferred, in_flight);
        }
        let _scope = scope.hand_off();
        let reserved = self.reserve_memory(&in_flight, MAX_ARGUMENTS);
        self.deferred.run_in_worker(in_flight, move |deferred, in_flight| {
            operation(deferred, in_flight);
            drop(reserved);
        });
    }

    /// Reserves memory for a request that another thread executes. Blocks while such requests use
    /// up the budget.
    fn reserve_memory(&self, in_flight: &InFlightRequest, bytes: usize) -> Reservation {
        in_flight.enter(Stage::WaitingForMemory);
        self.memory.reserve(bytes)
    }

    /// Returns the record of the kernel's pages of an open file.
    fn kernel_pages(&self, handle: FileHandle) -> Option<Arc<KernelPages>> {
        self.server.open_file(handle).ok().map(|open| Arc::clone(&open.pages))
    }

    /// Counts the requests in flight by the kind of thread that executes them. The calling request
    /// is not counted yet.
    fn request_counts(&self) -> Requests {
        Requests {
            received: self.request_threads.received(),
            in_threads: self.request_threads.executing() as u64,
            in_workers: self.workers.unfinished() as u64,
            in_queues: self.queue_threads.in_flight() as u64,
            in_kernel: self.deferred.invalidation.waiting() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    use fuser::Errno;
    use parext4::{MemDevice, MkfsOptions, OpenOptions, Volume, VolumeOptions, mkfs};

    use super::*;
    use crate::inodes::OpenFile;
    use crate::options::{Cache, MountOptions};

    impl Reply<()> for Sender<()> {
        fn send(self, outcome: Outcome<()>) {
            outcome.expect("the operation succeeds");
            // The test may have ended.
            let _ = Self::send(&self, ());
        }
    }

    fn dispatcher(threads: usize) -> Dispatcher {
        let device = MemDevice::new(8 << 20);
        mkfs(&device, &MkfsOptions::new().device_is_zero(true)).unwrap();
        let volume = Volume::open_device(Arc::new(device), &VolumeOptions::new()).unwrap();
        let server = Server::new(volume, Path::new("image"), MountOptions::new().threads(threads)).unwrap();
        Dispatcher::new(Arc::new(server)).unwrap()
    }

    #[test]
    fn a_sync_that_waits_for_a_worker_does_not_forget_data_that_is_lost_meanwhile() {
        // The only thread that reads requests executes no sync.
        let mut dispatcher = dispatcher(1);
        let workers = Arc::new(WorkerPool::new("test", 1));
        Arc::get_mut(&mut dispatcher.deferred).unwrap().workers = Arc::clone(&workers);
        let volume = dispatcher.server.volume().unwrap();
        volume.write("/file", "text").unwrap();
        let file = volume.open_direct("/file", &OpenOptions::new().write(true)).unwrap();
        let ino = INodeNo(file.inode_ref().ino().get().into());
        let pages = Arc::new(KernelPages::new(ino, true));
        let open = OpenFile::new(file, Arc::clone(&pages), libc::O_RDWR, Cache::Writeback, true, true);
        let handle = dispatcher.server.open_files.add(open);
        let sync = |meanwhile: &dyn Fn()| {
            let (release, released) = channel::<()>();
            // Blocks the only worker until the sender is dropped.
            workers.spawn(move || {
                let _ = released.recv();
            });
            let (reply, replies) = channel();
            dispatcher.execute_sync(ino, handle, false, reply);
            meanwhile();
            drop(release);
            replies.recv().unwrap();
            pages.lost().map(Errno::code)
        };
        assert_eq!(sync(&|| pages.note_lost(Errno::ENOSPC)), Some(libc::ENOSPC));
        assert_eq!(sync(&|| ()), None, "the kernel has reported the loss");
    }

    #[test]
    fn a_request_is_queued_before_the_thread_that_has_read_it_parks() {
        // A thread parks only if one for each four processors is left.
        let threads = std::thread::available_parallelism().map_or(1, usize::from) + 1;
        let mut dispatcher = dispatcher(threads);
        dispatcher.request_threads = Arc::new(RequestThreads::parking_for_long(threads));
        let request_threads = dispatcher.request_threads();
        request_threads.make_busy();
        let pages = Arc::new(KernelPages::new(INodeNo(12), false));
        let _writer = pages.add_writer(false);
        pages.note_fill();
        let (reply, replies) = channel();
        std::thread::scope(|scope| {
            let (info, dispatcher) = (RequestInfo::new("lseek", INodeNo(12)), &dispatcher);
            scope.spawn(move || dispatcher.execute_after_write_back(info, Some(pages), reply, |_| Ok(())));
            let start = Instant::now();
            while !request_threads.has_parked() {
                assert!(start.elapsed() < Duration::from_secs(10), "the thread parks");
                std::thread::yield_now();
            }
            // In the order in which the request passes from one to the next.
            let is_queued = dispatcher.deferred.invalidation.waiting() > 0
                || dispatcher.workers.unfinished() > 0
                || replies.try_recv().is_ok();
            // Before the assertion: the scope waits for the thread.
            request_threads.wake_reader();
            assert!(is_queued, "the request waits for the parked thread");
        });
    }
}
