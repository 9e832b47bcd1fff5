//! The ring, and the memory that the kernel reads and writes.
//!
//! This file passes addresses to the kernel, so it has unsafe code. Invariant: from `start` until
//! the completion is reaped, the ring owns the transfer and its slot's list of parts, to which the
//! addresses point, and no code accesses them.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use super::transfer::{Step, Transfer, parts};
use super::wake_fd::WakeFd;

/// Index of the device's file among the registered files.
const FILE: types::Fixed = types::Fixed(0);
/// User data of the poll for wakes. Other values are indices of slots.
const WAKE: u64 = u64::MAX;
/// Limit of one system call in bytes. The rest of a transfer is another step.
const MAX_BYTES: usize = 1 << 30;
/// Limit of a vectored system call in buffers, `IOV_MAX` of Linux.
const MAX_PARTS: usize = 1024;
/// Time between two checks for completions of a ring that has failed.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(super) struct Ring {
    uring: IoUring,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Number of entries that were appended to the submission queue so far.
    pushed: usize,
    wake_fd: Arc<WakeFd>,
}

/// Place of one transfer in the ring.
#[derive(Default)]
struct Slot {
    /// The transfer, from `start` until its completion is reaped.
    transfer: Option<Transfer>,
    /// Number of entries that were appended to the submission queue before the one of this
    /// transfer.
    entry: usize,
    /// Buffers of a `Writev`. The next transfer reuses the allocation.
    parts: Vec<IoVec>,
}

/// The kernel's `struct iovec`, with the address as a number.
#[repr(C)]
struct IoVec {
    base: usize,
    len: usize,
}

/// A completion that the kernel reports.
pub(super) enum Completion {
    /// The wake descriptor was readable and is drained now. The owner must call `listen` again.
    Wake,
    /// A transfer whose step is complete, and the step's result: a number of bytes, or a negated
    /// error number.
    Transfer(Transfer, i32),
}

impl Ring {
    /// Opens a ring on `file` with room for `depth` transfers.
    ///
    /// # Errors
    /// The kernel has no io_uring, forbids it, or lacks one of the operations.
    pub(super) fn new(file: BorrowedFd<'_>, wake_fd: Arc<WakeFd>, depth: u32) -> io::Result<Self> {
        // Each slot and the poll for wakes have at most one entry in each queue, so no queue
        // overflows.
        let uring = set_up(depth + 1)?;
        // For requests on a registered file the kernel does not count references to the file, which
        // threads would contend for.
        uring.submitter().register_files(&[file.as_raw_fd()])?;
        let slots = (0..depth).map(|_| Slot::default()).collect();
        let mut ring = Self { uring, slots, free: (0..depth).rev().collect(), pushed: 0, wake_fd };
        ring.listen();
        Ok(ring)
    }

    /// Returns whether a slot is free.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the number of transfers in the ring.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether the kernel has not got all queued steps and polls.
    pub(super) fn has_queued(&mut self) -> bool {
        !self.uring.submission().is_empty()
    }

    /// Queues the transfer's next step for the kernel.
    ///
    /// # Panics
    /// If the ring has no room.
    pub(super) fn start(&mut self, transfer: Transfer) {
        let index = self.free.pop().expect("a ring with room");
        let slot = &mut self.slots[index as usize];
        slot.entry = self.pushed;
        let entry = slot.prepare(transfer).user_data(index.into());
        // SAFETY: the entry's addresses point to heap memory that the slot's transfer owns or
        // shares, and to the slot's parts. No code accesses either before `reap` removes the
        // transfer, after the kernel's completion. Dropping the ring waits for the completion of
        // each entry that the kernel has.
        unsafe { self.push(&entry) }
    }

    /// Queues a poll that completes when a thread wakes the queue.
    pub(super) fn listen(&mut self) {
        let fd = types::Fd(self.wake_fd.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, POLLIN).build().user_data(WAKE);
        // SAFETY: the entry has no addresses, and the ring keeps the descriptor open.
        unsafe { self.push(&entry) }
    }

