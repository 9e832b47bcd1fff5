//! Volumes with multi-mount protection: their owner's thread reads and writes its block meanwhile.

use std::time::Duration;

use parext4::mmp::MmpOptions;
use parext4::{MemDevice, MkfsOptions, Result, Volume, VolumeOptions, mkfs};
use testkit::volume::{DirectFiles as _, untimed};

use super::{bytes, create, workload};

/// Length of a second, in which the interval of updates is counted: long enough that a busy machine
/// does not delay an update until another owner could have claimed the volume.
const SECOND: Duration = Duration::from_millis(100);

fn protected() -> VolumeOptions {
    untimed().mmp(MmpOptions::new().second(SECOND))
}

fn volume() -> MemDevice {
    let device = MemDevice::new(8 << 20);
    let options = MkfsOptions::new().block_size(1024).mmp(true).mmp_update_interval(1);
    mkfs(&device, &options).expect("a volume");
    let device = std::sync::Arc::new(device);
    let volume = Volume::open_device(device.clone(), &protected()).expect("the volume opens");
    let fill = || volume.create_direct("/file")?.write_all_at(&bytes(1, 20 << 10), 0);
    fill().expect("the volume is filled");
    volume.close().expect("the volume closes");
    device.fork()
}

/// Waits for an update of the block.
fn pause() -> Result<()> {
    std::thread::sleep(SECOND + SECOND / 2);
    Ok(())
}

workload!(a_protected_volume, volume(), protected(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("write", |_| file.write_all_at(&bytes(2, 8192), 16 << 10))?;
    run.look("pause", |_| pause())?;
    run.step("create", |volume| create(volume, "/new").map(drop))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("truncate", |_| file.set_len(5000))?;
    run.look("pause", |_| pause())?;
    run.sync()?;
    drop(file);
    run.close()?;
    run.step("remove", |volume| volume.remove_file("/file"))?;
    run.sync()
});
