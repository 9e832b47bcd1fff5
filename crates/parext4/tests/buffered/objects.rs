//! Requests of write-back and read-ahead on a device that stores its bytes in objects, such as an
//! RBD image.

use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parext4::{Device, MemDevice, OpenOptions, Volume, VolumeOptions};
use testkit::device::{HookedDevice, Hooks};
use testkit::volume::{Shape, assert_clean, untimed};

use super::create;

const PAGE: u64 = 4096;
const OBJECT: u64 = 256 << 10;
/// Pages of the test file, one batch of write-back.
const PAGES: u64 = 400;

/// Counts the requests for a device of objects.
#[derive(Debug)]
struct Counter {
    object_size: Option<NonZeroU64>,
    reads: Mutex<Vec<Range<u64>>>,
    writes: Mutex<Vec<Range<u64>>>,
}

impl Hooks for Counter {
    fn object_size(&self, _: &dyn Device) -> Option<NonZeroU64> {
        self.object_size
    }

    fn read_at(&self, inner: &dyn Device, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        self.reads.lock().unwrap().push(offset..offset + len as u64);
        inner.read_at(offset, bufs)
    }

    fn write_at(&self, inner: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        self.writes.lock().unwrap().push(offset..offset + len as u64);
        inner.write_at(offset, bufs)
    }
}

type Counted = HookedDevice<Arc<MemDevice>, Counter>;

fn counted(object_size: u64) -> Arc<Counted> {
    let memory = Arc::new(Shape::new(64, 4096, true).make());
    let object_size = NonZeroU64::new(object_size);
    Arc::new(HookedDevice::new(
        memory,
        Counter { object_size, reads: Mutex::default(), writes: Mutex::default() },
    ))
}

fn options() -> VolumeOptions {
    untimed().cache_bytes(16 << 20).write_back_interval(None)
}

/// Writes a file of `PAGES` pages that lies in one run and begins inside an object. Returns the
/// place on the device, and the requests of write-back in ascending order.
fn write_file(device: &Arc<Counted>) -> (Range<u64>, Vec<Range<u64>>) {
    let volume = Volume::open_device(Arc::clone(device) as _, &options()).unwrap();
    volume.write("/first", vec![1; 20_000]).unwrap();
    volume.sync().unwrap();
    let file = create(&volume, "/f");
    // Blocks on the device, so that the order of write-back cannot change their place.
    file.direct().write_all_at(&vec![1; (PAGES * PAGE) as usize], 0).unwrap();
    volume.sync().unwrap();
    let Range { start, end } = file.device_range(0).unwrap().unwrap();
    let place = start..start + PAGES * PAGE;
    assert!(end >= place.end && !start.is_multiple_of(OBJECT), "{place:?}");
    for page in 0..PAGES {
        file.write_all_at(&[2; PAGE as usize], page * PAGE).unwrap();
    }
    device.hooks().writes.lock().unwrap().clear();
    file.sync_data().unwrap();
    let mut writes = std::mem::take(&mut *device.hooks().writes.lock().unwrap());
    writes.retain(|bytes| place.contains(&bytes.start));
    writes.sort_by_key(|bytes| bytes.start);
    drop(file);
    volume.close().unwrap();
    assert_clean(device.inner(), "objects");
    (place, writes)
}

fn object_of(offset: u64) -> u64 {
    offset / OBJECT
}

#[test]
fn write_back_sends_one_request_for_each_object() {
    let (place, writes) = write_file(&counted(OBJECT));
    let objects = object_of(place.start)..=object_of(place.end - 1);
    assert!(writes.iter().map(|bytes| object_of(bytes.start)).eq(objects), "{writes:?}");
    assert!(writes.windows(2).all(|two| two[0].end == two[1].start), "{writes:?}");
    // Without objects the requests are the runs of write-back, 1 MiB each.
    let (_, writes) = write_file(&counted(0));
    assert_eq!(writes.len(), 2);
}

/// Reads the file page by page with background threads, more slowly each time, until they have read
/// ahead as `is_enough` asks. Returns the requests that were longer than a page.
fn read_file(
    device: &Arc<Counted>,
    place: &Range<u64>,
    is_enough: impl Fn(&[Range<u64>]) -> bool,
) -> Vec<Range<u64>> {
    let mut attempts =
        (0..6).map(|attempt| read_slowly(device, place, Duration::from_micros(500 << attempt)));
    attempts.find(|reads| is_enough(reads)).expect("the threads read ahead")
}

/// Reads the file with a pause after each page. Returns the requests that were longer than a page.
fn read_slowly(device: &Arc<Counted>, place: &Range<u64>, pause: Duration) -> Vec<Range<u64>> {
    let options = options().write_back_interval(Duration::from_secs(1));
    let volume = Volume::open_device(Arc::clone(device) as _, &options).unwrap();
    let file = volume.open_file("/f", &OpenOptions::read_only()).unwrap();
    device.hooks().reads.lock().unwrap().clear();
    let mut bytes = [0; PAGE as usize];
    for page in 0..PAGES {
        assert_eq!(file.read_at(&mut bytes, page * PAGE).unwrap(), bytes.len());
        assert_eq!(bytes, [2; PAGE as usize]);
        // Read-ahead stays ahead of a slow reader.
        std::thread::sleep(pause);
    }
    let mut reads = std::mem::take(&mut *device.hooks().reads.lock().unwrap());
    reads.retain(|bytes| place.contains(&bytes.start) && bytes.end - bytes.start > PAGE);
    reads
}

fn crosses(bytes: &Range<u64>) -> bool {
    object_of(bytes.start) != object_of(bytes.end - 1)
}

#[test]
fn read_ahead_does_not_cross_objects() {
    let device = counted(OBJECT);
    let (place, _) = write_file(&device);
    let reads = read_file(&device, &place, |reads| reads.iter().any(crosses) || reads.len() > 3);
    assert!(!reads.iter().any(crosses), "{reads:?}");
    // Without objects the requests end where the windows end.
    let device = counted(0);
    let (place, _) = write_file(&device);
    read_file(&device, &place, |reads| reads.iter().any(crosses));
}
