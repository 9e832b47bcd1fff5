//! io_uring.

#![allow(unsafe_code, reason = "the kernel is given addresses")]

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::{Done, Transfer};

/// A ring. Dropping it waits for the transfers in flight.
pub struct Ring {
    ring: IoUring,
    under_way: HashMap<u64, Transfer>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("under_way", &self.under_way.len()).finish_non_exhaustive()
    }
}

impl Ring {
    pub fn new(depth: u32) -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(depth)?, under_way: HashMap::new() })
    }

    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    pub fn submit(&mut self, id: u64, mut transfer: Transfer) -> Result<(), Done> {
        let fd = types::Fd(transfer.file.as_raw_fd());
        let len = u32::try_from(transfer.len).expect("transfers are short");
        let entry = if transfer.writes {
            opcode::Write::new(fd, transfer.buf.as_ptr(), len).offset(transfer.offset).build()
        } else {
            opcode::Read::new(fd, transfer.buf.as_mut_ptr(), len).offset(transfer.offset).build()
        };
        // SAFETY: the buffer has `len` bytes, and is kept, with the file, until the transfer is
        // over.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(id)) };
        pushed.expect("the ring is as deep as what is under way");
        self.under_way.insert(id, transfer);
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) => panic!("io_uring_enter: {error}"),
        }
    }

    pub fn reap(&mut self, least: usize) -> io::Result<Vec<Done>> {
        while let Err(error) = self.ring.submit_and_wait(least.min(self.under_way.len())) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let mut all = Vec::new();
        for entry in self.ring.completion() {
            let id = entry.user_data();
            let transfer = self.under_way.remove(&id).expect("the kernel returns what it was given");
            all.push(Done { id, transfer, result: entry.result().into() });
        }
        Ok(all)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while !self.under_way.is_empty() {
            if let Err(error) = self.reap(1) {
                // The kernel may still write to the buffers.
                eprintln!("io_uring: {error}");
                std::process::abort();
            }
        }
    }
}
