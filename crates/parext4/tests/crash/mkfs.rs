//! Crashes while a volume is made over an old one.

use std::sync::Arc;

use parext4::device::RecordingDevice;
use parext4::{Device, MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};

use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::rng::Rng;
use testkit::volume::{Shape, assert_no_findings};

/// Checks that each state has the old volume as it was, or none until the new one is complete.
fn check_crashes(options: &MkfsOptions) {
    let base = Shape::new(8, 1024, true).make_poisoned();
    let old = base.snapshot();
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    mkfs(&*device, options).expect("mkfs");
    let (complete, mut found) = (device.events(), [0; 3]);
    for_each_crash_state(&device, &base, &mut Rng::new(1, 1), |CrashState { epoch, image, what }| {
        let image = Arc::new(image);
        let options = VolumeOptions::new().read_only(true);
        let Ok(volume) = Volume::open_device(Arc::clone(&image) as Arc<dyn Device>, &options) else {
            assert!(epoch.start < complete, "{what}: there is no volume");
            found[0] += 1;
            return;
        };
        if image.snapshot() == old {
            found[1] += 1;
            return;
        }
        assert_no_findings(&*image as &MemDevice, &what);
        assert_eq!(volume.label(), b"new", "{what}: the old volume, changed");
        found[2] += 1;
    });
    assert!(found.iter().all(|&count| count > 0), "none, old, new: {found:?}");
}

#[test]
fn an_old_volume_that_is_overwritten_stays_whole_or_goes() {
    let options = MkfsOptions::new().label("new");
    check_crashes(&options);
    check_crashes(&options.clone().discard(true));
    check_crashes(&options.block_size(4096).journal(false));
}
