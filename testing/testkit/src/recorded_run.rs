//! A run of operations on a device that records all requests, with the model of each moment, so
//! that any crash during the run can be checked afterwards.

use std::sync::Arc;

use parext4::device::RecordingDevice;
use parext4::{Device, MemDevice, Volume};

use crate::durability::DurabilityModel;
use crate::ops::{Content, Op, Runner};
use crate::volume::untimed;

/// The model of a crash from this event on.
#[derive(Debug)]
struct Mark {
    /// Events recorded at this point of the model.
    events: usize,
    model: DurabilityModel,
}

/// A run on a recording device.
#[derive(Debug)]
pub struct RecordedRun {
    /// The device before the run.
    pub base: MemDevice,
    /// The device that records.
    pub device: Arc<RecordingDevice>,
    /// The model at the beginning of each operation.
    begun: Vec<Mark>,
    /// The model after each operation succeeded.
    ended: Vec<Mark>,
}

impl RecordedRun {
    /// Begins a run on a volume that is as `model` says.
    pub fn new(base: MemDevice, model: &DurabilityModel) -> Self {
        let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
        let mut run = Self { base, device, begun: Vec::new(), ended: Vec::new() };
        run.mark_ended(model);
        run
    }

    /// Opens the volume. Only syncs and closing commit.
    ///
    /// # Panics
    /// If it does not open.
    pub fn open(&self) -> Volume {
        Volume::open_device(Arc::clone(&self.device) as Arc<dyn Device>, &untimed()).expect("open")
    }

    /// Notes that an operation began after `events` events, with its possible effects in the model.
    pub fn mark_begun(&mut self, events: usize, model: &DurabilityModel) {
        self.begun.push(Mark { events, model: model.clone() });
    }

    /// Notes that all operations so far have succeeded.
    pub fn mark_ended(&mut self, model: &DurabilityModel) {
        self.ended.push(Mark { events: self.device.events(), model: model.clone() });
    }

    /// Runs one operation.
    ///
    /// # Panics
    /// If it fails.
    pub fn step(&mut self, volume: &Volume, model: &mut DurabilityModel, (op, content): (Op, Content)) {
        let events = self.device.events();
        model.begin(op, content);
        self.mark_begun(events, model);
        Runner::new(volume).run(&op, content).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        model.succeeded();
        self.mark_ended(model);
    }

    /// Returns the model of a crash in which all events before `durable` are certainly on the
    /// device, and no event from `last` on has begun.
    ///
    /// # Panics
    /// Never: the first mark is at event 0.
    pub fn model(&self, durable: usize, last: usize) -> DurabilityModel {
        let ended = self.ended.iter().rev().find(|mark| mark.events <= durable).expect("the first mark");
        let begun = self.begun.iter().rev().find(|mark| mark.events <= last);
        begun.map_or_else(|| ended.model.clone(), |begun| begun.model.with_syncs_of(&ended.model))
    }
}
