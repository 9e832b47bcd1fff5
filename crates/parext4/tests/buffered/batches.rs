//! Write-back of many runs of a file at once.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parext4::device::{Event, FaultDevice, FaultKind, FaultPlan, RecordingDevice};
use parext4::{Device, File, FileSize, MemDevice, Volume, VolumeOptions};

use super::create;
use testkit::device::{GatedDevice, HookedDevice, Hooks};
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

const PAGE: u64 = 4096;

fn options() -> VolumeOptions {
    untimed().cache_bytes(16 << 20).write_back_interval(None)
}

/// Makes a file of `pages` pages of ones that are on the device and not in the cache. Returns the
/// file and its offset on the device.
fn written_file(volume: &Volume, pages: u64) -> (File, u64) {
    let file = create(volume, "/f");
    let bytes = vec![1; usize::try_from(pages * PAGE).unwrap()];
    file.direct().write_all_at(&bytes, 0).unwrap();
    volume.sync().unwrap();
    let place = file.device_range(0).unwrap().unwrap();
    assert!(place.end - place.start >= pages * PAGE, "the file lies in several places");
    (file, place.start)
}

fn on(device: Arc<dyn Device>) -> Volume {
    Volume::open_device(device, &options()).unwrap()
}

/// Makes pages dirty.
fn dirty(file: &File, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        file.write_all_at(&[2; PAGE as usize], page * PAGE).unwrap();
    }
}

/// Reads pages into the cache.
fn read(file: &File, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        file.read_at(&mut [0; 1], page * PAGE).unwrap();
    }
}

#[test]
fn runs_that_lie_apart_are_on_the_device_together() {
    let gate = Arc::new(GatedDevice::new(Arc::new(Shape::new(64, 4096, true).make())));
    let volume = on(gate.clone());
    let (file, _) = written_file(&volume, 400);
    dirty(&file, (0..40).map(|nth| nth * 10));
    gate.shut();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| file.sync_data());
        // The queue of a device that is not a file has 16 threads.
        gate.wait_for(16);
        gate.open();
        sync.join().unwrap().unwrap();
    });
    assert_eq!(volume.cache_stats().dirty, 0);
}

#[test]
fn runs_are_joined_over_few_clean_pages_in_the_cache_only() {
    let inner = Arc::new(Shape::new(64, 4096, true).make());
    let recorder = Arc::new(RecordingDevice::new(inner.clone()));
    let volume = on(recorder.clone());
    let (file, start) = written_file(&volume, 64);
    // Joined over the clean pages 1, 3 and 4.
    dirty(&file, [0, 2, 5]);
    read(&file, [1, 3, 4]);
    // Not joined: page 21 is not in the cache, and pages 31 to 39 exceed the limit.
    dirty(&file, [20, 22, 30, 40]);
    read(&file, 31..40);
    // Page 51 was changed by direct I/O, which dropped it from the cache.
    dirty(&file, [50, 52]);
    read(&file, [51]);
    file.direct().write_all_at(&[3; PAGE as usize], 51 * PAGE).unwrap();
    let before = recorder.events();
    file.sync_data().unwrap();
    let of_file = |event: &Event| match event {
        Event::Write { offset, bytes } if (start..start + 64 * PAGE).contains(offset) => {
            Some(((offset - start) / PAGE, bytes.len() as u64 / PAGE))
        }
        _ => None,
    };
    let mut writes: Vec<_> = recorder.log()[before..].iter().filter_map(of_file).collect();
    writes.sort_unstable();
    assert_eq!(writes, [(0, 6), (20, 1), (22, 1), (30, 1), (40, 1), (50, 1), (52, 1)]);
    let stats = volume.cache_stats();
    assert_eq!(stats.dirty, 0, "{stats:?}");
    let mut bytes = vec![0; 64 * PAGE as usize];
    file.direct().read_at(&mut bytes, 0).unwrap();
    let firsts: Vec<u8> = bytes.chunks(PAGE as usize).map(|page| page[0]).collect();
    for (page, &byte) in firsts.iter().enumerate() {
        let expected = match page {
            0 | 2 | 5 | 20 | 22 | 30 | 40 | 50 | 52 => 2,
            51 => 3,
            _ => 1,
        };
        assert_eq!(byte, expected, "page {page}");
    }
    drop(file);
    volume.close().unwrap();
    assert_clean(&inner, "joined");
}

/// Counts the bytes of writes in flight, and their maximum.
#[derive(Debug, Default)]
struct InFlight {
    now: AtomicU64,
    most: AtomicU64,
}

impl Hooks for InFlight {
    fn write_at(&self, inner: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let now = self.now.fetch_add(len, Ordering::SeqCst) + len;
        self.most.fetch_max(now, Ordering::SeqCst);
        // Long enough for other writers to reach the limit.
        std::thread::sleep(Duration::from_millis(1));
        self.now.fetch_sub(len, Ordering::SeqCst);
        inner.write_at(offset, bufs)
    }
}

