//! Serves tasks of tokio by one thread that owns an `IoQueue`: each task sends a request and awaits
//! its completion.
//!
//! The thread blocks in `harvest`, in the kernel if the queue is a ring of io_uring. A task that
//! sends a request wakes it through the queue's waker, which writes to an eventfd that the ring
//! polls.
//!
//! `cargo run --example tokio_queue -- disk.img` creates the image.

use std::collections::HashMap;
use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use parext4::{
    AlignedBuf, Completion, DeviceOptions, DirectFile, FileDevice, IoFlags, IoQueue, IoRequest, IoWaker,
    MkfsOptions, OpenOptions, Volume, mkfs,
};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

const TASKS: u64 = 64;
const BLOCK: usize = 4096;

/// A request, and where its completion goes.
type Job = (IoRequest, oneshot::Sender<Completion>);

/// The side of the tasks. Dropping the last clone ends the thread.
#[derive(Clone)]
struct AsyncQueue {
    jobs: Option<Sender<Job>>,
    waker: IoWaker,
}

impl AsyncQueue {
    /// Carries out a request on the file of the queue's thread.
    async fn run(&self, request: IoRequest) -> Result<Completion, Box<dyn Error + Send + Sync>> {
        let (sender, completed) = oneshot::channel();
        self.jobs.as_ref().ok_or("the queue has ended")?.send((request, sender))?;
        self.waker.wake();
        Ok(completed.await?)
    }
}

impl Drop for AsyncQueue {
    fn drop(&mut self) {
        // The thread finds the channel closed only when it is awake.
        self.jobs = None;
        self.waker.wake();
    }
}

/// The queue's thread: submits what the tasks send, and harvests.
fn serve(mut queue: IoQueue, file: &DirectFile, jobs: &Receiver<Job>) -> parext4::Result<()> {
    let mut waiting = HashMap::<u64, oneshot::Sender<Completion>>::new();
    let mut token = 0;
    let mut done = Vec::new();
    loop {
        loop {
            match jobs.try_recv() {
                Ok((request, sender)) => {
                    queue.submit(file, request, token, IoFlags::new());
                    waiting.insert(token, sender);
                    token += 1;
                }
                Err(TryRecvError::Disconnected) if queue.in_flight() == 0 => return Ok(()),
                Err(_) => break,
            }
        }
        if queue.in_flight() == 0 {
            // A harvest would return at once.
            let Ok((request, sender)) = jobs.recv() else { return Ok(()) };
            queue.submit(file, request, token, IoFlags::new());
            waiting.insert(token, sender);
            token += 1;
        }
        queue.harvest(&mut done)?;
        for completion in done.drain(..) {
            if let Some(sender) = waiting.remove(&completion.token) {
                // A task that was dropped does not wait any more.
                let _ = sender.send(completion);
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let image = std::env::args_os().nth(1).ok_or("usage: tokio_queue IMAGE")?;
    mkfs(&FileDevice::open(&image, &DeviceOptions::new().create(64 << 20))?, &MkfsOptions::new())?;
    let volume = Volume::open(&image)?;
    let file = volume.open_direct("/data", &OpenOptions::read_write().create(true))?;

    let (jobs, received) = channel();
    let io_queue = volume.io_queue(32);
    let queue = AsyncQueue { jobs: Some(jobs), waker: io_queue.waker() };
    let thread = thread::spawn(move || serve(io_queue, &file, &received));

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let queue = queue.clone();
        tasks.spawn(async move {
            let buf = AlignedBuf::from_slice(&[u8::try_from(task)?; BLOCK]);
            let completion =
                queue.run(IoRequest::Write { buf, len: BLOCK, offset: task * BLOCK as u64 }).await?;
            Ok::<u64, Box<dyn Error + Send + Sync>>(completion.result?)
        });
    }
    let mut written = 0;
    while let Some(bytes) = tasks.join_next().await {
        written += bytes??;
    }
    queue.run(IoRequest::SyncData).await?.result?;
    drop(queue);
    thread.join().map_err(|_| "the thread panicked")??;

    assert_eq!(written, TASKS * BLOCK as u64);
    assert!(volume.read("/data")?.chunks(BLOCK).zip(0..).all(|(block, task)| block == [task; BLOCK]));
    println!("{TASKS} tasks wrote {written} bytes through one queue");
    Ok(volume.close()?)
}
