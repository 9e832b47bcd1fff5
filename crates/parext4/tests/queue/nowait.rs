//! Operations with the option not to wait: a refused operation has no effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parext4::{DirectFile, Error, FileSize, IoQueue, IoRequest, Volume};

use super::test_volume::{
    Kind, NOWAIT, TestVolume, WAIT, append, at_once, contents, harvest_all, one, read, write,
};
use testkit::Image;
use testkit::device::GatedDevice;
use testkit::volume::DirectFiles as _;

/// Asserts that a request is refused without an effect.
fn refused(volume: &Volume, queue: &mut IoQueue, file: &DirectFile, request: IoRequest) {
    let before = (file.size(), volume.space(), file.stats().nowait_refusals);
    let what = format!("{request:?}");
    let bytes = match &request {
        IoRequest::Read { buf, .. } | IoRequest::Write { buf, .. } | IoRequest::Append { buf, .. } => {
            buf.to_vec()
        }
        _ => Vec::new(),
    };
    let done = one(queue, file, request, NOWAIT);
    assert!(matches!(done.result, Err(Error::WouldBlock(_))), "{what}: {:?}", done.result);
    assert!(done.buf.unwrap()[..] == bytes[..], "{what}: the buffer");
    let (size, space, refusals) = before;
    assert_eq!(
        (file.size(), volume.space(), file.stats().nowait_refusals),
        (size, space, refusals + 1),
        "{what}"
    );
}

/// Fills the volume. Writes of data leave 2 % of it free; all other blocks that are free are
/// reserved.
fn assert_nothing_is_reserved(volume: &Volume) {
    volume.sync().unwrap();
    let filler = volume.create_direct("/filler").unwrap();
    let (mut at, mut len) = (0, 1 << 20);
    while len >= 1024 {
        match filler.allocate(at..at + len, FileSize::Keep) {
            Ok(()) => at += len,
            Err(Error::NoSpace) => len /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    let space = volume.space();
    assert_eq!(space.free_blocks, space.blocks / 50, "no operation has reserved the blocks");
    drop(filler);
    volume.remove_file("/filler").unwrap();
}

#[test]
fn holes_and_requests_in_two_places_are_refused() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 4096);
        let volume = &test.volume;
        let file = volume.create_direct("/file").unwrap();
        let mut queue = volume.io_queue(4);
        file.write_all_at(&[1; 8192], 0).unwrap();
        file.allocate(8192..16384, FileSize::Extend).unwrap();
        file.set_len(65536).unwrap();
        // A hole, a hole after a block, two states, past the end, across the end.
        for (offset, len) in
            [(32768, 4096), (12288, 8192), (4096, 8192), (65536, 4096), (61440, 8192), (131072, 512)]
        {
            refused(volume, &mut queue, &file, write(&vec![9; len], offset));
        }
        refused(volume, &mut queue, &file, append(&[9; 512]));
        refused(volume, &mut queue, &file, read(12288, 4096));
        refused(volume, &mut queue, &file, read(8192, 12288));
        // In one block, written and not.
        assert_eq!(at_once(&mut queue, &file, write(&[2; 512], 4096)).unwrap(), 512);
        assert_eq!(at_once(&mut queue, &file, write(&[3; 8192], 0)).unwrap(), 8192);
        assert_eq!(at_once(&mut queue, &file, write(&[4; 512], 12288 + 512)).unwrap(), 512);
        assert_eq!(at_once(&mut queue, &file, read(8192, 0)).unwrap(), 8192);
        assert_eq!(at_once(&mut queue, &file, read(4096, 8192)).unwrap(), 4096);
        assert_eq!(at_once(&mut queue, &file, read(4096, 1 << 20)).unwrap(), 0);
        let mut want = vec![3; 8192];
        want.extend([0; 4096 + 512]);
        want.extend([4; 512]);
        want.resize(65536, 0);
        assert!(contents(&file) == want, "{kind:?}");
        assert_nothing_is_reserved(volume);
        // The refused operations do not affect appends.
        assert_eq!(file.append(&[5; 512]).unwrap(), 65536);
        drop((queue, file));
        test.close();
    }
}

#[test]
fn appends_continue_into_preallocated_blocks() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 1024);
        let volume = &test.volume;
        let file = volume.create_direct("/file").unwrap();
        let mut queue = volume.io_queue(4);
        refused(volume, &mut queue, &file, append(&[1; 1024]));
        for _ in 0..40 {
            file.append(&[1; 1024]).unwrap();
        }
        let (mut end, mut accepted) = (file.size(), 0);
        for number in 0..200_u64 {
            match at_once(&mut queue, &file, append(&[2; 512])) {
                Ok(offset) => {
                    assert_eq!(offset, end);
                    accepted += 1;
                }
                Err(Error::WouldBlock(_)) => {
                    assert_eq!(file.size(), end);
                    let again = if number % 2 == 0 {
                        one(&mut queue, &file, append(&[3; 512]), WAIT).result
                    } else {
                        file.append(&[3; 512])
                    };
                    assert_eq!(again.unwrap(), end, "a refused append left a gap");
                }
                Err(error) => panic!("{error}"),
            }
            end += 512;
        }
        assert!(accepted > 100, "{kind:?}: {accepted} appends into preallocated blocks");
        // Writes that extend the file, too.
        assert_eq!(
            at_once(&mut queue, &file, write(&[4; 512], end)).is_ok(),
            at_once(&mut queue, &file, read(512, end)).unwrap() == 512
        );
        assert!(contents(&file).iter().all(|&byte| byte != 0), "{kind:?}: a gap");
        assert_nothing_is_reserved(volume);
        drop((queue, file));
        test.close();
    }
}

