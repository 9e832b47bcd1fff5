//! Devices that fail: the same run is repeated, each time with another call to the device failing.
//! A caller gets the error, a volume that could not write stops (I8), and data synced before is
//! whole afterwards.
//!
//! Run with `cargo test -p parext4 --profile stress --test crash faults`. By default a sample of
//! the calls fails, and e2fsck checks a sample of the images; `PAREXT4_STRESS_ALL=1` tries all.

use std::sync::Arc;

use parext4::device::{CallInfo, CallKind, FaultDevice, FaultKind, FaultPlan};
use parext4::{Device, Error, MemDevice, Volume};

use testkit::durability::DurabilityModel;
use testkit::ops::{Content, Op, Runner, Tree};
use testkit::sector::identify_all;
use testkit::settings;
use testkit::volume::{
    DirectFiles as _, Shape, assert_clean, assert_recovers, recover, untimed, without_error_record,
};
use testkit::workload::{FILE, Workload};

const OPERATIONS: usize = 300;
/// Seed of the workload unless the environment sets one, so that every run fails the same calls.
const SEED: u64 = 20;

/// The result of a run.
struct Outcome {
    story: DurabilityModel,
    /// The error of the first operation that failed.
    error: Option<Error>,
    /// The operation in progress when the device failed.
    during: Option<String>,
}

/// One case: a base image, and how the device fails.
struct Case<'a> {
    base: &'a MemDevice,
    shape: Shape,
    operations: &'a [(Op, Content)],
    plan: FaultPlan,
}

impl Case<'_> {
    /// Runs the workload until a call fails, and checks the state of the volume.
    fn outcome(&self, device: &Arc<FaultDevice>) -> Outcome {
        let mut outcome =
            Outcome { story: DurabilityModel::new(self.shape.block_size), error: None, during: None };
        let volume = match Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &untimed()) {
            Ok(volume) => volume,
            Err(error) => return Outcome { error: Some(error), during: Some("open".into()), ..outcome },
        };
        let mut runner = Runner::new(&volume);
        for &(op, content) in self.operations {
            outcome.story.begin(op, content);
            let result = runner.run(&op, content);
            if device.failed().is_some() && outcome.during.is_none() {
                outcome.during = Some(format!("{op:?}"));
            }
            if let Err(error) = result {
                outcome.error = Some(error);
                break;
            }
            outcome.story.succeeded();
        }
        drop(runner);
        if device.failed().is_some() {
            self.after_the_fault(device, &volume, &outcome);
        }
        match volume.close() {
            Ok(()) => outcome.story.all_durable_but_the_last(outcome.error.is_some()),
            Err(error) => {
                outcome.during.get_or_insert_with(|| "close".into());
                outcome.error.get_or_insert(error);
            }
        }
        outcome
    }

    /// Asserts that a failed write or flush has stopped the volume, and that its contents can still
    /// be read.
    fn after_the_fault(&self, device: &FaultDevice, volume: &Volume, outcome: &Outcome) {
        let failed = device.failed().expect("a call failed");
        let what = || {
            format!("{:?} of {:?}, {failed:?}, reported as {:?}", self.plan, outcome.during, outcome.error)
        };
        if matches!(failed.kind, CallKind::Write | CallKind::Flush) {
            for (name, result) in [
                ("mkdir", volume.create_dir("/after", 0o755).map(drop)),
                ("sync", volume.sync()),
                ("open and write", self.write_somewhere(volume, outcome.story.durable_tree())),
            ] {
                let stopped = matches!(result, Err(Error::Stopped(_) | Error::Device { .. }));
                assert!(stopped, "{name} gives {result:?} after {}", what());
            }
        }
        if !self.plan.sticky || self.plan.kind == FaultKind::Writes || self.plan.kind == FaultKind::Flushes {
            self.read_all(volume, outcome).unwrap_or_else(|e| panic!("{e} after {}", what()));
        }
    }

    fn write_somewhere(&self, volume: &Volume, tree: &Tree) -> Result<(), Error> {
        let path = tree.names.keys().find(|path| tree.file(path).is_some());
        match path.and_then(|path| volume.direct_file(path).ok()) {
            Some(file) => file.write_all_at(&[1; 512], 0),
            None => volume.create_direct("/after").map(drop),
        }
    }

    /// Reads every file that has its name.
    fn read_all(&self, volume: &Volume, outcome: &Outcome) -> Result<(), String> {
        let tree = outcome.story.tree();
        for path in tree.names.keys().filter(|path| tree.file(path).is_some()) {
            let Ok(file) = volume.direct_file(path) else { continue };
            let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
            let count = file.read_at(&mut bytes, 0).map_err(|e| format!("{path}: {e}"))?;
            identify_all(&bytes[..count], FILE, 0).map_err(|e| format!("{path}: {e}"))?;
        }
        Ok(())
    }

    /// Returns true if half a superblock was written. On devices with sectors of 512 bytes it spans
    /// two, with the checksum in the second, so only e2fsck opens the volume, from a backup. Larger
    /// blocks hold the superblock whole in one of their halves.
    fn tears_superblock(&self, failed: CallInfo) -> bool {
        self.plan.torn && failed.kind == CallKind::Write && failed.len == 1024 && failed.offset == 1024
    }

    /// Runs the case and checks the resulting image.
    fn check(&self, with_e2fsck: bool) {
        let memory = Arc::new(self.base.fork());
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as _, self.plan));
        let outcome = self.outcome(&device);
        let Some(failed) = device.failed() else { return };
        let what =
            format!("{:?} in {:?}: {failed:?}, reported as {:?}", self.plan, outcome.during, outcome.error);
        // The deletion of an unused file has no caller to return a read error to.
        let deletes = outcome
            .during
            .as_deref()
            .is_some_and(|op| ["Unlink", "Remove", "Rename"].iter().any(|name| op.starts_with(name)));
        // The open reads the superblock alone if the first 4 KiB cannot be read as a whole.
        let is_repeated = failed.offset == 0 && !self.plan.sticky;
        let silent = failed.kind == CallKind::Read && (deletes || is_repeated);
        assert!(outcome.error.is_some() || silent, "no caller got the error of {what}");
        if !self.shape.journal {
            return;
        }
        if self.tears_superblock(failed) {
            return;
        }
        if with_e2fsck {
            assert_recovers(&without_error_record(&memory), &what);
        }
        let image: Arc<dyn Device> = Arc::clone(&memory) as _;
        let volume = Volume::open_device(image, &untimed()).unwrap_or_else(|e| panic!("{e} after {what}"));
        outcome.story.check(&volume).unwrap_or_else(|e| panic!("{e} after {what}"));
        volume.close().unwrap_or_else(|e| panic!("{e} after {what}"));
        if with_e2fsck {
            // Orphans stay until the record is cleared.
            let cleared = Arc::new(without_error_record(&memory));
            recover(&cleared);
            assert_clean(&cleared, &what);
        }
    }
}

