//! One run of a workload: its steps, their errors, and what is durable.

use std::sync::Arc;

use parext4::{Credentials, Device, Error, Result, Volume, VolumeOptions};

use super::devices::FaultyDevices;
use super::snapshot::Snapshot;
use super::states::{Progress, States};

/// A run. A workload makes all changes in its steps, and ends with the first error.
pub struct Run<'a> {
    devices: &'a FaultyDevices,
    options: VolumeOptions,
    volume: Option<Volume>,
    states: Recorded<'a>,
    pub(super) progress: Progress,
    /// The steps that failed, with their errors.
    pub(super) failures: Vec<(String, Error)>,
    /// The smallest numbers of free blocks and of free inodes after a step.
    pub(super) least_free: (u64, u64),
}

/// The states of the volume.
enum Recorded<'a> {
    /// This run records them.
    Now(States),
    /// An earlier run did.
    Before(&'a States),
}

impl<'a> Run<'a> {
    /// Begins the run that records the states, from `first` on.
    pub(super) fn recording(devices: &'a FaultyDevices, options: VolumeOptions, first: Snapshot) -> Self {
        let mut states = States::default();
        states.push(first);
        Self::new(devices, options, Recorded::Now(states))
    }

    /// Begins a run whose states are known.
    pub(super) fn with_states(
        devices: &'a FaultyDevices,
        options: VolumeOptions,
        states: &'a States,
    ) -> Self {
        Self::new(devices, options, Recorded::Before(states))
    }

    fn new(devices: &'a FaultyDevices, options: VolumeOptions, states: Recorded<'a>) -> Self {
        let progress = Progress::default();
        let least_free = (u64::MAX, u64::MAX);
        Self { devices, options, volume: None, states, progress, failures: Vec::new(), least_free }
    }

    /// Returns the recorded states.
    pub(super) fn into_states(self) -> States {
        match self.states {
            Recorded::Now(states) => states,
            Recorded::Before(states) => states.clone(),
        }
    }

    /// Returns the number of steps that failed: at most one.
    pub(super) fn failed_steps(&self) -> usize {
        usize::from(!self.failures.is_empty()).min(self.progress.begun)
    }

    /// Returns the volume, if it is open.
    pub(super) fn open_volume(&self) -> Option<&Volume> {
        self.volume.as_ref()
    }

    /// Returns the volume. Opens it if it is not open.
    ///
    /// # Errors
    /// The errors of the open.
    pub fn volume(&mut self) -> Result<Volume> {
        if self.volume.is_none() {
            let opened = Volume::open_device(self.devices.volume(), &self.devices.options(&self.options));
            let volume = self.noted("open", opened)?;
            // Limits count only in runs that enforce quotas.
            self.volume = Some(volume.with_credentials(Credentials::root().within_quotas()));
        }
        Ok(self.volume.clone().expect("it is open"))
    }

    /// Makes a change.
    ///
    /// # Errors
    /// The errors of the change.
    pub fn step<T>(&mut self, what: &str, change: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
        let volume = self.volume()?;
        self.progress.begun += 1;
        let changed = self.noted(what, change(&volume))?;
        if let Recorded::Now(states) = &mut self.states {
            let now = Snapshot::take(&volume, states.last());
            states.push(now.unwrap_or_else(|error| panic!("the state after {what}: {error}")));
            let (blocks, inodes) = free(&volume);
            self.least_free = (self.least_free.0.min(blocks), self.least_free.1.min(inodes));
        }
        Ok(changed)
    }

    /// Makes a call that changes nothing.
    ///
    /// # Errors
    /// The errors of the call.
    pub fn look<T>(&mut self, what: &str, look: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
        let volume = self.volume()?;
        self.noted(what, look(&volume))
    }

    /// Makes a change after which it and everything before it is durable.
    ///
    /// # Errors
    /// The errors of the change.
    pub fn durable_step<T>(&mut self, what: &str, change: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
        let done = self.step(what, change)?;
        self.progress.durable = self.progress.begun;
        Ok(done)
    }

    /// Makes a change after which the file `path` is durable.
    ///
    /// # Errors
    /// The errors of the change.
    pub fn file_step<T>(
        &mut self,
        what: &str,
        path: &str,
        change: impl FnOnce(&Volume) -> Result<T>,
    ) -> Result<T> {
        let done = self.step(what, change)?;
        match &self.states {
            Recorded::Now(states) => states.synced(path, &mut self.progress),
            Recorded::Before(states) => states.synced(path, &mut self.progress),
        }
        Ok(done)
    }

    /// Syncs the volume.
    ///
    /// # Errors
    /// The errors of the sync.
    pub fn sync(&mut self) -> Result<()> {
        self.look("sync", Volume::sync)?;
        self.progress.durable = self.progress.begun;
        Ok(())
    }

    /// Closes the volume, if it is open. The next step opens it again.
    ///
    /// # Errors
    /// The errors of the close.
    pub fn close(&mut self) -> Result<()> {
        let Some(volume) = self.volume.take() else { return Ok(()) };
        let closed = volume.close();
        // A part of the step that failed may be there.
        let whole = self.progress.begun - self.failed_steps();
        self.noted("close", closed)?;
        self.progress.durable = self.progress.durable.max(whole);
        Ok(())
    }

    /// Drops the volume. The next step opens it again.
    pub fn abandon(&mut self) {
        self.volume = None;
    }

    /// Closes the volume, works on its device, and opens the volume again with the next step.
    ///
    /// # Errors
    /// The errors of the close and of the work.
    pub fn beside<T>(&mut self, what: &str, work: impl FnOnce(&Arc<dyn Device>) -> Result<T>) -> Result<T> {
        self.close()?;
        let device = self.devices.volume();
        self.noted(what, work(&device))
    }

    /// Notes an error.
    fn noted<T>(&mut self, what: &str, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failures.push((what.to_owned(), error.clone()));
        }
        result
    }
}

/// Returns the numbers of free blocks and of free inodes.
pub(super) fn free(volume: &Volume) -> (u64, u64) {
    let space = volume.space();
    (space.free_blocks, space.free_inodes.into())
}
