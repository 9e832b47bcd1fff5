//! Tests of the options that open a file as a device.

use super::{read, write};
use parext4_device::{Device, DeviceOptions, Direct, FileDevice, LockHandover};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

fn image(len: u64) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(len).unwrap();
    (dir, path)
}

fn refusal(path: &Path, options: &DeviceOptions) -> ErrorKind {
    let error = FileDevice::open(path, &options.clone().lock_wait(Duration::ZERO)).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error} names no path");
    error.kind()
}

#[test]
fn writers_exclude_all_and_readers_exclude_writers() {
    let (_dir, path) = image(1 << 20);
    let (writer, reader) = (DeviceOptions::new(), DeviceOptions::new().read_only(true));
    let open = FileDevice::open(&path, &writer).unwrap();
    assert_eq!(refusal(&path, &writer), ErrorKind::ResourceBusy);
    assert_eq!(refusal(&path, &reader), ErrorKind::ResourceBusy);
    FileDevice::open(&path, &writer.clone().lock(false)).unwrap();
    drop(open);
    let _first = FileDevice::open(&path, &reader).unwrap();
    let _second = FileDevice::open(&path, &reader).unwrap();
    assert_eq!(refusal(&path, &writer), ErrorKind::ResourceBusy);
    let message = FileDevice::open(&path, &writer).unwrap_err().to_string();
    assert!(message.contains("in use by another process"), "{message}");
}

#[test]
fn a_lock_that_is_released_soon_is_waited_for() {
    let (_dir, path) = image(1 << 20);
    let options = DeviceOptions::new().lock_wait(Duration::from_mins(1));
    let open = FileDevice::open(&path, &options).unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| FileDevice::open(&path, &options).map(drop));
        // Long enough for an attempt that does not wait.
        thread::sleep(Duration::from_millis(50));
        drop(open);
        second.join().unwrap().unwrap();
    });
}

/// A process that may only read the image, and waits for its lock.
struct Waiting(thread::JoinHandle<File>);

impl Waiting {
    fn start(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let waiting = Self(thread::spawn(move || {
            file.lock().unwrap();
            file
        }));
        // Long enough for the call to be in the kernel.
        thread::sleep(Duration::from_millis(20));
        waiting
    }

    fn is_waiting(&self) -> bool {
        // Long enough for a lock that was released to be noticed.
        thread::sleep(Duration::from_millis(2));
        !self.0.is_finished()
    }

    /// Waits for the lock, and releases it.
    fn gets_the_lock(self) {
        drop(self.0.join().unwrap());
    }
}

#[test]
fn a_lock_that_is_handed_over_is_not_lost_to_a_process_that_waits_for_it() {
    let (_dir, path) = image(1 << 20);
    let reader = DeviceOptions::new().read_only(true);
    for _ in 0..20 {
        let open = FileDevice::open(&path, &reader).unwrap();
        let waiting = Waiting::start(&path);
        let handover = LockHandover::hold(&path).unwrap();
        drop(open);
        assert!(waiting.is_waiting());
        let writer = DeviceOptions::new().handover(handover.clone());
        // A writer that closes the image again passes the lock back.
        drop(FileDevice::open(&path, &writer).unwrap());
        assert!(waiting.is_waiting());
        drop(FileDevice::open(&path, &reader).unwrap());
        let open = FileDevice::open(&path, &writer).unwrap();
        drop((handover, writer));
        assert!(waiting.is_waiting());
        assert_eq!(refusal(&path, &reader), ErrorKind::ResourceBusy);
        drop(open);
        waiting.gets_the_lock();
    }
}

#[test]
fn a_lock_that_others_share_stays_with_the_handover() {
    let (_dir, path) = image(1 << 20);
    let reader = DeviceOptions::new().read_only(true);
    for _ in 0..20 {
        let [open, other] = [(); 2].map(|()| FileDevice::open(&path, &reader).unwrap());
        let waiting = Waiting::start(&path);
        let handover = LockHandover::hold(&path).unwrap();
        drop(open);
        assert_eq!(refusal(&path, &DeviceOptions::new().handover(handover.clone())), ErrorKind::ResourceBusy);
        drop(other);
        assert!(waiting.is_waiting());
        let open = FileDevice::open(&path, &reader).unwrap();
        drop(handover);
        assert!(waiting.is_waiting());
        drop(open);
        waiting.gets_the_lock();
    }
}

