//! [`Standby`]: waits for the owner of a volume to be gone, and opens the volume.

use std::ffi::{OsStr, OsString};
use std::thread::sleep;
use std::time::{Duration, Instant};

use parext4::mmp::OwnerEvidence;
use parext4::{DeviceOptions, Volume, VolumeOptions};
use parext4_storage::open_volume_device;

use crate::error::StandbyError;
use crate::log::Log;
use crate::poll_result::{Mmp, PollResult};
use crate::probe::Probe;
use crate::watch::{Gone, POLL, Verdict, Watch};

/// Longest time between two attempts after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The next step of a standby, for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The standby waits. The caller may end it at any time.
    Waits,
    /// The standby fences the owner and opens the volume.
    TakesOver,
}

/// A machine that waits to take a volume over.
#[derive(Debug)]
pub struct Standby {
    name: OsString,
    device: DeviceOptions,
    volume: VolumeOptions,
    probe: Probe,
    watch: Watch,
    log: Log,
    /// The moment from which the watch's times count.
    start: Instant,
    /// Pause after the next failure.
    pause: Duration,
}

impl Standby {
    /// Returns a standby for the volume on the device that `name` stands for, to be opened with
    /// these options.
    #[must_use]
    pub fn new(name: &OsStr, device: DeviceOptions, volume: VolumeOptions) -> Self {
        Self {
            name: name.to_owned(),
            probe: Probe::new(name.to_owned(), &device),
            device,
            volume,
            watch: Watch::new(POLL),
            log: Log::new(name),
            start: Instant::now(),
            pause: POLL,
        }
    }

    /// Blocks until the owner is gone, fences it, and opens the volume. Calls `on` before each
    /// step; the first call, after the first successful poll, tells that the standby can reach the
    /// volume. Retries after errors of the storage, and logs them.
    ///
    /// # Errors
    /// See [`StandbyError`].
    pub fn take_over(mut self, mut on: impl FnMut(Step)) -> Result<Volume, StandbyError> {
        loop {
            let (gone, poll_result) = self.wait(&mut on)?;
            on(Step::TakesOver);
            self.log.takes_over(gone, &poll_result);
            let begin = Instant::now();
            match self.open(gone, &poll_result) {
                Ok(volume) => {
                    self.log.has_taken_over(begin.elapsed());
                    return Ok(volume);
                }
                Err(error) if error.may_pass() => {
                    on(Step::Waits);
                    self.log.takeover_failed(&error);
                    self.pause();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Polls until the owner is gone.
    fn wait(&mut self, on: &mut impl FnMut(Step)) -> Result<(Gone, PollResult), StandbyError> {
        loop {
            let start = self.start.elapsed();
            match self.probe.poll() {
                Ok(poll_result) => {
                    let verdict = self.watch.saw(poll_result.clone(), start, self.start.elapsed());
                    if verdict == Verdict::Unknown {
                        return Err(StandbyError::Unwatchable);
                    }
                    if !self.log.has_seen() {
                        if let Err(error) = self.probe.check_fence() {
                            self.log.cannot_fence(&error);
                        }
                        on(Step::Waits);
                    }
                    if let Verdict::Gone(gone) = verdict {
                        return Ok((gone, poll_result));
                    }
                    self.pause = POLL;
                    self.log.saw(&poll_result, verdict);
                    sleep(self.watch.next_poll(self.start.elapsed()));
                }
                Err(error) if self.log.has_seen() || !error.is_mistake() => {
                    self.log.poll_failed(&error);
                    self.pause();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the volume, after its device has fenced the owner that the poll returned. The open
    /// does not wait again for an update of a silent owner.
    fn open(&self, gone: Gone, poll_result: &PollResult) -> Result<Volume, StandbyError> {
        let owner = poll_result.lock.as_ref().map(|owner| owner.name.clone());
        let options = self.device.clone().takeover(owner.is_some()).takeover_from(owner);
        let device = open_volume_device(&self.name, &options)?;
        let evidence = match (gone, &poll_result.mmp) {
            (Gone::Silent(_), Mmp::Open { sequence, .. }) => OwnerEvidence::Seen(*sequence),
            _ => OwnerEvidence::Unknown,
        };
        let mmp = self.volume.mmp.clone().evidence(evidence);
        Ok(Volume::open_device(device, &self.volume.clone().mmp(mmp))?)
    }

    /// Sleeps after a failure, longer after each one. Restarts the wait for a sign of life.
    fn pause(&mut self) {
        self.watch.failed();
        sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}
