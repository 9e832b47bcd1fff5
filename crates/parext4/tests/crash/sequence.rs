//! Crashes of a single-threaded workload. All events of the device are recorded, and the crash
//! states are rebuilt from the record: any of the writes since the last flush lost, the last one
//! torn. Each state must open, hold the synced data, and return no bytes that were not written; the
//! device was full of stale bytes. The recovery of some states is recorded in turn, with a sync at
//! its end, and crashes anywhere.
//!
//! Run with `cargo test -p parext4 --profile stress --test crash sequence`. `PAREXT4_STRESS_ALL=1`
//! has e2fsck check every state, and tries more of them.

use std::io::IoSliceMut;
use std::sync::Arc;

use parext4::device::RecordingDevice;
use parext4::{Device, DirectFile, MemDevice, Volume, VolumeOptions};
use parext4_format::superblock::Superblock;
use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::durability::DurabilityModel;
use testkit::ops::{Content, FileModel, FileOp, Op, Way, read_tree};
use testkit::recorded_run::RecordedRun;
use testkit::rng::Rng;
use testkit::sector::{SECTOR, Stamp, fill_append, filled};
use testkit::settings;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, assert_recovers, untimed};
use testkit::workload::{FILE, Workload};

const OPERATIONS: usize = 240;
/// e2fsck checks one of this many consecutive crash states.
const SAMPLE: usize = 40;
/// In one of this many consecutive crash states, the recovery crashes too.
const AGAIN: usize = 250;
/// The directory that is made, and synced, after such a recovery.
const LATER: &str = "/later";
/// How many times several threads write one file at once between operations.
const PARALLEL: usize = 70;
const THREADS: u64 = 4;
/// The files that the threads write, one after the other.
const SHARED: [&str; 4] = ["/parallel-0", "/parallel-1", "/parallel-2", "/parallel-3"];
/// How many times the volume is synced in between.
const SYNCS: u32 = 8;

/// A run on a recording device, and what its checks need to know.
pub struct Recording {
    run: RecordedRun,
    block_size: u32,
    extents: bool,
    /// Free inodes of the empty volume.
    free_inodes: u32,
    seed: u64,
}

impl Recording {
    /// Begins a run on an empty volume, whose files have extents or not.
    pub fn new(base: MemDevice, extents: bool, seed: u64) -> Self {
        let mut bytes = [0; 1024];
        base.read_at(1024, &mut [IoSliceMut::new(&mut bytes)]).expect("the superblock");
        let block_size = Superblock::parse(&bytes).expect("a volume").block_size();
        let empty =
            Volume::open_device(Arc::new(base.fork()), &VolumeOptions::new().read_only(true)).expect("open");
        let free_inodes = empty.space().free_inodes;
        let run = RecordedRun::new(base, &DurabilityModel::new(block_size));
        Self { run, block_size, extents, free_inodes, seed }
    }

    /// Runs the workload and records it.
    pub fn record(&mut self, operations: usize) {
        let mut model = DurabilityModel::new(self.block_size);
        let volume = self.run.open();
        let mut workload = Workload::new(self.seed).with_extents(self.extents);
        for number in 0..operations {
            if number % PARALLEL == PARALLEL / 2 {
                self.parallel(&volume, &mut model, number as u64);
            }
            let operation = workload.next(model.tree());
            self.run.step(&volume, &mut model, operation);
        }
        volume.close().expect("close");
        model.all_durable();
        self.run.mark_ended(&model);
    }

