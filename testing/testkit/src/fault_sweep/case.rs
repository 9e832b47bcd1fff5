//! One case: a workload with one fault, and all that must hold afterwards.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parext4::device::{CallInfo, CallKind};
use parext4::server::ServerVolume;
use parext4::{Error, OpenOptions, Volume, VolumeOptions};

use super::Workload;
use super::devices::{Devices, FaultyDevices};
use super::point::{FaultPoint, Manner};
use super::run::Run;
use super::shortage::Resource;
use super::snapshot::{OWN, Snapshot};
use super::states::{Progress, States};
use crate::settings;
use crate::volume::assert_no_findings;

/// Time for threads in the background to end what they do.
const PATIENCE: Duration = Duration::from_secs(20);

/// A workload with a fault.
pub struct Case<'a> {
    pub workload: &'a Workload,
    /// The devices before the run.
    pub base: &'a Devices,
    pub states: &'a States,
    pub point: FaultPoint,
    /// Whether the volume has a journal.
    pub journal: bool,
    /// The offset of the block of multi-mount protection, if the volume has one.
    pub protection: Option<u64>,
    /// Whether e2fsck checks the images.
    pub with_e2fsck: bool,
}

impl Case<'_> {
    /// Runs the case. Returns false if the run ended before the fault.
    pub fn run(&self) -> bool {
        let panics = PANICS.load(Relaxed);
        let memory = self.base.fork();
        if let FaultPoint::Shortage { resource, left, .. } = self.point
            && !resource.leave(&memory, left)
        {
            return false;
        }
        let before = memory.fork();
        let devices = FaultyDevices::new(&memory, self.point.plan());
        let mut run = Run::with_states(&devices, options(self.workload, self.point), self.states);
        // The run keeps the errors.
        let ended = (self.workload.run)(&mut run);
        assert_eq!(
            ended.is_err(),
            !run.failures.is_empty(),
            "{}: a workload ends with its error",
            self.point
        );
        let at_crash = run.progress.clone();
        let crashed = [(memory.fork(), "a crash"), (devices.power_loss(&before), "a loss of power")];
        let was_opened = run.open_volume().is_some();
        self.after_the_fault(&devices, &mut run);
        let closed = run.close();
        let outcome = self.outcome(&devices, &run);
        if !outcome.is_hit() {
            assert!(run.failures.is_empty(), "{outcome}: failed without a fault");
            return false;
        }
        outcome.assert_reported();
        assert_eq!(PANICS.load(Relaxed), panics, "{outcome}: a thread of the engine panicked");
        let progress = run.progress.clone();
        let is_recorded = was_opened && closed.is_err() && outcome.is_recordable();
        eventually(|| devices.are_free(), || format!("{outcome}: the engine is still in memory"));
        if outcome.tears_superblock() {
            return true;
        }
        if self.journal {
            for (image, how) in crashed {
                self.verify(image, &at_crash, false, &format!("{outcome}, after {how}"));
            }
        }
        if self.journal || closed.is_ok() {
            let closed = memory.fork();
            self.verify(closed, &progress, is_recorded, &format!("{outcome}, after close"));
        }
        true
    }

    fn outcome<'r>(&self, devices: &FaultyDevices, run: &'r Run<'_>) -> Outcome<'r> {
        let &Self { point, protection, .. } = self;
        Outcome { failed: devices.failed(), failures: &run.failures, point, protection }
    }

    /// Asserts what must hold while the volume is still open: a failed write or flush has stopped
    /// it, other failures have not damaged it, and all operations have released what they held.
    fn after_the_fault(&self, devices: &FaultyDevices, run: &mut Run<'_>) {
        let Some(volume) = run.open_volume().cloned() else { return };
        let outcome = self.outcome(devices, run);
        if !outcome.is_hit() {
            return;
        }
        released(&volume, &outcome, false);
        // A failed read within a change stops the volume, with a part of the change in memory.
        let is_whole = outcome.must_stop() || volume.stopped().is_none();
        if self.point.reads_later() && is_whole {
            let progress =
                Progress { durable: run.progress.begun - run.failed_steps(), ..run.progress.clone() };
            let found =
                Snapshot::take(&volume, None).unwrap_or_else(|e| panic!("{outcome}: reading it all: {e}"));
            self.states.check(&found, &progress).unwrap_or_else(|e| panic!("{outcome}, while open: {e}"));
        }
        if settings::all() && !outcome.must_stop() && volume.stopped().is_some() {
            eprintln!("{}: {outcome}: this stops the volume", self.workload.name);
        }
        if outcome.must_stop() {
            assert_stopped(&volume, &outcome);
        } else if let Some(resource) = self.point.resource() {
            resource.refill(&volume).unwrap_or_else(|e| panic!("{outcome}: more of what ran out: {e}"));
            assert_usable(&volume, &outcome);
        } else if volume.stopped().is_none() && self.point.works_later() {
            assert_usable(&volume, &outcome);
        }
        released(&volume, &outcome, volume.stopped().is_none() && self.point.works_later());
    }

    /// Asserts that an image is consistent, and has what the run has made durable.
    fn verify(&self, image: Devices, progress: &Progress, is_recorded: bool, what: &str) {
        image.disown();
        image.assert_consistent_after_replay(what);
        // Of a protected volume, e2fsck first waits for another owner, a quarter of a minute and
        // longer.
        if self.with_e2fsck && self.journal && self.protection.is_none() {
            image.assert_recovers(what);
        }
        let volume = image.open().unwrap_or_else(|e| panic!("{what}: the next open: {e}"));
        if is_recorded {
            assert!(volume.info().errors.is_some(), "{what}: the superblock does not tell of the error");
        }
        let found = Snapshot::take(&volume, None).unwrap_or_else(|e| panic!("{what}: {e}"));
        self.states.check(&found, progress).unwrap_or_else(|e| panic!("{what}: {e}"));
        volume.close().unwrap_or_else(|e| panic!("{what}: the next close: {e}"));
        assert_no_findings(&*image.volume, what);
        if self.with_e2fsck {
            image.assert_clean(what);
        }
    }
}

