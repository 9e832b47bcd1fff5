//! The device fails while attributes in a shared block change, at each call once.

use std::sync::Arc;

use super::names;
use super::shared::{path, shared};
use parext4::device::{FaultDevice, FaultPlan};
use parext4::{Device, MemDevice, Result, Volume, XattrMode};
use testkit::volume::{assert_clean, assert_recovers, recover, untimed};

/// Unshares the block in every way.
fn exercise(device: Arc<FaultDevice>) -> Result<()> {
    let volume = Volume::open_device(device, &untimed())?;
    volume.resolve(path(0))?.set_xattr(b"user.own", &[1; 100], XattrMode::Create)?;
    volume.resolve(path(1))?.remove_xattr(b"user.test")?;
    volume.remove_file(path(2))?;
    volume.sync()?;
    volume.resolve(path(0))?.set_xattr(b"user.own", &[2; 200], XattrMode::Replace)?;
    volume.resolve(path(0))?.remove_xattr(b"user.test")?;
    volume.resolve(path(3))?.set_xattr(b"user.test", b"", XattrMode::Replace)?;
    volume.close()
}

#[test]
fn each_call_may_fail() {
    let Some(image) = shared() else { return };
    let base = MemDevice::from_bytes(std::fs::read(image.path()).unwrap());
    for call in 1.. {
        let memory = Arc::new(base.fork());
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as Arc<dyn Device>, FaultPlan::at(call)));
        let result = exercise(Arc::clone(&device));
        if device.failed().is_none() {
            result.unwrap();
            assert!(call > 20);
            return;
        }
        let what = format!("call {call}: {:?}, reported as {result:?}", device.failed());
        if call % 3 == 0 {
            assert_recovers(&memory.fork(), &what);
        }
        recover(&memory);
        assert_clean(&memory, &what);
        let volume = Volume::open_device(memory, &untimed()).unwrap();
        let found = names(&volume.resolve(path(0)).unwrap());
        let states: [&[&str]; 3] = [&["user.test"], &["user.own", "user.test"], &["user.own"]];
        assert!(
            states.contains(&&found.iter().map(String::as_str).collect::<Vec<_>>()[..]),
            "{what}: {found:?}"
        );
    }
}