#[test]
fn a_locked_image_is_not_truncated() {
    let (_dir, path) = image(1 << 20);
    let open = FileDevice::open(&path, &DeviceOptions::new()).unwrap();
    write(&open, 0, &[1; 4096]).unwrap();
    assert_eq!(refusal(&path, &DeviceOptions::new().create(4096)), ErrorKind::ResourceBusy);
    assert_eq!(read(&open, 0, 4096).unwrap()[0], 1);
    drop(open);
    let created = FileDevice::open(&path, &DeviceOptions::new().create(8192)).unwrap();
    assert_eq!(created.size(), 8192);
    assert_eq!(read(&created, 0, 4096).unwrap()[0], 0);
}

#[test]
fn a_read_only_device_is_not_written() {
    let (_dir, path) = image(1 << 20);
    let device = FileDevice::open(&path, &DeviceOptions::new().read_only(true)).unwrap();
    assert!(device.read_only());
    assert_eq!(write(&device, 0, &[1; 4096]).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(device.discard(0, 4096).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    device.flush().unwrap();
    assert_eq!(refusal(&path, &DeviceOptions::new().read_only(true).create(1)), ErrorKind::InvalidInput);
}

#[test]
fn a_volume_may_lie_inside_the_file() {
    let (_dir, path) = image(1 << 20);
    let part = DeviceOptions::new().offset(64 << 10).len(128 << 10);
    let device = FileDevice::open(&path, &part).unwrap();
    assert_eq!((device.size(), device.base_offset()), (128 << 10, 64 << 10));
    write(&device, (128 << 10) - 4096, &[3; 4096]).unwrap();
    assert_eq!(write(&device, 128 << 10, &[3; 4096]).unwrap_err().kind(), ErrorKind::InvalidInput);
    drop(device);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[..188 << 10].iter().all(|&byte| byte == 0));
    assert!(bytes[188 << 10..192 << 10].iter().all(|&byte| byte == 3));
    assert!(bytes[192 << 10..].iter().all(|&byte| byte == 0));
    assert_eq!(bytes.len(), 1 << 20);
}

#[test]
fn a_volume_past_the_file_is_refused() {
    let (_dir, path) = image(1 << 20);
    assert_eq!(refusal(&path, &DeviceOptions::new().offset(2 << 20)), ErrorKind::InvalidInput);
    assert_eq!(refusal(&path, &DeviceOptions::new().offset(4096).len(1 << 20)), ErrorKind::InvalidInput);
    assert_eq!(refusal(&path, &DeviceOptions::new().offset(4096).len(u64::MAX)), ErrorKind::InvalidInput);
    assert_eq!(FileDevice::open(&path, &DeviceOptions::new().offset(1 << 20)).unwrap().size(), 0);
}

#[test]
fn a_volume_not_aligned_for_direct_io_uses_the_page_cache() {
    let (_dir, path) = image((1 << 20) + 100);
    let odd = DeviceOptions::new().offset(100);
    let device = FileDevice::open(&path, &odd).unwrap();
    assert!(!device.is_direct());
    assert_eq!((device.size(), device.sector_size(), device.memory_alignment()), (1 << 20, 512, 1));
    write(&device, (1 << 20) - 512, &[1; 512]).unwrap();
    drop(device);
    assert_eq!(refusal(&path, &odd.direct(Direct::Always)), ErrorKind::Unsupported);
    assert_eq!(FileDevice::open(&path, &DeviceOptions::new()).unwrap().size(), 1 << 20);
}

#[test]
fn only_files_and_block_devices_are_volumes() {
    let (dir, path) = image(0);
    assert_eq!(refusal(dir.path(), &DeviceOptions::new()), ErrorKind::InvalidInput);
    assert_eq!(refusal(Path::new("/dev/null"), &DeviceOptions::new()), ErrorKind::InvalidInput);
    assert_eq!(refusal(&path.with_extension("missing"), &DeviceOptions::new()), ErrorKind::NotFound);
}