#[test]
fn writers_over_the_limit_have_a_quarter_of_it_under_way() {
    const LIMIT: u64 = 4 << 20;
    const THREADS: u64 = 32;
    const PAGES: u64 = 4096;
    let inner = Shape::new(64, 4096, true).make();
    let device = Arc::new(HookedDevice::new(inner, InFlight::default()));
    let options = options().dirty_limit_bytes(LIMIT);
    let volume = Volume::open_device(device.clone(), &options).unwrap();
    let (file, _) = written_file(&volume, PAGES);
    device.hooks().most.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let file = &file;
            let each = PAGES / THREADS;
            scope.spawn(move || dirty(file, thread * each..(thread + 1) * each));
        }
    });
    let most = device.hooks().most.load(Ordering::SeqCst);
    assert!((1..=LIMIT / 4).contains(&most), "{most} bytes");
    assert!(volume.cache_stats().dirty * PAGE <= LIMIT + THREADS * PAGE);
    drop(file);
    volume.close().unwrap();
}

/// Blocks that were never written, or are not adjacent on the device, are not written with their
/// neighbours.
#[test]
fn runs_are_not_joined_over_holes_and_unwritten_blocks() {
    let inner = Arc::new(Shape::new(64, 4096, true).make());
    let volume = on(inner.clone());
    let file = create(&volume, "/f");
    file.allocate(0..8 * PAGE, FileSize::Extend).unwrap();
    file.set_len(16 * PAGE).unwrap();
    dirty(&file, [0, 2, 8, 10]);
    read(&file, [1, 9]);
    file.sync_data().unwrap();
    // Only the four pages hold data.
    let data = |at: u64| file.data_range(at * PAGE).unwrap().map(|data| data.start / PAGE..data.end / PAGE);
    assert_eq!([data(0), data(1), data(3), data(9)], [Some(0..1), Some(2..3), Some(8..9), Some(10..11)]);
    drop(file);
    volume.close().unwrap();
    assert_clean(&inner, "not joined");
}

#[test]
fn a_failed_run_leaves_its_own_pages_dirty() {
    for fail_at in [1, 2, 5] {
        let inner = Arc::new(Shape::new(64, 4096, true).make());
        let device = Arc::new(FaultDevice::new(inner.clone(), FaultPlan::default()));
        let volume = on(device.clone());
        let (file, start) = written_file(&volume, 128);
        let pages = [3, 30, 60, 90, 120];
        dirty(&file, pages);
        let other = file.direct().buffered().unwrap();
        device.arm(FaultPlan::at(fail_at).kind(FaultKind::Writes));
        file.sync_data().unwrap_err();
        let failed = (device.failed().unwrap().offset - start) / PAGE;
        assert!(pages.contains(&failed), "page {failed}");
        // Requests that had not begun are cancelled; the data of all started requests is on the
        // device.
        let stale: Vec<u64> = pages.into_iter().filter(|page| !is_new(&inner, start + page * PAGE)).collect();
        assert!(stale.contains(&failed));
        assert_eq!(volume.cache_stats().dirty, stale.len() as u64, "{stale:?}");
        for page in pages {
            let mut byte = [0];
            file.read_at(&mut byte, page * PAGE).unwrap();
            assert_eq!(byte, [2], "page {page}");
        }
        other.sync_data().unwrap_err();
    }
}

fn is_new(device: &MemDevice, at: u64) -> bool {
    let mut byte = [0; 512];
    device.read_at(at, &mut [std::io::IoSliceMut::new(&mut byte)]).unwrap();
    byte == [2; 512]
}

/// Like the kernel's ext4: programs that read the attributes before and after write-back find the
/// same `st_blocks`.
#[test]
fn blocks_that_are_not_allocated_yet_count_as_used() {
    for block_size in [1024, 4096] {
        let volume =
            Volume::open_device(Arc::new(Shape::new(16, block_size, true).make()), &options()).unwrap();
        let file = volume.create_direct("/f").unwrap();
        let buffered = file.buffered().unwrap();
        let sectors = || file.inode_ref().metadata().sectors;
        buffered.write_all_at(&[1; 3 * 4096], 0).unwrap();
        buffered.write_all_at(&[2; 100], 1000).unwrap();
        assert_eq!(sectors(), 24, "blocks of {block_size}");
        buffered.sync_all().unwrap();
        assert_eq!(sectors(), 24, "blocks of {block_size}, written back");
        // Discarded before they are written back.
        buffered.write_all_at(&[3; 8192], 8192).unwrap();
        assert_eq!(sectors(), 32);
        file.set_len(4096).unwrap();
        assert_eq!(sectors(), 8);
        buffered.sync_all().unwrap();
        assert_eq!(sectors(), 8);
        drop(buffered);
        drop(file);
        volume.close().unwrap();
    }
}
