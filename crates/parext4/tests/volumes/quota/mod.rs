//! Volumes with quotas: usage after changes of all kinds, limits, crashes, damaged files, and the
//! kernel's numbers.

mod check;
mod crash;
mod hostile;
mod kernel;
mod limits;
mod usage;
mod workload;

use std::sync::Arc;

use parext4::{Device, MemDevice, Quota, QuotaKind, QuotaKinds, Volume, VolumeOptions};
use testkit::Image;
use testkit::volume::untimed;

/// All quotas, in the words of mke2fs.
const ALL: [&str; 4] = ["-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"];

/// Makes a volume with all quotas. `None` if mke2fs is not installed.
fn make(mib: u64, options: &[&str]) -> Option<Arc<MemDevice>> {
    let image = Image::mke2fs(mib, &[&ALL, options].concat())?;
    Some(Arc::new(MemDevice::from_bytes(std::fs::read(image.path()).unwrap())))
}

fn open_with(device: &Arc<MemDevice>, options: &VolumeOptions) -> parext4::Result<Volume> {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, options)
}

fn open(device: &Arc<MemDevice>) -> Volume {
    open_with(device, &untimed()).unwrap()
}

/// Opens the volume with all limits enforced.
fn open_limited(device: &Arc<MemDevice>) -> Volume {
    let enforced = QuotaKinds { user: true, group: true, project: true };
    open_with(device, &untimed().enforced_quotas(enforced)).unwrap()
}

/// Returns what an id uses: bytes, and inodes.
fn usage(volume: &Volume, kind: QuotaKind, id: u32) -> (u64, u64) {
    quota(volume, kind, id).map_or((0, 0), |quota| (quota.space, quota.inodes))
}

fn quota(volume: &Volume, kind: QuotaKind, id: u32) -> Option<Quota> {
    volume.quotas(kind).unwrap().unwrap().into_iter().find(|quota| quota.id == id)
}
