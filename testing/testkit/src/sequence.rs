//! A sequence of operations that the bytes of a fuzzer choose. The volume is compared with its
//! model, is closed and opened again, and crashes in between; the sequence goes on with what a
//! crash has left.

use std::sync::{Arc, OnceLock};

use parext4::{Device, MemDevice, Volume};

use crate::choices::{Bytes, Choices};
use crate::crash_states::chosen_crash_state;
use crate::durability::DurabilityModel;
use crate::recorded_run::RecordedRun;
use crate::volume::{Shape, assert_clean, assert_no_findings, assert_recovers, untimed};
use crate::workload::Workload;

/// The most steps of a sequence.
const MOST: usize = 80;
/// e2fsck checks one in this number of states.
const SAMPLE: u64 = 16;

/// The volumes: all ways to map files, groups of other sizes, features that change where data and
/// names are.
const SHAPES: [Shape; 10] = [
    Shape::new(10, 1024, true),
    Shape::new(12, 2048, true),
    Shape::new(16, 4096, true),
    Shape::new(10, 1024, true).without_extents(),
    Shape::new(16, 4096, true).without_extents(),
    Shape::new(12, 1024, true).with_clusters(8),
    Shape { features: "inline_data", ..Shape::new(12, 1024, true) },
    Shape { features: "orphan_file,ea_inode,large_dir", ..Shape::new(12, 2048, true) },
    Shape {
        features: "meta_bg,^resize_inode,^filetype,^metadata_csum,uninit_bg",
        blocks_per_group: Some(512),
        ..Shape::new(12, 1024, true)
    },
    Shape { features: "none,extent", inode_size: 128, ..Shape::new(10, 1024, true) },
];

/// Returns an empty volume of a shape, on a device full of stale bytes.
fn empty(nth: usize) -> MemDevice {
    static MADE: [OnceLock<MemDevice>; SHAPES.len()] = [const { OnceLock::new() }; SHAPES.len()];
    MADE[nth].get_or_init(|| SHAPES[nth].make_poisoned()).fork()
}

/// Runs the sequence that `bytes` stand for.
///
/// # Panics
/// If an operation fails, the volume differs from its model, or a crash leaves what it must not.
pub fn run(bytes: &[u8]) {
    let mut choices = Bytes::new(bytes);
    let nth = usize::try_from(choices.below(SHAPES.len() as u64)).expect("an index");
    let shape = SHAPES[nth];
    let mut workload = Workload::from_choices(choices).with_extents(shape.has_extents()).with_more();
    let mut sequence = Sequence::new(empty(nth), shape.block_size, None);
    for _ in 0..MOST {
        if workload.choices().is_empty() {
            break;
        }
        sequence = sequence.step(&mut workload);
    }
    sequence.close((bytes.len() as u64).is_multiple_of(SAMPLE));
}

struct Sequence {
    run: RecordedRun,
    volume: Volume,
    model: DurabilityModel,
    block_size: u32,
    /// Free inodes of the empty volume.
    free_inodes: u32,
    /// Events before the last operation.
    before: usize,
}

impl Sequence {
    /// Opens the volume on `base`.
    fn new(base: MemDevice, block_size: u32, free_inodes: Option<u32>) -> Self {
        let look = Arc::new(base.fork());
        let volume = Volume::open_device(look as Arc<dyn Device>, &untimed()).expect("open");
        let model = DurabilityModel::of(&volume, block_size).unwrap_or_else(|e| panic!("{e}"));
        let free_inodes = free_inodes.unwrap_or_else(|| volume.space().free_inodes);
        volume.close().expect("close");
        let run = RecordedRun::new(base, &model);
        let volume = run.open();
        Self { run, volume, model, block_size, free_inodes, before: 0 }
    }

    fn step(mut self, workload: &mut Workload<Bytes<'_>>) -> Self {
        match workload.choices().below(16) {
            0 => self.crash(workload.choices()),
            1 => {
                let checked = workload.choices().below(SAMPLE) == 0;
                let (block_size, free_inodes) = (self.block_size, self.free_inodes);
                Self::new(self.close(checked), block_size, Some(free_inodes))
            }
            2 => {
                self.model.check_now(&self.volume).unwrap_or_else(|e| panic!("{e}"));
                self
            }
            _ => {
                if let Some(operation) = workload.choose(self.model.tree()) {
                    self.before = self.run.device.events();
                    self.run.step(&self.volume, &mut self.model, operation);
                }
                self
            }
        }
    }

    /// Closes the volume, which must be as the model says when it opens again. Returns the device.
    fn close(self, with_e2fsck: bool) -> MemDevice {
        self.model.check_now(&self.volume).unwrap_or_else(|e| panic!("{e}"));
        self.volume.close().expect("close");
        let device = self.run.device.replay_prefix(&self.run.base, usize::MAX);
        assert_no_findings(&device, "a volume that was closed");
        if with_e2fsck {
            assert_clean(&device, "a volume that was closed");
        }
        let volume = Volume::open_device(Arc::new(device.fork()), &untimed()).expect("open");
        self.model.check_now(&volume).unwrap_or_else(|e| panic!("after the volume was closed: {e}"));
        volume.close().expect("close");
        device
    }

    /// Crashes in the last operation or after it, and checks what that leaves. The sequence goes on
    /// with that, or as if nothing had happened.
    fn crash(self, choices: &mut Bytes<'_>) -> Self {
        let state = chosen_crash_state(&self.run.device, &self.run.base, self.before, choices);
        let model = self.run.model(state.epoch.start, state.epoch.end);
        let (what, with_e2fsck) = (&state.what, choices.below(SAMPLE) == 0);
        if with_e2fsck {
            assert_recovers(&state.image, what);
        }
        let device = Arc::new(state.image);
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed());
        let volume = volume.unwrap_or_else(|e| panic!("{what}: {e}"));
        let names = model.check(&volume).unwrap_or_else(|e| panic!("{what}: {e}"));
        // Inodes that lost their last name while open are deleted.
        let inodes = self.free_inodes - volume.space().free_inodes;
        assert_eq!(names, inodes as usize, "{what}: inodes in use, by names");
        volume.close().unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_no_findings(&*device, what);
        if with_e2fsck {
            assert_clean(&device, what);
        }
        if choices.chance(50) {
            return self;
        }
        let _ = self.volume.abort();
        // The recovery is repeated as a part of the sequence, so a crash may interrupt it too.
        Self::new(device.fork(), self.block_size, Some(self.free_inodes))
    }
}
