//! A device outside the device crate that has a native queue, as a device on a network has.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::JoinHandle;

use parext4_device::{Device, Done, MemDevice, Queue, QueueWaker, Request, forward_device};

/// A device in memory whose queues each have a connection: a thread that performs the requests that
/// have arrived newest first, so that they complete out of order.
#[derive(Debug)]
pub struct RemoteDevice {
    memory: Arc<MemDevice>,
    queued: AtomicU64,
}

impl RemoteDevice {
    /// Makes a device with the contents of `memory`.
    pub fn new(memory: Arc<MemDevice>) -> Self {
        Self { memory, queued: AtomicU64::new(0) }
    }

    /// Returns the number of requests that its queues have performed.
    pub fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }
}

impl Device for RemoteDevice {
    forward_device!(this => this.memory; size, sector_size, network, read_only, read_at, write_at, flush, discard);

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        Ok(Some(Box::new(RemoteQueue::new(self, depth)?)))
    }
}

/// A queue of a [`RemoteDevice`].
#[derive(Debug)]
struct RemoteQueue {
    depth: usize,
    /// Requests that are not sent yet.
    waiting: VecDeque<Request>,
    /// Requests that are sent and not harvested.
    sent: usize,
    canceled: Vec<Done>,
    /// Open until the queue is dropped, which ends the connection.
    connection: Option<Sender<Request>>,
    replies: Arc<Replies>,
    thread: Option<JoinHandle<()>>,
}

/// The answers of the connection.
#[derive(Debug, Default)]
struct Replies {
    state: Mutex<ReplyState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ReplyState {
    done: Vec<Done>,
    woken: bool,
}

impl RemoteQueue {
    fn new(device: Arc<RemoteDevice>, depth: u32) -> io::Result<Self> {
        let replies = Arc::<Replies>::default();
        let (connection, requests) = channel();
        let answers = Arc::clone(&replies);
        let serve = move || serve(&device, &requests, &answers);
        let thread = std::thread::Builder::new().name("remote-device".into()).spawn(serve)?;
        Ok(Self {
            depth: usize::try_from(depth).map_or(usize::MAX, |depth| depth.max(1)),
            waiting: VecDeque::new(),
            sent: 0,
            canceled: Vec::new(),
            connection: Some(connection),
            replies,
            thread: Some(thread),
        })
    }

    /// Sends requests until `depth` of them are on the device.
    fn send(&mut self) {
        while self.sent < self.depth
            && let Some(request) = self.waiting.pop_front()
        {
            self.sent += 1;
            let connection = self.connection.as_ref().expect("the queue is open");
            connection.send(request).expect("the connection lasts as long as its queue");
        }
    }
}

/// Performs the requests that arrive until the queue is dropped.
fn serve(device: &RemoteDevice, requests: &Receiver<Request>, replies: &Replies) {
    while let Ok(first) = requests.recv() {
        let mut arrived: Vec<Request> = std::iter::once(first).chain(requests.try_iter()).collect();
        while let Some(request) = arrived.pop() {
            device.queued.fetch_add(1, Ordering::Relaxed);
            let done = request.perform(device);
            replies.state().done.push(done);
            replies.changed.notify_one();
        }
    }
}

impl Replies {
    fn state(&self) -> MutexGuard<'_, ReplyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until there is a reply or a wake.
    fn wait(&self) -> MutexGuard<'_, ReplyState> {
        let nothing = |state: &mut ReplyState| state.done.is_empty() && !state.woken;
        self.changed.wait_while(self.state(), nothing).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue for RemoteQueue {
    fn submit(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        self.send();
        let ready = !self.canceled.is_empty();
        done.append(&mut self.canceled);
        let mut state = if wait && !ready { self.replies.wait() } else { self.replies.state() };
        if wait {
            state.woken = false;
        }
        let arrived = state.done.len();
        done.append(&mut state.done);
        drop(state);
        self.sent -= arrived;
        self.send();
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.sent + self.canceled.len()
    }

    fn cancel(&mut self, token: u64) -> bool {
        let index = self.waiting.iter().position(|request| request.token == token);
        let request = index.and_then(|index| self.waiting.remove(index));
        let found = request.is_some();
        self.canceled.extend(request.map(Request::canceled));
        found
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(self.replies.clone())
    }
}

impl Wake for Replies {
    fn wake(self: Arc<Self>) {
        self.state().woken = true;
        self.changed.notify_one();
    }
}

impl Drop for RemoteQueue {
    fn drop(&mut self) {
        let connection = self.connection.take().expect("a queue is dropped once");
        // The connection performs what it received before the channel was closed.
        self.waiting.drain(..).for_each(|request| drop(connection.send(request)));
        drop(connection);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