    /// Appends an entry to the submission queue.
    ///
    /// # Safety
    /// The memory at the entry's addresses is valid, and no other code accesses it, until the
    /// completion is reaped.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller guarantees the entry's memory.
        let pushed = unsafe { self.uring.submission().push(entry) };
        pushed.expect("a queue with an entry for each slot");
        self.pushed += 1;
    }

    /// Returns whether the kernel has a transfer and has not completed it.
    fn is_in_kernel(&mut self) -> bool {
        // The kernel removes entries from the submission queue in their order.
        let submitted = self.pushed - self.uring.submission().len();
        self.slots.iter().any(|slot| slot.transfer.is_some() && slot.entry < submitted)
    }

    /// Submits the queued steps and, with `wait`, blocks until there is a completion. May return
    /// early.
    pub(super) fn enter(&mut self, wait: bool) -> io::Result<()> {
        let wait = wait && self.uring.completion().is_empty();
        let queue = self.uring.submission();
        if !wait && queue.is_empty() && !queue.taskrun() {
            return Ok(());
        }
        drop(queue);
        match self.uring.submit_and_wait(wait.into()) {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the next completion, if there is one.
    pub(super) fn reap(&mut self) -> Option<Completion> {
        let entry = self.uring.completion().next()?;
        if entry.user_data() == WAKE {
            self.wake_fd.drain();
            return Some(Completion::Wake);
        }
        let index = entry.user_data() as u32; // `start` made it from a u32.
        let transfer = self.slots[index as usize].transfer.take().expect("one completion for each entry");
        self.free.push(index);
        Some(Completion::Transfer(transfer, entry.result()))
    }
}

/// The ring's descriptor is readable while there are completions to reap.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}

impl Slot {
    /// Stores the transfer and returns the entry of its next step. The entry's addresses point to
    /// memory of this slot.
    fn prepare(&mut self, transfer: Transfer) -> squeue::Entry {
        let (offset, step) = self.transfer.insert(transfer).step();
        match step {
            Step::Read(buf) => {
                opcode::Read::new(FILE, buf.as_mut_ptr(), count(buf.len())).offset(offset).build()
            }
            Step::Write(buf) => {
                opcode::Write::new(FILE, buf.as_ptr(), count(buf.len())).offset(offset).build()
            }
            Step::Gather(writes, skip) => {
                let parts = parts(writes, skip).take(MAX_PARTS);
                let parts =
                    parts.map(|part| IoVec { base: part.as_ptr().expose_provenance(), len: part.len() });
                self.parts.clear();
                self.parts.extend(parts);
                let len = self.parts.len() as u32; // At most MAX_PARTS.
                opcode::Writev::new(FILE, self.parts.as_ptr().cast(), len).offset(offset).build()
            }
            Step::Flush => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
        }
    }
}

impl Drop for Ring {
    /// Blocks until the kernel has completed all transfers, without a limit of time: until then it
    /// may access their memory, and their writes may reach the device.
    ///
    /// If the ring cannot be entered, it cannot block, so this function polls for completions,
    /// which the kernel still stores in shared memory. It does not wait for transfers that the
    /// kernel has not accepted, because the kernel never gets them.
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            let has_failed = self.enter(true).is_err();
            while let Some(completion) = self.reap() {
                drop(completion);
            }
            if has_failed {
                if !self.is_in_kernel() {
                    break;
                }
                sleep(POLL_INTERVAL);
            }
        }
        // The kernel destroys a ring some time after it was closed. Unregistering releases the file
        // now.
        let _ = self.uring.submitter().unregister_files();
    }
}

/// `POLLIN` of poll(2).
const POLLIN: u32 = 1;

/// Limits the length of a system call.
fn count(len: usize) -> u32 {
    len.min(MAX_BYTES) as u32
}

/// Returns whether a later call can succeed: the failed call was interrupted, the kernel had no
/// memory for the moment, or completions must be reaped first.
fn is_transient(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

/// Opens a ring that supports the operations of this module.
fn set_up(entries: u32) -> io::Result<IoUring> {
    // Since Linux 5.19 completions need not interrupt the owner. `SINGLE_ISSUER` would forbid a
    // queue to change threads.
    let modern =
        IoUring::builder().setup_submit_all().setup_coop_taskrun().setup_taskrun_flag().build(entries);
    let uring = match modern {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => IoUring::new(entries)?,
        uring => uring?,
    };
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::PollAdd::CODE,
    ];
    if needed.into_iter().all(|code| probe.is_supported(code)) {
        return Ok(uring);
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring lacks an operation"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::sync::mpsc::channel;
    use std::thread::spawn;
    use std::time::Instant;

    use smallvec::smallvec;

    use super::*;
    use crate::batch::Batch;
    use crate::batch::tests::write;

    /// Makes every later call on the ring fail.
    fn fail(ring: &Ring) {
        // SAFETY: the ring keeps its descriptor open, and this owner never closes it.
        let mut fd = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(ring.uring.as_raw_fd()) });
        rustix::io::dup2(File::open("/dev/null").unwrap(), &mut fd).unwrap();
    }

    /// Starts a write of 4096 bytes.
    fn start_write(ring: &mut Ring) {
        let (request, bytes) = write(1, 0, 4096, 7);
        ring.start(Transfer::new(Batch { requests: smallvec![request], bytes }, 0, None));
    }

    #[test]
    fn dropping_a_failed_ring_waits_for_what_the_kernel_has() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        // A pipe holds 64 KiB, so the write of the ring waits.
        writer.write_all(&[1; 64 << 10]).unwrap();
        let wake_fd = Arc::new(WakeFd::new().unwrap());
        let Ok(mut ring) = Ring::new(writer.as_fd(), wake_fd, 4) else {
            return device_testkit::skip::skipped("the kernel has no io_uring");
        };
        let (sender, dropped) = channel();
        let dropping = spawn(move || {
            start_write(&mut ring);
            ring.enter(false).unwrap();
            fail(&ring);
            // The kernel never gets this one.
            start_write(&mut ring);
            assert!(ring.enter(true).is_err());
            drop(ring);
            sender.send(Instant::now()).unwrap();
        });
        assert!(dropped.recv_timeout(Duration::from_millis(100)).is_err(), "the kernel has a write");
        let before = Instant::now();
        reader.read_exact(&mut [0; 64 << 10]).unwrap();
        assert!(dropped.recv_timeout(Duration::from_secs(30)).unwrap() >= before);
        dropping.join().unwrap();
        drop(writer);
        let mut written = Vec::new();
        reader.read_to_end(&mut written).unwrap();
        assert_eq!(written, [7; 4096]);
    }
}
