//! Serves tasks of tokio by one task that owns an `IoQueue`: each task sends a request and awaits
//! its completion. No thread blocks.
//!
//! The queue's descriptor, a ring of io_uring, is readable when an operation may complete. The
//! example `tokio` shows what to do on a device without a ring.
//!
//! `cargo run --example tokio_queue -- disk.img` creates the image.

use std::collections::HashMap;
use std::error::Error;

use parext4::{
    AlignedBuf, Completion, DeviceOptions, DirectFile, FileDevice, IoFlags, IoQueue, IoRequest, MkfsOptions,
    OpenOptions, Volume, mkfs,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

const TASKS: u64 = 64;
const BLOCK: usize = 4096;

type BoxError = Box<dyn Error + Send + Sync>;

/// A request, and where its completion goes.
type Job = (IoRequest, oneshot::Sender<Completion>);

/// Carries out a request by the task that owns the queue.
async fn run(jobs: &mpsc::Sender<Job>, request: IoRequest) -> Result<Completion, BoxError> {
    let (sender, completed) = oneshot::channel();
    jobs.send((request, sender)).await?;
    Ok(completed.await?)
}

/// The task that owns the queue: submits what the others send, and harvests. Ends when nothing is
/// in flight and all senders are dropped.
async fn serve(mut queue: IoQueue, file: DirectFile, mut jobs: mpsc::Receiver<Job>) -> Result<(), BoxError> {
    let descriptor = queue.descriptor().ok_or("the kernel has no io_uring")?;
    #[expect(deprecated, reason = "its successor is unsafe; only `readable` has this duplicate")]
    let readable = AsyncFd::new(descriptor.try_clone_to_owned()?)?;
    let mut waiting = HashMap::<u64, oneshot::Sender<Completion>>::new();
    let mut next_token = 0;
    let mut done = Vec::new();
    let mut is_open = true;
    while is_open || queue.in_flight() > 0 {
        if queue.arm(&mut done)? {
            tokio::select! {
                event = readable.readable() => event?.clear_ready(),
                job = jobs.recv(), if is_open => match job {
                    Some((request, sender)) => {
                        queue.submit(&file, request, next_token, IoFlags::new());
                        waiting.insert(next_token, sender);
                        next_token += 1;
                    }
                    None => is_open = false,
                }
            }
        }
        for completion in done.drain(..) {
            if let Some(sender) = waiting.remove(&completion.token) {
                // A task that was dropped does not wait any more.
                let _ = sender.send(completion);
            }
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let image = std::env::args_os().nth(1).ok_or("usage: tokio_queue IMAGE")?;
    mkfs(&FileDevice::open(&image, &DeviceOptions::new().create(64 << 20))?, &MkfsOptions::new())?;
    let volume = Volume::open(&image)?;
    let file = volume.open_direct("/data", &OpenOptions::read_write().create(true))?;

    let (jobs, received) = mpsc::channel(32);
    let server = tokio::spawn(serve(volume.io_queue(32), file, received));

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let jobs = jobs.clone();
        tasks.spawn(async move {
            let buf = AlignedBuf::from_slice(&[u8::try_from(task)?; BLOCK]);
            let completion =
                run(&jobs, IoRequest::Write { buf, len: BLOCK, offset: task * BLOCK as u64 }).await?;
            Ok::<u64, BoxError>(completion.result?)
        });
    }
    let mut written = 0;
    while let Some(bytes) = tasks.join_next().await {
        written += bytes??;
    }
    run(&jobs, IoRequest::SyncData).await?.result?;
    drop(jobs);
    server.await??;

    assert_eq!(written, TASKS * BLOCK as u64);
    assert!(volume.read("/data")?.chunks(BLOCK).zip(0..).all(|(block, task)| block == [task; BLOCK]));
    println!("{TASKS} tasks wrote {written} bytes through one queue");
    Ok(volume.close()?)
}