#[test]
fn a_range_that_is_held_is_refused() {
    let mut gate = None;
    let test = TestVolume::under(4096, |memory| {
        let device = Arc::new(GatedDevice::new(memory));
        gate = Some(Arc::clone(&device));
        device
    });
    let (gate, volume) = (gate.unwrap(), &test.volume);
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 32768], 0).unwrap();
    // Preallocated blocks past the end, so that only the range makes the operation wait.
    file.allocate(32768..65536, FileSize::Keep).unwrap();
    let mut queue = volume.io_queue(4);
    gate.shut();
    std::thread::scope(|scope| {
        let held = &file;
        scope.spawn(move || held.write_all_at(&[2; 8192], 28672).unwrap());
        gate.wait_for(1);
        refused(volume, &mut queue, &file, write(&[9; 4096], 28672));
        refused(volume, &mut queue, &file, read(4096, 28672));
        // It overlaps an announced write, so the future end is unknown.
        refused(volume, &mut queue, &file, write(&[9; 4096], 32768));
        gate.open();
    });
    assert_eq!(file.size(), 36864);
    assert_eq!(file.append(&[3; 512]).unwrap(), 36864);
    assert_eq!(at_once(&mut queue, &file, append(&[4; 512])).unwrap(), 37376);
    // Operations in flight in the queue itself count, too.
    gate.shut();
    queue.submit(&file, write(&[5; 4096], 0), 1, WAIT);
    queue.submit(&file, write(&[6; 4096], 0), 2, NOWAIT);
    queue.submit(&file, write(&[7; 4096], 4096), 3, NOWAIT);
    gate.open();
    let done = harvest_all(&mut queue);
    assert!(done[0].result.is_ok() && done[2].result.is_ok());
    assert!(matches!(done[1].result, Err(Error::WouldBlock(_))));
    assert!(contents(&file)[..8192] == [[5; 4096], [7; 4096]].concat());
    drop((queue, file));
    test.close();
}

/// Makes an image whose file ends over stale bytes, and one whose extent map is not loaded.
#[test]
fn stale_bytes_past_the_end_and_unloaded_maps_are_refused() {
    let Some(image) = Image::mke2fs(16, &["-b", "4096"]) else { return };
    let volume = image.open();
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    drop(file);
    volume.close().unwrap();
    image.debugfs_write("sif /file size 4708");

    let volume = image.open();
    let file = volume.direct_file("/file").unwrap();
    let mut queue = volume.io_queue(4);
    refused(&volume, &mut queue, &file, read(4096, 0));
    refused(&volume, &mut queue, &file, write(&[2; 512], 0));
    refused(&volume, &mut queue, &file, append(&[2; 512]));
    let done = one(
        &mut queue,
        &file,
        IoRequest::Read { buf: super::test_volume::buffer(&[0; 1024]), len: 612, offset: 4096 },
        WAIT,
    );
    assert_eq!(done.result.unwrap(), 612);
    assert!(done.buf.unwrap()[612..].iter().all(|&byte| byte == 0), "stale bytes past the end");
    file.set_len(4608).unwrap();
    drop((queue, file));
    volume.close().unwrap();
    image.fsck();
    image.debugfs_write("sif /file size 5120");

    let volume = image.open();
    let file = volume.direct_file("/file").unwrap();
    let mut queue = volume.io_queue(4);
    one(&mut queue, &file, read(4096, 0), WAIT).result.unwrap();
    refused(&volume, &mut queue, &file, append(&[2; 512]));
    refused(&volume, &mut queue, &file, write(&[2; 512], 5120));
    assert_eq!(one(&mut queue, &file, append(&[3; 512]), WAIT).result.unwrap(), 5120);
    assert_eq!(at_once(&mut queue, &file, append(&[4; 512])).unwrap(), 5632);
    file.set_len(8192).unwrap();
    assert!(contents(&file)[6144..] == [0; 2048]);
    drop((queue, file));
    volume.close().unwrap();
    image.fsck();
}

/// Refused writes that extend the file announce nothing: concurrent appends have no gaps between
/// them, whenever the refusals occur.
#[test]
fn refused_writes_past_the_end_move_no_append() {
    let test = TestVolume::new(Kind::Inline, 4096);
    let file = test.volume.create_direct("/file").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (file, stop, volume) = (&file, &stop, &test.volume);
            scope.spawn(move || {
                let mut queue = volume.io_queue(4);
                while !stop.load(Ordering::Relaxed) {
                    assert!(at_once(&mut queue, file, write(&[9; 512], 8 << 20)).is_err());
                    assert!(at_once(&mut queue, file, append(&[9; 1 << 20])).is_err());
                }
            });
        }
        for number in 0..4000 {
            assert_eq!(file.append(&[1; 512]).unwrap(), number * 512, "a gap");
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(file);
    test.close();
}
