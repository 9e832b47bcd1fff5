//! The server's threads: threads that read requests, threads with a device queue, and workers.

mod heap;
mod memory_budget;
mod poll_policy;
mod queue_threads;
mod request_threads;
mod shared_buffers;
mod worker_pool;

pub(crate) use heap::IdleHeap;
pub use memory_budget::MemoryBudget;
pub(crate) use memory_budget::Reservation;
pub(crate) use queue_threads::QueueThreads;
pub(crate) use request_threads::{Executing, Latency, RequestThreads};
pub(crate) use shared_buffers::{SharedBuf, SharedBuffers};
pub(crate) use worker_pool::WorkerPool;
