//! Linux's native asynchronous I/O, by raw system calls, because the C library has no functions for
//! it.

#![allow(unsafe_code, reason = "the kernel is given addresses")]

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;

use super::{Done, Transfer};

/// linux/aio_abi.h.
const READ: u16 = 0;
const WRITE: u16 = 1;

/// `struct iocb` of linux/aio_abi.h, little-endian.
#[repr(C)]
#[derive(Debug, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Event {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

/// A context of transfers. Dropping it waits for the transfers in flight.
#[derive(Debug)]
pub struct Aio {
    context: libc::c_ulong,
    under_way: HashMap<u64, Transfer>,
}

impl Aio {
    pub fn new(depth: u32) -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the number of the context to a variable of its type.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        if result == 0 {
            Ok(Self { context, under_way: HashMap::new() })
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    pub fn submit(&mut self, id: u64, mut transfer: Transfer) -> Result<(), Done> {
        let mut iocb = Iocb {
            data: id,
            opcode: if transfer.writes { WRITE } else { READ },
            fd: u32::try_from(transfer.file.as_raw_fd()).expect("a file is open"),
            buf: transfer.buf.as_mut_ptr() as u64,
            bytes: transfer.len as u64,
            offset: transfer.offset.cast_signed(),
            ..Iocb::default()
        };
        let mut list = [&raw mut iocb];
        // SAFETY: the kernel reads the list and the control block, and does not use them once the
        // call has returned. The buffer has `len` bytes, and is kept, with the file, until the
        // transfer is over.
        let result = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1_i64, list.as_mut_ptr()) };
        match result {
            1 => {
                self.under_way.insert(id, transfer);
                Ok(())
            }
            _ => {
                let error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
                Err(Done { id, transfer, result: -i64::from(error) })
            }
        }
    }

    pub fn reap(&mut self, least: usize) -> io::Result<Vec<Done>> {
        let mut events = vec![Event::default(); self.under_way.len()];
        let most = i64::try_from(events.len()).expect("few are under way");
        let least = i64::try_from(least).expect("few are under way").min(most);
        let count = loop {
            // SAFETY: the kernel writes at most as many events as the list has room for.
            let result = unsafe {
                let none = std::ptr::null::<libc::timespec>();
                libc::syscall(libc::SYS_io_getevents, self.context, least, most, events.as_mut_ptr(), none)
            };
            match usize::try_from(result) {
                Ok(count) => break count,
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(io::Error::last_os_error()),
            }
        };
        let done = |event: Event| {
            let transfer = self.under_way.remove(&event.data).expect("the kernel returns what it was given");
            Done { id: event.data, transfer, result: event.result }
        };
        Ok(events.into_iter().take(count).map(done).collect())
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: this value owns the context. The call returns when all transfers are over, before
        // their buffers are dropped.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
