//! The ring, and the memory that the kernel works on.
//!
//! The only unsafe code: the kernel is given addresses. They point into transfers, which the ring owns from
//! `start` until the kernel's completion is reaped, and lets nobody touch; or into their slot's list of parts.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use super::transfer::{Step, Transfer, parts};
use super::wake_fd::WakeFd;

/// The device's file, as registered.
const FILE: types::Fixed = types::Fixed(0);
/// The user data of the poll for wakes; others are indices of slots.
const WAKE: u64 = u64::MAX;
/// What one system call moves at most; the rest is another step.
const MAX_BYTES: usize = 1 << 30;
/// `IOV_MAX` of Linux.
const MAX_PARTS: usize = 1024;

pub(super) struct Ring {
    uring: IoUring,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    wake_fd: Arc<WakeFd>,
}

#[derive(Default)]
struct Slot {
    /// There from `start` until the kernel is done with it.
    transfer: Option<Transfer>,
    /// For `Writev`; kept to be used again.
    parts: Vec<IoVec>,
}

/// The kernel's `struct iovec`, which is only numbers to us.
#[repr(C)]
struct IoVec {
    base: usize,
    len: usize,
}

/// What the kernel reports.
pub(super) enum Completion {
    /// The wake descriptor was readable and is drained; `listen` again.
    Wake,
    /// A transfer's step, and what it returned: a count or a negative error number.
    Transfer(Transfer, i32),
}

impl Ring {
    /// A ring on `file` with room for `depth` transfers.
    pub(super) fn new(file: BorrowedFd<'_>, wake_fd: Arc<WakeFd>, depth: u32) -> io::Result<Self> {
        // Each slot, and the poll for wakes, has at most one entry in each queue: none can overflow.
        let uring = set_up(depth + 1)?;
        // Saves each request the counting of the file's users, which threads would contend for.
        uring.submitter().register_files(&[file.as_raw_fd()])?;
        let slots = (0..depth).map(|_| Slot::default()).collect();
        let mut ring = Self { uring, slots, free: (0..depth).rev().collect(), wake_fd };
        ring.listen();
        Ok(ring)
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts the transfer's next step in the queue for the kernel; call only if there is room.
    pub(super) fn start(&mut self, transfer: Transfer) {
        let index = self.free.pop().expect("a ring with room");
        let slot = &mut self.slots[index as usize];
        let entry = slot.prepare(transfer).user_data(index.into());
        // SAFETY: the entry's addresses are in the slot's transfer, in memory on the heap that the transfer
        // owns or shares, and in the slot's parts. Neither is touched before `reap` takes the transfer out, when
        // the kernel is done with it. The ring waits for that when it is dropped, or leaks the slots.
        unsafe { self.push(&entry) }
    }

    /// Asks for a completion when somebody wakes the queue.
    pub(super) fn listen(&mut self) {
        let fd = types::Fd(self.wake_fd.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, POLLIN).build().user_data(WAKE);
        // SAFETY: the entry has no addresses, and the ring owns the descriptor's owner.
        unsafe { self.push(&entry) }
    }

    /// # Safety
    /// What the entry's addresses point to stays as it is until its completion is reaped.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: as the caller promises.
        let pushed = unsafe { self.uring.submission().push(entry) };
        pushed.expect("a queue with an entry for each slot");
    }

    /// Hands the queued steps to the kernel and, with `wait`, waits for a completion.
    ///
    /// May return early.
    pub(super) fn enter(&mut self, wait: bool) -> io::Result<()> {
        let wait = wait && self.uring.completion().is_empty();
        let queue = self.uring.submission();
        if !wait && queue.is_empty() && !queue.taskrun() {
            return Ok(());
        }
        drop(queue);
        match self.uring.submit_and_wait(wait.into()) {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The next thing that the kernel has done.
    pub(super) fn reap(&mut self) -> Option<Completion> {
        let entry = self.uring.completion().next()?;
        if entry.user_data() == WAKE {
            self.wake_fd.drain();
            return Some(Completion::Wake);
        }
        let index = entry.user_data() as u32; // As `start` made it.
        let transfer = self.slots[index as usize].transfer.take().expect("one completion for each entry");
        self.free.push(index);
        Some(Completion::Transfer(transfer, entry.result()))
    }
}

impl Slot {
    /// Takes the transfer in and describes its next step; the entry's addresses are in this slot.
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
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if self.enter(true).is_err() {
                // Nobody knows what the kernel still writes to.
                std::mem::forget(std::mem::take(&mut self.slots));
                break;
            }
            while let Some(completion) = self.reap() {
                drop(completion);
            }
        }
        // The kernel takes a ring apart some time later; the file is to be closed now. It was registered.
        let _ = self.uring.submitter().unregister_files();
    }
}

/// `POLLIN` of poll(2).
const POLLIN: u32 = 1;

fn count(len: usize) -> u32 {
    len.min(MAX_BYTES) as u32
}

/// Interrupted, or short of memory for the moment, or of room until completions are reaped.
fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

fn set_up(entries: u32) -> io::Result<IoUring> {
    // Completions interrupt nobody (Linux 5.19). `SINGLE_ISSUER` is not for queues that change threads.
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
