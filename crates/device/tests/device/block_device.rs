//! Tests of `FileDevice` on a loop device. They need root.

use super::{pattern, read, refuses_bad_requests, write};
use parext4_device::{Device, DeviceOptions, FileDevice};
use std::io::ErrorKind;
use std::process::Command;
use tempfile::TempDir;

/// A loop device over a temporary file, detached when dropped.
pub(super) struct Loop {
    pub(super) path: String,
    _dir: TempDir,
}

impl Loop {
    pub(super) fn attach(size: u64) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(size).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        let why = match output {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
                return Some(Self { path, _dir: dir });
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        device_testkit::skipped(&format!("no loop device (needs root): {why}"));
        None
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let status = Command::new("losetup").args(["--detach", &self.path]).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be detached", self.path);
        }
    }
}

#[test]
fn a_block_device_is_a_volume() {
    let Some(lo) = Loop::attach(8 << 20) else { return };
    let device = FileDevice::open(&lo.path, &DeviceOptions::new()).unwrap();
    eprintln!("{device:?}");
    assert_eq!(device.size(), 8 << 20);
    assert!(device.is_direct());
    let bytes = pattern(1, 2 << 20);
    write(&device, 1 << 20, &bytes).unwrap();
    write(&device, 3 << 20, &bytes[1..=4096]).unwrap();
    device.flush().unwrap();
    assert!(read(&device, 1 << 20, 2 << 20).unwrap()[..] == bytes[..]);
    assert!(read(&device, 3 << 20, 4096).unwrap()[..] == bytes[1..=4096]);
    device.discard(1 << 20, 1 << 20).unwrap();
    device.allocate().unwrap();
    assert!(read(&device, 2 << 20, 1 << 20).unwrap()[..] == bytes[1 << 20..]);
    refuses_bad_requests(&device);
}

#[test]
fn a_block_device_has_one_writer_and_is_never_truncated() {
    let Some(lo) = Loop::attach(1 << 20) else { return };
    let kind = |options: &DeviceOptions| FileDevice::open(&lo.path, options).unwrap_err().kind();
    let _writer = FileDevice::open(&lo.path, &DeviceOptions::new()).unwrap();
    assert_eq!(kind(&DeviceOptions::new()), ErrorKind::ResourceBusy);
    assert_eq!(kind(&DeviceOptions::new().read_only(true)), ErrorKind::ResourceBusy);
    assert_eq!(kind(&DeviceOptions::new().create(4096)), ErrorKind::InvalidInput);
}
