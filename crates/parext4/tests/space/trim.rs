//! Trim discards free blocks only.

use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parext4::{Device, Error, MemDevice, Volume, VolumeOptions};

use testkit::device::GatedDevice;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

const MIB: u64 = 1 << 20;

fn open(device: &Arc<MemDevice>, options: &VolumeOptions) -> Volume {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, options).expect("the volume opens")
}

fn byte_at(device: &MemDevice, offset: u64) -> u8 {
    let mut sector = [0; 512];
    device.read_at(offset, &mut [IoSliceMut::new(&mut sector)]).unwrap();
    sector[0]
}

#[test]
fn free_blocks_are_discarded_and_used_blocks_stay() {
    for (block_size, journal) in [(1024, true), (4096, true), (4096, false)] {
        let device = Arc::new(Shape::new(64, block_size, journal).make_poisoned());
        let volume = open(&device, &untimed());
        let (kept, gone) = (volume.create_direct("/kept").unwrap(), volume.create_direct("/gone").unwrap());
        for file in [&kept, &gone] {
            file.write_all_at(&vec![7; MIB as usize], 0).unwrap();
        }
        volume.sync().unwrap();
        let place = gone.device_range(0).unwrap().unwrap().start;
        drop(gone);
        volume.remove_file("/gone").unwrap();
        // Not durable yet: a crash may restore the file.
        volume.trim(0..u64::MAX, 0).unwrap();
        assert_eq!(byte_at(&device, place), 7);
        volume.sync().unwrap();
        let free = volume.space().free_blocks * u64::from(block_size);
        assert_eq!(volume.trim(place..place + u64::from(block_size), 0).unwrap(), u64::from(block_size));
        assert_eq!((byte_at(&device, place), byte_at(&device, place + u64::from(block_size))), (0, 7));
        let all = volume.trim(0..u64::MAX, 0).unwrap();
        // Windows of open files are not discarded.
        assert!(free / 2 < all && all <= free, "{all} of {free}");
        assert_eq!(byte_at(&device, place + u64::from(block_size)), 0);
        assert!(volume.trim(0..u64::MAX, MIB).unwrap() <= all);
        let mut seen = vec![0; MIB as usize];
        kept.read_at(&mut seen, 0).unwrap();
        assert!(seen.iter().all(|&byte| byte == 7));
        drop(kept);
        volume.close().unwrap();
        assert_clean(&device, "trimmed");
    }
}

#[test]
fn a_range_without_blocks_is_refused() {
    let device = Arc::new(Shape::new(16, 4096, true).make());
    let volume = open(&device, &untimed());
    for (range, least) in [(0..100, 0), (16 * MIB..u64::MAX, 0), (0..u64::MAX, u64::MAX)] {
        assert!(matches!(volume.trim(range, least), Err(Error::Invalid(_))));
    }
    volume.close().unwrap();
    let volume = open(&device, &VolumeOptions::new().read_only(true));
    assert!(matches!(volume.trim(0..u64::MAX, 0), Err(Error::ReadOnly(_))));
}

/// Files are created, written as soon as they get blocks, and removed, while all free blocks are
/// discarded repeatedly.
#[test]
fn a_trim_during_writes_loses_nothing() {
    let device = Arc::new(Shape::new(32, 1024, true).make());
    let volume = open(&device, &untimed());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3_u8)
            .map(|writer| {
                let volume = &volume;
                scope.spawn(move || {
                    for round in 0..60 {
                        let path = format!("/{writer}-{}", round % 3);
                        let _ = volume.remove_file(&path);
                        let file = volume.create_direct(&path).unwrap();
                        for _ in 0..20 {
                            file.append(&[writer; 4096]).unwrap();
                        }
                        volume.sync().unwrap();
                        let mut seen = vec![0; 20 * 4096];
                        file.read_at(&mut seen, 0).unwrap();
                        assert!(seen.iter().all(|&byte| byte == writer), "round {round}");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                volume.trim(0..u64::MAX, 0).unwrap();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    volume.close().unwrap();
    assert_clean(&device, "trimmed");
}

#[test]
fn a_slow_discard_delays_no_commit() {
    let device = Arc::new(GatedDevice::new(Arc::new(Shape::new(32, 4096, true).make())));
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&vec![1; MIB as usize], 0).unwrap();
    volume.sync().unwrap();
    device.shut_to_discards();
    std::thread::scope(|scope| {
        let trimming = scope.spawn(|| volume.trim(0..u64::MAX, 0));
        device.wait_for(1);
        let (send, receive) = mpsc::channel();
        let (volume, file) = (&volume, &file);
        scope.spawn(move || {
            // The only group of the volume.
            file.punch_hole(0..MIB / 2).unwrap();
            let other = volume.create_direct("/other").unwrap();
            volume.sync().unwrap();
            drop(other);
            send.send(()).unwrap();
        });
        let committed = receive.recv_timeout(Duration::from_secs(20));
        device.open();
        committed.expect("a commit waits for a discard");
        trimming.join().unwrap().unwrap();
    });
}
