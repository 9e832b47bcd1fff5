//! Cancelled operations and dropped queues: no range stays held.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use parext4::{DirectFile, Error, FileSize, IoRequest, ResearchOptions, SplitAt, Volume};

use super::test_volume::{WAIT, append, contents, harvest_all, read, write};
use testkit::device::GatedDevice;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};
use testkit::watchdog::Watchdog;

/// Makes a volume on a device with a gate.
fn gated(split_at: SplitAt) -> (Arc<parext4::MemDevice>, Arc<GatedDevice>, Volume) {
    let memory = Arc::new(Shape::new(16, 4096, true).make_poisoned());
    let gate = Arc::new(GatedDevice::new(Arc::clone(&memory) as _));
    let volume = Volume::open_device(
        Arc::clone(&gate) as _,
        &untimed().research(ResearchOptions::new().split_at(split_at)),
    )
    .unwrap();
    (memory, gate, volume)
}

/// Returns true if a write of `[0, 64 KiB)` completes.
fn is_free(file: &DirectFile) -> bool {
    let (file, (done, wait)) = (file.clone(), channel());
    std::thread::spawn(move || done.send(file.write_all_at(&[9; 64 << 10], 0)));
    wait.recv_timeout(Duration::from_mins(1)).is_ok_and(|result| result.is_ok())
}

#[test]
fn a_cancelled_parked_operation_releases_its_range() {
    let (memory, gate, volume) = gated(SplitAt::Completion);
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 64 << 10], 0).unwrap();
    let mut queue = volume.io_queue(4);
    gate.shut();
    std::thread::scope(|scope| {
        let (holder, gate) = (&file, &gate);
        scope.spawn(move || holder.write_all_at(&[2; 4096], 4096).unwrap());
        gate.wait_for(1);
        queue.submit(&file, write(&[3; 8192], 0), 7, WAIT);
        queue.submit(&file, write(&[4; 4096], 4096), 8, WAIT);
        queue.submit(&file, read(4096, 4096), 7, WAIT);
        assert!(!queue.cancel(1));
        assert!(queue.cancel(7));
        assert!(!queue.cancel(7));
        let mut done = Vec::new();
        queue.try_harvest(&mut done).unwrap();
        assert_eq!(done.len(), 2);
        for completion in &done {
            assert!(matches!(completion.result, Err(Error::Cancelled)) && completion.token == 7);
            assert!(completion.buf.is_some());
        }
        assert!(queue.cancel(8));
        queue.try_harvest(&mut done).unwrap();
        assert!(done.len() == 3 && queue.in_flight() == 0);
        gate.open();
    });
    // From here on no thread harvests the queue.
    assert!(is_free(&file), "a cancelled operation holds its range");
    assert!(contents(&file)[..64 << 10] == [9; 64 << 10]);
    drop((queue, file));
    volume.close().unwrap();
    assert_clean(&memory, "cancelled");
}

/// The cancelled append is not the only one, so its end is not computed from the size.
#[test]
fn a_cancelled_append_leaves_the_writes_that_wait_for_its_bytes() {
    let (memory, gate, volume) = gated(SplitAt::Completion);
    let file = volume.create_direct("/file").unwrap();
    let mut queue = volume.io_queue(8);
    gate.shut();
    queue.submit(&file, append(&[1; 512]), 1, WAIT);
    gate.wait_for(1);
    // Both wait for the first one, because the three share a block that is a hole.
    queue.submit(&file, append(&[2; 512]), 2, WAIT);
    queue.submit(&file, write(&[3; 512], 512), 3, WAIT);
    assert!(queue.cancel(2));
    queue.submit(&file, append(&[4; 512]), 4, WAIT);
    gate.open();
    let done = harvest_all(&mut queue);
    assert!(matches!(done[1].result, Err(Error::Cancelled)));
    let results = [0, 2, 3].map(|nth: usize| *done[nth].result.as_ref().unwrap());
    assert_eq!(results, [0, 512, 1024], "offset of an append, length of the write, offset of an append");
    assert_eq!(contents(&file), [[1; 512], [3; 512], [4; 512]].concat());
    drop((queue, file));
    volume.close().unwrap();
    assert_clean(&memory, "cancelled");
}

#[test]
fn a_queue_can_be_dropped_with_operations_that_wait_for_each_other() {
    for (holder_first, others, appends) in [(true, 3, true), (false, 3, true), (true, 3, false)] {
        let (memory, gate, volume) = gated(SplitAt::Completion);
        let file = volume.create_direct("/file").unwrap();
        file.write_all_at(&[1; 64 << 10], 0).unwrap();
        let watchdog = Watchdog::start("drop", 0, 1);
        let mut queue = volume.io_queue(4);
        gate.shut();
        std::thread::scope(|scope| {
            if holder_first {
                let file = &file;
                scope.spawn(move || file.write_all_at(&[2; 4096], 4096).unwrap());
                gate.wait_for(1);
            }
            for token in 0..others {
                // The first write is on the device unless another thread holds the range.
                queue.submit(&file, write(&[3; 8192], 0), token, WAIT);
                if appends {
                    queue.submit(&file, append(&[4; 4096]), token, WAIT);
                }
            }
            queue.submit(&file, IoRequest::SyncData, 99, WAIT);
            let gate = &gate;
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                gate.open();
            });
            watchdog.watch(0, || drop(queue));
        });
        assert!(is_free(&file), "a dropped queue holds a range");
        let size = file.size();
        assert_eq!(file.append(&[5; 512]).unwrap(), size, "a dropped queue left a claim");
        drop(file);
        volume.close().unwrap();
        assert_clean(&memory, "dropped");
    }
}

#[test]
fn operations_that_have_not_begun_on_the_device_are_cancelled() {
    for split_at in [SplitAt::Completion, SplitAt::Submission] {
        let (memory, gate, volume) = gated(split_at);
        let file = volume.create_direct("/file").unwrap();
        file.allocate(0..64 << 10, FileSize::Extend).unwrap();
        let free = volume.space();
        // One thread makes the calls, so the second operation waits for the first.
        let mut queue = volume.io_queue(1);
        gate.shut();
        queue.submit(&file, write(&[1; 512], 0), 1, WAIT);
        queue.submit(&file, write(&[2; 512], 8192), 2, WAIT);
        queue.submit(&file, append(&[3; 512]), 3, WAIT);
        gate.wait_for(1);
        assert!(!queue.cancel(1), "it is on the device");
        assert!(queue.cancel(2) && queue.cancel(3));
        gate.open();
        let done = harvest_all(&mut queue);
        assert_eq!(done[0].result.as_ref().unwrap(), &512);
        assert!(
            done[1..].iter().all(|done| matches!(done.result, Err(Error::Cancelled)) && done.buf.is_some())
        );
        assert_eq!(file.size(), 64 << 10);
        assert_eq!(file.append(&[4; 512]).unwrap(), 64 << 10);
        let seen = contents(&file);
        assert!(seen[..512] == [1; 512] && seen[512..64 << 10].iter().all(|&byte| byte == 0));
        // The token and the range are free again.
        queue.submit(&file, write(&[5; 512], 8192), 2, WAIT);
        assert_eq!(harvest_all(&mut queue)[0].result.as_ref().unwrap(), &512);
        assert!(volume.space().free_blocks >= free.free_blocks - 32);
        drop((queue, file));
        volume.close().unwrap();
        assert_clean(&memory, "cancelled");
    }
}