/// Returns the options with which the volume is opened.
pub fn options(workload: &Workload, point: FaultPoint) -> VolumeOptions {
    let mut options = (workload.options)();
    options.enforced_quotas.user |= point.resource().is_some_and(Resource::is_of_quota);
    match point.little_memory() {
        true => options.metadata_cache_bytes(1).cache_bytes(1),
        false => options,
    }
}

/// The fault and the errors that callers saw.
struct Outcome<'a> {
    failed: Option<CallInfo>,
    failures: &'a [(String, Error)],
    point: FaultPoint,
    protection: Option<u64>,
}

impl Outcome<'_> {
    fn is_hit(&self) -> bool {
        match self.point {
            FaultPoint::Shortage { .. } => !self.failures.is_empty(),
            FaultPoint::Request { .. } => self.failed.is_some(),
        }
    }

    /// Returns true if the failure stops the volume (I8). The owner of a protected volume stops it
    /// when it next reads a block that was half written.
    fn must_stop(&self) -> bool {
        self.failed.is_some_and(|call| {
            matches!(call.kind, CallKind::Write | CallKind::Flush)
                && (!self.is_of_protection(call) || self.tears_protection())
        })
    }

    /// Returns true if the owner's thread made the request. It writes the block of multi-mount
    /// protection again at its next interval.
    fn is_of_protection(&self, call: CallInfo) -> bool {
        call.kind == CallKind::Write && call.device == 0 && self.protection == Some(call.offset)
    }

    /// Returns true if the device can record the error that has stopped the volume. The owner of a
    /// protected volume writes nothing to it after its lease, which it extends no more.
    fn is_recordable(&self) -> bool {
        self.must_stop() && self.point.works_later() && self.protection.is_none()
    }

    /// Asserts that a caller saw the error, and no other one.
    fn assert_reported(&self) {
        assert!(!self.must_stop() || !self.failures.is_empty(), "{self}: no caller saw the error");
        for (what, error) in self.failures {
            let is_expected = match self.point {
                FaultPoint::Shortage { resource, .. } => resource.is_reported_by(error),
                FaultPoint::Request { .. } => match error {
                    Error::Device { .. } | Error::Stopped(_) | Error::ShutDown => true,
                    // The owner could not read its block for as long as its lease lasts.
                    Error::Busy(_) => self.protection.is_some(),
                    Error::Corrupt(_) => self.tears_protection(),
                    _ => false,
                },
            };
            assert!(is_expected, "{self}: {what}: an unexpected error: {error:?}");
        }
    }

    /// Returns true if half a superblock was written. On devices with sectors of 512 bytes it spans
    /// two, with the checksum in the second, so only e2fsck opens the volume, from a backup.
    fn tears_superblock(&self) -> bool {
        let is_superblock = |call: CallInfo| {
            call.kind == CallKind::Write && (call.device, call.offset, call.len) == (0, 1024, 1024)
        };
        self.is_torn() && self.failed.is_some_and(is_superblock)
    }

    /// Returns true if half a block of multi-mount protection was written. Its checksum is in the
    /// second sector. As the kernel, the owner does not write over a block that it cannot read.
    fn tears_protection(&self) -> bool {
        self.is_torn() && self.failed.is_some_and(|call| self.is_of_protection(call))
    }

    fn is_torn(&self) -> bool {
        matches!(self.point, FaultPoint::Request { manner: Manner::Torn, .. })
    }
}

