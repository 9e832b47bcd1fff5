//! Crashes: the usage on the device is that of the inodes on the device, at any time.

use std::sync::Arc;

use parext4::device::RecordingDevice;
use parext4::{Device, Volume};
use testkit::crash_states::for_each_crash_state;
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{assert_clean, assert_recovers, recover, untimed};

use super::{make, open, workload};

#[test]
fn usage_survives_any_crash() {
    let seed = settings::seed("crashes with quotas");
    for (format, options) in
        (0..).zip([["-b", "1024", "-O", "ea_inode"], ["-b", "1024", "-O", "^extent,^64bit"]])
    {
        let Some(base) = make(8, &options) else { return };
        workload::begin(&open(&base));
        let base = Arc::try_unwrap(base).expect("the volume is closed");
        let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
        let mut rng = Rng::new(seed, format);
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        for nth in 0..120 {
            workload::change(&volume, &mut rng);
            if nth % 12 == 0 {
                volume.sync().unwrap();
            }
        }
        volume.close().unwrap();
        let mut nth = 0;
        for_each_crash_state(&device, &base, &mut rng, |state| {
            nth += 1;
            // Both recoveries, but each on half of the states.
            if nth % 2 == 0 {
                return assert_recovers(&state.image, &state.what);
            }
            let image = Arc::new(state.image);
            recover(&image);
            assert_clean(&image, &state.what);
        });
    }
}