    /// Several threads write into preallocated blocks, append to the same file, and sync it, all at
    /// once.
    fn parallel(&mut self, volume: &Volume, model: &mut DurabilityModel, number: u64) {
        let path = SHARED[usize::try_from(number).unwrap() / PARALLEL];
        // It writes nothing.
        let content = Content::Byte(0);
        self.run.step(volume, model, (Op::Create(path), content));
        let size = 256 * SECTOR as u64;
        let ahead = if self.extents {
            FileOp::Allocate { offset: 0, len: size, keep_size: false }
        } else {
            FileOp::SetLen { size }
        };
        self.run.step(volume, model, (Op::File(path, ahead), content));
        let file = volume.direct_file(path).expect("open_file");

        let events = self.run.device.events();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (file, seed) = (&file, self.seed);
                let mut rng = Rng::new(seed, number * THREADS + thread);
                scope.spawn(move || write_and_append(file, thread, &mut rng));
            }
            // Ends transactions in the middle of the other threads' operations.
            for _ in 0..SYNCS {
                volume.sync().expect("sync");
                std::thread::yield_now();
            }
        });
        let found = read_tree(volume, "").expect("the data of the threads");
        let bytes = found.bytes(path).expect("it exists").to_vec();
        testkit::sector::identify_all(&bytes, FILE, 0).expect("the data of the threads");
        for contents in [vec![0; bytes.len()], bytes] {
            let mut tree = model.tree().clone();
            let key = tree.file(path).expect("it exists");
            tree.files[key] = Arc::new(FileModel::of(contents));
            model.begin_as(Op::File(path, FileOp::SyncData { way: Way::Direct }), tree);
        }
        self.run.mark_begun(events, model);
        self.run.step(volume, model, (Op::File(path, FileOp::SyncAll { way: Way::Direct }), content));
    }

    /// Checks all crash states of the run, and returns their number.
    pub fn check(&self) -> usize {
        let mut count = 0;
        let again = if settings::all() { AGAIN / 10 } else { AGAIN };
        for_each_crash_state(
            &self.run.device,
            &self.run.base,
            &mut Rng::new(self.seed, 1),
            |CrashState { epoch, image, what }| {
                count += 1;
                let model = self.run.model(epoch.start, epoch.end);
                let what = format!("seed {}, {what}", self.seed);
                if count % again == again / 2 {
                    self.crash_again(&image, &model, &what);
                }
                self.check_image(&Arc::new(image), &model, count % SAMPLE == 0 || settings::all(), &what);
            },
        );
        count
    }

    /// Checks all crash states while the volume in `base` recovers and is used again.
    fn crash_again(&self, base: &MemDevice, model: &DurabilityModel, what: &str) {
        let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
        let open = || Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed());
        let volume = open().unwrap_or_else(|e| panic!("{what}: {e}"));
        volume.create_dir(LATER, 0o755).unwrap_or_else(|e| panic!("{what}: {e}"));
        volume.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
        let synced = device.events();
        volume.close().unwrap_or_else(|e| panic!("{what}: {e}"));

        let mut count = 0;
        for_each_crash_state(
            &device,
            base,
            &mut Rng::new(self.seed, 2),
            |CrashState { epoch, image, what: again }| {
                count += 1;
                let what = format!("{what}, then {again}");
                let with_e2fsck = count % SAMPLE == 0 || settings::all();
                let has_later = self.check_image(&Arc::new(image), model, with_e2fsck, &what);
                assert!(epoch.start < synced || has_later, "{what}: a directory that was synced is lost");
            },
        );
    }

    /// Checks one state. Returns true if it has the directory that is made after a recovery.
    fn check_image(
        &self,
        image: &Arc<MemDevice>,
        model: &DurabilityModel,
        with_e2fsck: bool,
        what: &str,
    ) -> bool {
        if with_e2fsck {
            assert_recovers(image, what);
        }
        let volume = Volume::open_device(Arc::clone(image) as Arc<dyn Device>, &untimed());
        let volume = volume.unwrap_or_else(|e| panic!("{what}: {e}"));
        let has_later = volume.remove_dir(LATER).is_ok();
        let names = model.check(&volume).unwrap_or_else(|e| panic!("{what}: {e}"));
        // Inodes that lost their last name while open are deleted.
        let inodes = self.free_inodes - volume.space().free_inodes;
        assert_eq!(names, inodes as usize, "{what}: inodes in use, by names");
        volume.close().unwrap_or_else(|e| panic!("{what}: {e}"));
        if with_e2fsck {
            assert_clean(image, what);
        }
        has_later
    }
}

/// One thread's share in a preallocated file: every fourth 16 sectors, in pieces, and appends.
fn write_and_append(file: &DirectFile, thread: u64, rng: &mut Rng) {
    let writer = 1 + u32::try_from(thread).unwrap();
    for (sequence, slot) in (1_u64..).zip((thread..16).step_by(4)) {
        let stamp = Stamp { file: FILE, writer, sequence, origin: 0 };
        let (skip, sectors) = (rng.below(8), 1 + rng.below(8));
        let first = slot * 16 + skip;
        file.write_all_at(&filled(first, sectors, stamp), first * SECTOR as u64).expect("write_at");
        let mut bytes = vec![0; SECTOR * usize::try_from(rng.log_uniform(16)).unwrap()];
        fill_append(&mut bytes, Stamp { sequence: sequence + 100, ..stamp });
        file.append(&bytes).expect("append");
        if rng.chance(30) {
            file.sync_data().expect("sync_data");
        }
    }
}

fn crash(name: &str, shape: Shape, default_seed: u64) {
    let seed = settings::fixed_seed(name, default_seed);
    let mut recording = Recording::new(shape.make_poisoned(), shape.has_extents(), seed);
    recording.record(OPERATIONS);
    let count = recording.check();
    eprintln!("{name}: {} events, {count} crashes", recording.run.device.events());
}

#[test]
fn crashes_1k() {
    crash("crashes_1k", Shape::new(10, 1024, true), 1);
}

#[test]
fn crashes_2k() {
    crash("crashes_2k", Shape::new(12, 2048, true), 2);
}

#[test]
fn crashes_4k() {
    crash("crashes_4k", Shape::new(16, 4096, true), 3);
}

#[test]
fn crashes_64k() {
    crash("crashes_64k", Shape::new(128, 65536, true), 7);
}

#[test]
fn crashes_with_meta_groups() {
    let features = "meta_bg,^resize_inode,^filetype,^metadata_csum,uninit_bg";
    let shape = Shape { features, blocks_per_group: Some(512), ..Shape::new(16, 1024, true) };
    crash("crashes_with_meta_groups", shape, 4);
}

#[test]
fn crashes_of_old_geometry() {
    let shape = Shape { features: "none,extent", inode_size: 128, ..Shape::new(10, 1024, true) };
    crash("crashes_of_old_geometry", shape, 5);
}

#[test]
fn crashes_of_clusters() {
    crash("crashes_of_clusters", Shape::new(12, 1024, true).with_clusters(8), 6);
}

#[test]
fn crashes_1k_indirect() {
    crash("crashes_1k_indirect", Shape::new(10, 1024, true).without_extents(), 4);
}