/// Returns the operations of a run without faults, and its number of calls of a kind.
fn rehearse(base: &MemDevice, kind: FaultKind, seed: u64) -> (Vec<(Op, Content)>, u64) {
    let memory = Arc::new(base.fork());
    let device = Arc::new(FaultDevice::new(memory, FaultPlan::default().kind(kind)));
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).expect("open");
    let mut workload = Workload::new(seed);
    let mut story = DurabilityModel::new(4096);
    let mut operations = Vec::new();
    for _ in 0..OPERATIONS {
        let (op, content) = workload.next(story.tree());
        story.begin(op, content);
        Runner::new(&volume).run(&op, content).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        operations.push((op, content));
    }
    story.all_durable();
    story.check(&volume).expect("the operations");
    volume.close().expect("close");
    (operations, device.calls())
}

fn fail_all(name: &str, shape: Shape, kind: FaultKind) {
    let seed = std::env::var("PAREXT4_STRESS_SEED").map_or(SEED, |_| settings::seed(name));
    let base = shape.make();
    let (operations, calls) = rehearse(&base, kind, seed);
    eprintln!("{name}: {calls} calls");
    let (stride, e2fsck_stride) = if settings::all() { (1, 1) } else { (3, 24) };
    for (number, fail_at) in (1..=calls).enumerate() {
        for (variant, (sticky, torn)) in
            [(false, false), (true, false), (false, true)].into_iter().enumerate()
        {
            if (number + variant) % stride != 0
                || (torn && matches!(kind, FaultKind::Reads | FaultKind::Flushes))
            {
                continue;
            }
            let plan = FaultPlan::at(fail_at).kind(kind).sticky(sticky).torn(torn);
            Case { base: &base, shape, operations: &operations, plan }
                .check(number % e2fsck_stride == variant);
        }
    }
}

#[test]
fn any_call_1k() {
    fail_all("any_call_1k", Shape::new(8, 1024, true), FaultKind::Any);
}

#[test]
fn any_call_4k() {
    fail_all("any_call_4k", Shape::new(16, 4096, true), FaultKind::Any);
}

#[test]
fn writes_4k() {
    fail_all("writes_4k", Shape::new(16, 4096, true), FaultKind::Writes);
}

#[test]
fn flushes_1k() {
    fail_all("flushes_1k", Shape::new(8, 1024, true), FaultKind::Flushes);
}

#[test]
fn reads_2k() {
    fail_all("reads_2k", Shape::new(8, 2048, true), FaultKind::Reads);
}

#[test]
fn any_call_4k_no_journal() {
    fail_all("any_call_4k_no_journal", Shape::new(16, 4096, false), FaultKind::Any);
}
