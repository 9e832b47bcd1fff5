//! mkfs and check, which do not open the volume.

use std::sync::Arc;

use parext4::device::{CallKind, FaultDevice, FaultKind, FaultPlan};
use parext4::{MemDevice, MkfsOptions, Volume, mkfs};
use testkit::fault_sweep::{Family, FaultPoint, Manner, sweep_requests};
use testkit::volume::{DirectFiles as _, assert_clean, assert_no_findings, findings, untimed};

use super::{SMALL, bytes, volume};

const FAMILIES: [Family; 9] = [
    Family::new(FaultKind::Reads, Manner::Once, 3),
    Family::new(FaultKind::Reads, Manner::Torn, 3),
    Family::new(FaultKind::Reads, Manner::Sticky, 2),
    Family::new(FaultKind::Writes, Manner::Once, 4),
    Family::new(FaultKind::Writes, Manner::Torn, 2),
    Family::new(FaultKind::Flushes, Manner::Once, 2),
    Family::new(FaultKind::Discards, Manner::Once, 2),
    Family::new(FaultKind::Discards, Manner::Sticky, 1),
    Family::new(FaultKind::Any, Manner::Sticky, 3),
];

/// Makes a volume on a device full of old bytes.
fn make(name: &'static str, options: &MkfsOptions) {
    const MIB: u64 = 16;
    let old = || MemDevice::from_bytes(vec![0xa5; (MIB << 20) as usize]);
    let old = old();
    let count = |kind| {
        let device = FaultDevice::new(Arc::new(old.fork()), FaultPlan::default().kind(kind));
        mkfs(&device, options).unwrap();
        device.calls()
    };
    sweep_requests(name, &FAMILIES, count, |point: FaultPoint| {
        let memory = Arc::new(old.fork());
        let device = FaultDevice::new(Arc::clone(&memory) as _, point.plan());
        let made = mkfs(&device, options);
        let Some(failed) = device.failed() else { return false };
        if matches!(failed.kind, CallKind::Write | CallKind::Flush) {
            assert!(made.is_err(), "{point}: {failed:?} was not reported");
        }
        if made.is_err() {
            // The device opens as an empty volume, or not at all. The next attempt succeeds.
            let opened = Volume::open_device(Arc::new(memory.fork()), &untimed());
            drop(opened.map(|volume| volume.walk("/").map(Iterator::count)));
            findings(&*memory);
            mkfs(&*memory, options).unwrap();
        }
        assert_no_findings(&*memory, &point.to_string());
        true
    });
    mkfs(&old, options).unwrap();
    assert_clean(&old, name);
}

#[test]
fn made_volumes() {
    make("made_volumes", &MkfsOptions::new().block_size(1024));
}

#[test]
fn made_volumes_of_other_formats() {
    let options =
        MkfsOptions::new().block_size(4096).features("quota,orphan_file,meta_bg,^resize_inode").unwrap();
    make("made_volumes_of_other_formats", &options);
}

/// A part of the volume that cannot be read is a finding.
#[test]
fn checked_volumes() {
    let base = volume(SMALL, |volume| {
        volume.create_dir("/dir", 0o755)?;
        (0..100).try_for_each(|number| volume.create_direct(format!("/dir/{number:0>40}")).map(drop))?;
        volume.symlink("/link", "x".repeat(200))?;
        let file = volume.create_direct("/file")?;
        (0..200).try_for_each(|nth| file.write_all_at(&bytes(1, 1024), nth * 2048))
    });
    let count = |kind| {
        let device = FaultDevice::new(Arc::new(base.fork()), FaultPlan::default().kind(kind));
        assert_no_findings(&device, "without a fault");
        device.calls()
    };
    sweep_requests("checked_volumes", &FAMILIES, count, |point| {
        let device = FaultDevice::new(Arc::new(base.fork()), point.plan());
        let found = findings(&device);
        let Some(failed) = device.failed() else { return false };
        assert!(!found.is_empty(), "{point}: {failed:?} was not reported");
        true
    });
}
