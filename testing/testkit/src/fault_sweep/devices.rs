//! The devices of a volume in memory: its own, and that of its journal if the journal has one.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4::device::{CallInfo, FaultDevice, FaultPlan, RecordingDevice};
use parext4::{Device, MemDevice, Result, Volume, VolumeOptions, replay_in_memory};
use parext4_format::mmp::{Mmp, SEQUENCE_CLEAN, name_field};
use parext4_format::superblock::Superblock;

use crate::rng::Rng;
use crate::volume::{
    assert_clean_with, assert_no_findings, assert_recovers_with, journal_without_error_record, untimed,
    without_error_record,
};

/// A volume in memory.
#[derive(Debug)]
pub struct Devices {
    /// The device of the volume.
    pub volume: Arc<MemDevice>,
    /// The device of the journal, if the journal is not in the volume.
    pub journal: Option<Arc<MemDevice>>,
}

impl From<MemDevice> for Devices {
    fn from(volume: MemDevice) -> Self {
        Self { volume: Arc::new(volume), journal: None }
    }
}

impl Devices {
    /// Returns copies of the devices, which share unchanged memory with these.
    #[must_use]
    pub fn fork(&self) -> Self {
        let fork = |device: &Arc<MemDevice>| Arc::new(device.fork());
        Self { volume: fork(&self.volume), journal: self.journal.as_ref().map(fork) }
    }

    /// Opens the volume without timers.
    ///
    /// # Errors
    /// The errors of the open.
    pub fn open(&self) -> Result<Volume> {
        let journal = self.journal.clone().map(|journal| journal as Arc<dyn Device>);
        untimed().journal_device(journal).open_device(Arc::clone(&self.volume) as _)
    }

    /// Asserts that the volume is consistent once its journal was replayed.
    pub(super) fn assert_consistent_after_replay(&self, what: &str) {
        let replayed = self.fork();
        match &replayed.journal {
            None => {
                let (view, _) =
                    replay_in_memory(replayed.volume).unwrap_or_else(|e| panic!("{what}: replay: {e}"));
                assert_no_findings(&*view, what);
            }
            Some(journal) => {
                let options = untimed().journal_device(Arc::clone(journal) as Arc<dyn Device>);
                let done = options.replay_journal(Arc::clone(&replayed.volume) as _);
                done.unwrap_or_else(|e| panic!("{what}: replay: {e}"));
                assert_no_findings(&*replayed.volume, what);
            }
        }
    }

    /// Asserts that e2fsck recovers the volume without a repair.
    pub(super) fn assert_recovers(&self, what: &str) {
        let Self { volume, journal } = self.without_error_record();
        assert_recovers_with(&volume, journal.as_deref(), what);
    }

    /// Asserts that e2fsck finds no error in the volume, which was closed, once an open without the
    /// record of an error has deleted its orphans.
    pub(super) fn assert_clean(&self, what: &str) {
        let cleared = self.without_error_record();
        let recovered = cleared.open().and_then(|volume| volume.close());
        recovered.unwrap_or_else(|error| panic!("{what}: the open without the record: {error}"));
        assert_clean_with(&cleared.volume, cleared.journal.as_deref(), what);
    }

    fn without_error_record(&self) -> Self {
        let journal =
            self.journal.as_deref().map(|journal| journal_without_error_record(journal, self.block_size()));
        Self { volume: Arc::new(without_error_record(&self.volume)), journal: journal.map(Arc::new) }
    }

    fn superblock(&self) -> Superblock {
        let mut start = [0; 2048];
        self.volume.read_at(0, &mut [IoSliceMut::new(&mut start)]).expect("the volume has a superblock");
        Superblock::parse(&start[1024..]).expect("a superblock")
    }

    fn block_size(&self) -> usize {
        self.superblock().block_size() as usize
    }

    /// Returns the offset of the block of multi-mount protection, if the volume has one.
    pub(super) fn protection(&self) -> Option<u64> {
        let superblock = self.superblock();
        let block = superblock.mmp_block().expect("a block of the volume")?;
        Some(block.get() * u64::from(superblock.block_size()))
    }

    /// Marks the volume as closed by its owner, as `tune2fs -E clear_mmp` does: the next open and
    /// e2fsck need not wait.
    pub(super) fn disown(&self) {
        let Some(offset) = self.protection() else { return };
        let superblock = self.superblock();
        let mut block = vec![0; self.block_size()];
        let (node, device) = (name_field(b"none"), name_field(b"none"));
        let clean = Mmp { sequence: SEQUENCE_CLEAN, time: 1, node, device, check_interval: 5 };
        clean.encode(&mut block, superblock.checksum_seed());
        self.volume.write_at(offset, &[IoSlice::new(&block)]).expect("memory can be written");
    }
}

/// The devices of a run: what they write is recorded, and some of their requests fail.
pub(super) struct FaultyDevices {
    volume: Faulty,
    journal: Option<Faulty>,
}

struct Faulty {
    recorder: Arc<RecordingDevice>,
    device: Arc<FaultDevice>,
}

impl FaultyDevices {
    /// Puts a plan, which counts the requests of both devices, between the engine and the devices.
    pub(super) fn new(devices: &Devices, plan: FaultPlan) -> Self {
        let record = |device: &Arc<MemDevice>| Arc::new(RecordingDevice::new(Arc::clone(device) as _));
        let recorder = record(&devices.volume);
        let device = Arc::new(FaultDevice::new(Arc::clone(&recorder) as _, plan));
        let journal = devices.journal.as_ref().map(|journal| {
            let recorder = record(journal);
            let device = Arc::new(device.beside(Arc::clone(&recorder) as _));
            Faulty { recorder, device }
        });
        Self { volume: Faulty { recorder, device }, journal }
    }

    /// Returns the device of the volume.
    pub(super) fn volume(&self) -> Arc<dyn Device> {
        Arc::clone(&self.volume.device) as _
    }

    /// Returns the options to open the volume, with its journal.
    pub(super) fn options(&self, options: &VolumeOptions) -> VolumeOptions {
        let journal = self.journal.as_ref().map(|journal| Arc::clone(&journal.device) as Arc<dyn Device>);
        options.clone().journal_device(journal)
    }

    /// Returns the number of requests of the plan's kind.
    pub(super) fn calls(&self) -> u64 {
        self.volume.device.calls()
    }

    /// Returns the request that failed.
    pub(super) fn failed(&self) -> Option<CallInfo> {
        self.volume.device.failed()
    }

    /// Returns true if the engine refers to none of the devices.
    pub(super) fn are_free(&self) -> bool {
        let is_free = |faulty: &Faulty| Arc::strong_count(&faulty.device) == 1;
        is_free(&self.volume) && self.journal.as_ref().is_none_or(is_free)
    }

    /// Returns the devices as a loss of power leaves them: each has some of its writes since its
    /// last flush. `before` is what they were before the run.
    pub(super) fn power_loss(&self, before: &Devices) -> Devices {
        let lose = |faulty: &Faulty, before: &MemDevice| Arc::new(faulty.power_loss(before));
        let journal = self.journal.as_ref().zip(before.journal.as_ref());
        Devices {
            volume: lose(&self.volume, &before.volume),
            journal: journal.map(|(faulty, before)| lose(faulty, before)),
        }
    }
}

impl Faulty {
    fn power_loss(&self, before: &MemDevice) -> MemDevice {
        let recorder = &self.recorder;
        let (last, mut rng) = (recorder.flush_epochs().len() - 1, Rng::new(recorder.events() as u64, 0));
        recorder.replay_epoch_subset(before, last, |_| rng.chance(50))
    }
}
