//! Performs requests with the blocking calls of a device.

use std::io::{self, IoSlice, IoSliceMut};

use crate::device::Device;
use crate::request::{Done, Op, Request, read_target, slices};

impl Op {
    /// Performs the operation with the blocking calls of `device`, and returns their result.
    ///
    /// # Errors
    /// The error of the call.
    pub fn perform(&mut self, device: &dyn Device) -> io::Result<()> {
        match self {
            Self::Read { offset, buf, len } => {
                device.read_at(*offset, &mut [IoSliceMut::new(read_target(buf, *len)?)])
            }
            Self::Write { offset, segments } => match segments.as_slice() {
                [segment] => device.write_at(*offset, &[IoSlice::new(segment.bytes()?)]),
                segments => device.write_at(*offset, &slices(segments)?),
            },
            Self::Flush => device.flush(),
        }
    }
}

impl Request {
    /// Performs the request with the blocking calls of `device`, and returns its completion.
    pub fn perform(mut self, device: &dyn Device) -> Done {
        let result = self.op.perform(device);
        self.done(result)
    }
}
