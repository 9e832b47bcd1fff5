//! Buffered writes on volumes that are nearly full.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, thread};

use parext4::server::{ServerFile, SpaceWait};
use parext4::{
    Device, Error, File, FileSize, OpenOptions, Policy, ResearchOptions, SetAttributes, Timestamp, Volume,
};
use testkit::device::{HookedDevice, Hooks};
use testkit::full_volume::{BLOCK, FullVolume, SMALL};
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

use super::{create, open, random, read_all, same};

/// Blocks of a volume of 16 MiB that are kept for metadata, of 1 KiB each.
const POOL: u64 = 16384 / 50;

/// The first part is visible and dirty when the write-back that makes room for more finds no block
/// for the extent tree.
#[test]
fn an_append_whose_write_back_finds_no_space_is_there_once() {
    for policy in Policy::ALL {
        let options = untimed()
            .cache_bytes(1 << 20)
            .dirty_limit_bytes(64 << 10)
            .write_back_interval(None)
            .research(ResearchOptions::new().policy(policy));
        let full = FullVolume::new(SMALL, &options, 0, 0);
        let file = full.volume.direct_file("/behind").unwrap().buffered().unwrap();
        // Three extents. A write that begins within the last one makes five of them, which the
        // inode has no room for.
        file.direct().write_all_at(&[1; 1024], 2 * BLOCK).unwrap();
        file.set_len(12 * BLOCK).unwrap();
        let before = read_all(&file);
        let data = random(&mut Rng::new(8, 0), 300 << 10);
        let appended = file.append(&data);
        assert!(matches!(appended, Err(Error::NoSpace)), "{appended:?}");
        let expected = [before, data].concat();
        let seen = read_all(&file);
        assert!(seen.len() > 12 << 10, "a part is visible");
        same(&seen, &expected[..seen.len()], "after the failure");
        full.volume.remove_file("/filler").unwrap();
        full.volume.sync().unwrap();
        same(&read_all(&file), &expected[..seen.len()], "with space again");
        drop(file);
        full.close("after the append");
    }
}

/// Appends records of numbered sectors until none fits. The write-back that makes room has part of
/// a record visible when space runs out.
#[test]
fn appends_until_space_runs_out_are_stored_once() {
    let device = Arc::new(Shape::new(16, 1024, true).make());
    let options = untimed().cache_bytes(1 << 20).dirty_limit_bytes(64 << 10).write_back_interval(None);
    let volume = open(&device, &options);
    let file = create(&volume, "/f");
    let (mut record, mut stored, mut was_cut) = (0, Vec::new(), false);
    loop {
        let sectors = (0..512_u32).flat_map(|nth| (record * 512 + nth).to_le_bytes().repeat(128));
        let data: Vec<u8> = sectors.collect();
        let long_ago = Timestamp { seconds: 1, nanoseconds: 0 };
        file.inode_ref().set_attributes(&SetAttributes::new().mtime(long_ago)).unwrap();
        match file.append_partial(&data, &mut SpaceWait::new()) {
            Ok(appended) => {
                assert_ne!(file.inode_ref().metadata().mtime, long_ago, "of {appended} bytes");
                stored.extend(&data[..appended]);
                was_cut |= appended < data.len();
            }
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(file.size(), stored.len() as u64, "the rest of the record is not in the file");
        record += 1;
    }
    assert!(was_cut, "no record was stored in part");
    same(&read_all(&file), &stored, "the parts that the calls have stored");
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "full");
}

/// Reads a file when the device is flushed.
#[derive(Debug, Default)]
struct ReadsAtFlush {
    reader: Mutex<Option<thread::JoinHandle<Vec<u8>>>>,
    file: Mutex<Option<File>>,
}

impl Hooks for ReadsAtFlush {
    fn flush(&self, inner: &dyn Device) -> io::Result<()> {
        if let Some(file) = self.file.lock().unwrap().take() {
            let reader = thread::spawn(move || read_all(&file));
            // Long enough for a read that nothing holds up.
            thread::sleep(Duration::from_millis(100));
            *self.reader.lock().unwrap() = Some(reader);
        }
        inner.flush()
    }
}

/// The first page of a write has its block, and the second one finds no space until the blocks of a
/// deleted file are committed.
#[test]
fn no_read_sees_half_of_a_write_that_waits_for_space() {
    let memory = Arc::new(Shape::new(16, 1024, true).make());
    let device = Arc::new(HookedDevice::new(memory, ReadsAtFlush::default()));
    let options = untimed().write_back_interval(None);
    let volume = Volume::open_device(Arc::clone(&device) as _, &options).unwrap();
    let file = create(&volume, "/f");
    file.direct().write_all_at(&[1; 4096], 0).unwrap();
    file.set_len(8192).unwrap();
    let ballast = volume.create_direct("/ballast").unwrap();
    ballast.allocate(0..64 << 10, FileSize::Extend).unwrap();
    let rest = volume.create_direct("/rest").unwrap();
    rest.allocate(0..(volume.space().free_blocks - POOL) * BLOCK, FileSize::Extend).unwrap();
    volume.sync().unwrap();
    drop(ballast);
    volume.remove_file("/ballast").unwrap();
    *device.hooks().file.lock().unwrap() = Some(volume.open_file("/f", &OpenOptions::read_write()).unwrap());
    file.write_all_at(&[2; 8192], 0).unwrap();
    let seen = device.hooks().reader.lock().unwrap().take().expect("the write commits").join().unwrap();
    assert!(seen == [2; 8192] || seen == [vec![1; 4096], vec![0; 4096]].concat(), "half a write");
    drop((file, rest));
    volume.close().unwrap();
    assert_clean(device.inner(), "full");
}

/// A write that fails has dirtied pages over blocks that are preallocated. The next attempt frees
/// these blocks.
#[test]
fn preallocated_blocks_are_not_counted_twice() {
    for begin in [404 << 10, (404 << 10) + 300] {
        let device = Arc::new(Shape::new(16, 1024, true).make());
        let volume = open(&device, &untimed().write_back_interval(None));
        let free = || volume.space().free_blocks;
        let file = create(&volume, "/f");
        file.direct().write_all_at(&vec![1; 400 << 10], 0).unwrap();
        let before = free();
        file.direct().write_all_at(&[1; 4096], 400 << 10).unwrap();
        let preallocated = before - free() - 4;
        assert!(preallocated >= 100, "{preallocated} blocks");
        let ballast = volume.create_direct("/ballast").unwrap();
        ballast.allocate(0..(free() - POOL - 200) * BLOCK, FileSize::Extend).unwrap();
        // Without the preallocated blocks, more than is free, and less than that and these blocks.
        let len = usize::try_from((preallocated + 200 + 50) * BLOCK).unwrap();
        let refused = file.write_all_at(&vec![2; len], begin);
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        let data = vec![3; 100 << 10];
        file.write_all_at(&data, begin).unwrap();
        volume.sync().unwrap();
        same(&read_all(&file)[usize::try_from(begin).unwrap()..], &data, "the write that fits");
        drop((file, ballast));
        volume.close().unwrap();
        assert_clean(&device, "full");
    }
}
