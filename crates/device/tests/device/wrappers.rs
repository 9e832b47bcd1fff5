//! Tests of what all devices that wrap another device forward.

use parext4_device::{
    Device, FaultDevice, FaultPlan, MemDevice, RecordingDevice, SimDevice, SimProfile, forward_device,
};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

/// A device in memory that refuses changes.
#[derive(Debug)]
struct ReadOnly(MemDevice);

impl Device for ReadOnly {
    forward_device!(this => this.0; size, sector_size, read_at, flush);

    fn read_only(&self) -> bool {
        true
    }
    fn write_at(&self, _: u64, _: &[IoSlice<'_>]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

#[test]
fn a_wrapper_is_as_large_and_as_read_only_as_its_device() {
    let inner: Arc<dyn Device> = Arc::new(ReadOnly(MemDevice::new(1 << 20).with_sector_size(4096)));
    let wrappers: [&dyn Device; 5] = [
        &&*inner,
        &inner,
        &FaultDevice::new(inner.clone(), FaultPlan::default()),
        &RecordingDevice::new(inner.clone()),
        &SimDevice::new(inner.clone(), SimProfile::new(Duration::ZERO, 1)),
    ];
    for wrapper in wrappers {
        assert_eq!((wrapper.size(), wrapper.sector_size()), (1 << 20, 4096), "{wrapper:?}");
        assert!(wrapper.read_only(), "{wrapper:?}");
        assert!(wrapper.discard(0, 4096).is_err(), "{wrapper:?}");
    }
}