impl std::fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.point)?;
        if let Some(CallInfo { kind, offset, len, device, .. }) = self.failed {
            let place = if device == 0 { "" } else { " of the journal device" };
            write!(f, " ({kind:?} of {len} bytes at {offset}{place})")?;
        }
        self.failures.iter().try_for_each(|(what, error)| write!(f, ", {what}: {error}"))
    }
}

/// Asserts that a volume refuses changes. A thread of the volume stops it a moment after its
/// request has failed.
fn assert_stopped(volume: &Volume, outcome: &Outcome<'_>) {
    eventually(|| volume.stopped().is_some(), || format!("{outcome}: the volume does not stop"));
    for (what, result) in
        [("mkdir", volume.create_dir(format!("{OWN}-stopped"), 0o755).map(drop)), ("sync", volume.sync())]
    {
        let is_refused = matches!(result, Err(Error::Stopped(_) | Error::ShutDown | Error::Device { .. }));
        assert!(is_refused, "{outcome}: {what} of a volume that must have stopped: {result:?}");
    }
}

/// Asserts that a volume can be changed and synced.
fn assert_usable(volume: &Volume, outcome: &Outcome<'_>) {
    let path = format!("{OWN}-usable");
    let used = || {
        let file = volume.open_file(&path, &OpenOptions::read_write().create(true))?;
        file.write_all_at(&[7; 20_000], 300)?;
        volume.sync()?;
        let mut seen = vec![0; 20_000];
        file.read_exact_at(&mut seen, 300)?;
        assert!(seen.iter().all(|&byte| byte == 7), "{outcome}: data that was written afterwards");
        volume.remove_file(&path)
    };
    used().unwrap_or_else(|e: Error| panic!("{outcome}: a volume that has not stopped: {e}"));
}

/// Asserts that no operation holds anything any more; with `clean`, that no page is dirty either. A
/// dirty page keeps its space, and the blocks that its write-back has claimed.
fn released(volume: &Volume, outcome: &Outcome<'_>, clean: bool) {
    let left = || {
        let mut held = volume.open_resources();
        if !clean && held.dirty_pages > 0 {
            (held.dirty_pages, held.delayed_blocks, held.reserved_quota, held.reserved_blocks) = (0, 0, 0, 0);
        }
        held
    };
    eventually(
        || left() == parext4::server::OpenResources::default(),
        || format!("{outcome}: still held: {:?}", left()),
    );
}

/// Asserts that a condition becomes true soon.
fn eventually(mut is_true: impl FnMut() -> bool, what: impl Fn() -> String) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < PATIENCE, "{}", what());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Number of panics of the engine's own threads.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts the panics of the engine's own threads from now on. A thread that a test waits for fails
/// the test itself.
pub fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name().is_some_and(|name| name.starts_with("parext4-")) {
                PANICS.fetch_add(1, Relaxed);
            }
            report(panic);
        }));
    });
}
