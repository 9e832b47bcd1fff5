//! The volume's background threads, which write back after an interval, several files at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::{Device, Volume};

use super::{create, open};
use testkit::device::GatedDevice;
use testkit::volume::{Shape, assert_clean, untimed};

#[test]
fn sleeping_threads_write_back_once_pages_are_dirty() {
    let interval = Duration::from_millis(20);
    let device = Arc::new(Shape::new(64, 4096, true).make());
    let volume = open(&device, &untimed().write_back_interval(interval));
    let file = create(&volume, "/f");
    for nth in 1..4 {
        file.write_all_at(&[3; 10_000], (nth - 1) * 12_288).unwrap();
        let looks = (0..6000).take_while(|_| {
            std::thread::sleep(interval / 2);
            file.inode_ref().metadata().sectors < nth * 3 * 8
        });
        assert!(looks.count() < 6000, "no thread writes it back");
        // Long enough for the threads to find no more dirty pages.
        std::thread::sleep(5 * interval);
    }
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "written back by turns");
}

#[test]
fn data_is_written_back_after_the_interval_and_above_the_limit() {
    let device = Arc::new(Shape::new(64, 4096, true).make());
    let options = untimed().write_back_interval(Duration::from_millis(20)).cache_bytes(8 << 20);
    let volume = open(&device, &options);
    let file = create(&volume, "/f");
    file.write_all_at(&[3; 10_000], 0).unwrap();
    // The attribute tells: `fiemap` would write back itself.
    let used = || file.inode_ref().metadata().sectors;
    while used() < 3 * 8 {
        std::thread::yield_now();
    }
    for nth in 0..40 {
        file.write_all_at(&vec![nth; 1 << 20], u64::from(nth) << 20).unwrap();
    }
    for nth in 0..40 {
        let mut bytes = vec![0; 1 << 20];
        file.read_at(&mut bytes, u64::from(nth) << 20).unwrap();
        assert!(bytes.iter().all(|&byte| byte == nth));
    }
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "written back");
}

#[test]
fn many_small_files_are_written_back_together() {
    let device = Arc::new(Shape::new(64, 4096, true).make());
    let gate = Arc::new(GatedDevice::new(Arc::clone(&device) as Arc<dyn Device>));
    // The write-back interval is so long that only a sync writes back.
    let options = untimed().write_back_interval(Duration::from_hours(1));
    let volume = Volume::open_device(Arc::clone(&gate) as Arc<dyn Device>, &options).unwrap();
    let files: Vec<_> = (0..40).map(|nth| create(&volume, &format!("/{nth}"))).collect();
    // Reads the bitmaps of free blocks.
    files[0].write_all_at(&[1; 5000], 0).unwrap();
    volume.sync().unwrap();
    files.iter().for_each(|file| file.write_all_at(&[1; 5000], 0).unwrap());
    gate.shut();
    let synced = std::thread::spawn({
        let volume = volume.clone();
        move || volume.sync()
    });
    gate.wait_for(3);
    gate.open();
    synced.join().unwrap().unwrap();
    assert!(files.iter().all(|file| file.inode_ref().metadata().sectors == 16));
    drop(files);
    volume.close().unwrap();
    assert_clean(&device, "written back together");
}

#[test]
fn an_idle_cache_frees_its_memory() {
    let device = Arc::new(Shape::new(64, 4096, true).make());
    let idle = Duration::from_millis(20);
    let volume = open(&device, &untimed().cache_idle(idle).write_back_interval(None));
    let file = create(&volume, "/f");
    file.write_all_at(&vec![3; 1 << 20], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[4; 4096], 0).unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    while volume.cache_stats().memory > 4096 {
        assert!(Instant::now() < deadline, "it keeps its memory: {:?}", volume.cache_stats());
        std::thread::sleep(idle);
    }
    assert_eq!(volume.cache_stats().dirty, 1, "dirty pages stay");
    let mut bytes = vec![0; 1 << 20];
    file.read_at(&mut bytes, 0).unwrap();
    assert!(bytes[..4096].iter().all(|&byte| byte == 4) && bytes[4096..].iter().all(|&byte| byte == 3));
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "idle");
}
