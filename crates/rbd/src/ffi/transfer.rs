//! Requests for the data of an image: blocking requests, and requests whose completion librbd
//! reports on a thread of its own.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::ptr::null_mut;
use std::sync::Arc;

use parext4_device::{Batch, Op};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::image::Image;
use super::library::{Handle, Library};

/// The receiver of completed batches.
pub(crate) trait Receive: Send + Sync + 'static {
    /// Receives a batch with librbd's return value. A thread of librbd calls it, which it must not
    /// block, or [`Image::start`].
    fn receive(&self, batch: Batch, value: isize);
}

/// A batch in flight. librbd holds its address from the start of the request to the callback.
struct InFlight<R> {
    batch: Batch,
    receiver: Arc<R>,
    library: &'static Library,
}

impl Image {
    /// Fills `bufs` with the bytes at `offset`, and returns librbd's value: the number of bytes, or
    /// a negative error.
    pub(crate) fn read(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> isize {
        let (library, image) = self.raw();
        // SAFETY: a slice of `IoSliceMut` has the layout of an array of `iovec`. The buffers are
        // borrowed until the call returns.
        self.wait(|completion| unsafe {
            (library.rbd_aio_readv)(image, bufs.as_mut_ptr().cast(), count(bufs), offset, completion)
        })
    }

    /// Writes `bufs` at `offset`, and returns librbd's value: a negative number is an error.
    pub(crate) fn write(&self, offset: u64, bufs: &[IoSlice<'_>]) -> isize {
        let (library, image) = self.raw();
        // SAFETY: a slice of `IoSlice` has the layout of an array of `iovec`. The buffers are
        // borrowed until the call returns.
        self.wait(|completion| unsafe {
            (library.rbd_aio_writev)(image, bufs.as_ptr().cast(), count(bufs), offset, completion)
        })
    }

    /// Releases the storage of a range, and returns librbd's value: a negative number is an error.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> isize {
        let (library, image) = self.raw();
        // SAFETY: both handles are valid.
        self.wait(|completion| unsafe { (library.rbd_aio_discard)(image, offset, len, completion) })
    }

    /// Flushes completed writes, and returns librbd's value: a negative number is an error.
    pub(crate) fn flush(&self) -> isize {
        let (library, image) = self.raw();
        // SAFETY: both handles are valid.
        self.wait(|completion| unsafe { (library.rbd_aio_flush)(image, completion) })
    }

    /// Starts a request with a new completion, waits for it, and returns its value.
    fn wait(&self, start: impl FnOnce(Handle) -> c_int) -> isize {
        let (library, _) = self.raw();
        let mut completion = null_mut();
        // SAFETY: `completion` receives the handle. Without a callback librbd does not use the
        // address.
        let code = unsafe { (library.rbd_aio_create_completion)(null_mut(), None, &raw mut completion) };
        if code < 0 {
            return code as isize;
        }
        let started = start(completion);
        // SAFETY: the completion is valid and was started, so waiting ends. It is released once.
        unsafe {
            let value = if started < 0 {
                started as isize
            } else {
                (library.rbd_aio_wait_for_complete)(completion);
                (library.rbd_aio_get_return_value)(completion)
            };
            (library.rbd_aio_release)(completion);
            value
        }
    }

    /// Starts a batch of checked requests at `base` bytes from their offsets. `receiver` gets the
    /// batch and librbd's value once the request has ended, also if it could not be started.
    ///
    /// The caller keeps the image open until then.
    pub(crate) fn start<R: Receive>(&self, batch: Batch, base: u64, receiver: &Arc<R>) {
        let (library, image) = self.raw();
        let in_flight = InFlight { batch, receiver: Arc::clone(receiver), library };
        let in_flight = Box::into_raw(Box::new(in_flight));
        let mut completion = null_mut();
        // SAFETY: `completion` receives the handle. The callback gets the address of `in_flight`
        // once.
        let created = unsafe {
            (library.rbd_aio_create_completion)(in_flight.cast(), Some(on_complete::<R>), &raw mut completion)
        };
        let started = if created < 0 {
            created
        } else {
            // SAFETY: the callback frees `in_flight`, and cannot run before the request has
            // started.
            unsafe { submit(library, image, &raw mut (*in_flight).batch, base, completion) }
        };
        if started < 0 {
            // SAFETY: no callback follows a request that was not started, so this is the only owner
            // of both.
            let in_flight = unsafe {
                if created >= 0 {
                    (library.rbd_aio_release)(completion);
                }
                Box::from_raw(in_flight)
            };
            in_flight.receiver.receive(in_flight.batch, started as isize);
        }
    }
}

/// Starts the request of a batch and returns librbd's value. The callback may have freed the batch
/// when librbd's function returns.
///
/// # Safety
/// The handles are valid. `batch` stays at its address until the callback of the completion, and
/// nothing else uses it.
unsafe fn submit(
    library: &Library,
    image: Handle,
    batch: *mut Batch,
    base: u64,
    completion: Handle,
) -> c_int {
    // SAFETY: the caller guarantees the address. No reference is used after the request has
    // started.
    let op = unsafe { &mut (*batch).requests_mut()[0].op };
    match op {
        Op::Read { offset, buf, len } => {
            let (start, target, len) = (base + *offset, buf.as_mut_ptr().cast(), *len);
            // SAFETY: the buffer has at least `len` bytes. It belongs to the batch, and its bytes
            // do not move with it.
            unsafe { (library.rbd_aio_read)(image, start, len, target, completion) }
        }
        Op::Write { offset, .. } => {
            let start = base + *offset;
            // SAFETY: as above.
            let parts: SmallVec<[IoSlice<'_>; 8]> = unsafe { &*batch }.parts().map(IoSlice::new).collect();
            let (first, parts_len) = (parts[0], count(&parts));
            if parts_len == 1 {
                let (bytes, len) = (first.as_ptr().cast(), first.len());
                // SAFETY: the bytes belong to a shared buffer that the batch keeps, and do not
                // change.
                return unsafe { (library.rbd_aio_write)(image, start, len, bytes, completion) };
            }
            // SAFETY: as above; librbd does not use the array itself after the call.
            unsafe { (library.rbd_aio_writev)(image, parts.as_ptr().cast(), parts_len, start, completion) }
        }
        // SAFETY: the handles are valid.
        Op::Flush => unsafe { (library.rbd_aio_flush)(image, completion) },
        _ => -Errno::OPNOTSUPP.raw_os_error(),
    }
}

/// Receives the batch of a request that has ended. librbd calls this function.
///
/// # Safety
/// `in_flight` is the address that `start` gave to the completion, and this is the only call with
/// it.
unsafe extern "C" fn on_complete<R: Receive>(completion: Handle, in_flight: *mut c_void) {
    // SAFETY: the address comes from `Box::into_raw`, and librbd has ended its use of the buffers.
    let in_flight = unsafe { Box::from_raw(in_flight.cast::<InFlight<R>>()) };
    // SAFETY: the completion is valid until it is released, here.
    let value = unsafe {
        let value = (in_flight.library.rbd_aio_get_return_value)(completion);
        (in_flight.library.rbd_aio_release)(completion);
        value
    };
    in_flight.receiver.receive(in_flight.batch, value);
}

/// Returns the number of buffers for librbd, which refuses a negative one.
fn count<T>(bufs: &[T]) -> c_int {
    c_int::try_from(bufs.len()).unwrap_or(-1)
}
