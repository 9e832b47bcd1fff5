//! [`Probe`]: polls the device of a volume.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use parext4::mmp::{self, MmpUse};
use parext4::{Device, DeviceOptions};
use parext4_storage::open_device;

use crate::error::StandbyError;
use crate::poll_result::{Mmp, PollResult};

/// A device opened read-only and without a lock, which is opened again after a failure.
#[derive(Debug)]
pub(crate) struct Probe {
    name: OsString,
    options: DeviceOptions,
    device: Option<Arc<dyn Device>>,
}

impl Probe {
    /// Returns a probe of the device that `name` stands for. Does not open the device.
    pub(crate) fn new(name: OsString, options: &DeviceOptions) -> Self {
        let options = options.clone().read_only(true).lock(false);
        Self { name, options, device: None }
    }

    /// Reads the MMP block and asks for the owner of the lock.
    ///
    /// # Errors
    /// The device cannot be opened or read, or holds no volume.
    pub(crate) fn poll(&mut self) -> Result<PollResult, StandbyError> {
        let poll_result = self.try_poll();
        if poll_result.is_err() {
            self.device = None;
        }
        poll_result
    }

    /// Asks whether a takeover may fence the owner.
    ///
    /// # Errors
    /// A takeover may not fence the owner, or the servers do not answer.
    pub(crate) fn check_fence(&self) -> io::Result<()> {
        self.device.as_ref().map_or(Ok(()), |device| device.check_fence())
    }

    fn try_poll(&mut self) -> Result<PollResult, StandbyError> {
        let device = match &self.device {
            Some(device) => device,
            None => self.device.insert(open_device(&self.name, &self.options)?),
        };
        let mmp = match mmp::read(&**device)? {
            None => Mmp::Absent,
            Some(state) => match state.usage {
                MmpUse::Clean => Mmp::Closed,
                MmpUse::Fsck => Mmp::Checked,
                _ => Mmp::Open {
                    wait: state.stale_after(),
                    silent_after: state.silent_after(),
                    sequence: state.sequence,
                    node: state.node.escape_debug().to_string(),
                },
            },
        };
        Ok(PollResult { lock: device.lock_owner()?, mmp })
    }
}
