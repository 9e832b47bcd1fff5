//! Buffered I/O against a model of bytes, mixed with direct I/O, on volumes that are checked
//! afterwards.

mod background;
mod batches;
mod errors;
mod full;
mod objects;
mod syncs;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4::device::{FaultDevice, FaultKind, FaultPlan};
use parext4::server::{PageFault, ServerFile};
use parext4::{
    Atomicity, Device, Error, File, FileSize, MemDevice, OpenOptions, Policy, ResearchOptions, SyncMode,
    Volume, VolumeOptions,
};
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, recover, untimed};
use testkit::{Image, settings};

/// Opens a volume with a cache so small that pages are evicted, and no background write-back.
fn small() -> VolumeOptions {
    untimed().cache_bytes(1 << 20).write_back_interval(None)
}

fn open(device: &Arc<MemDevice>, options: &VolumeOptions) -> Volume {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, options).unwrap()
}

fn create(volume: &Volume, path: &str) -> File {
    volume.create_direct(path).unwrap().buffered().unwrap()
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xee; usize::try_from(file.size()).unwrap() + 10];
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

fn random(rng: &mut Rng, len: usize) -> Vec<u8> {
    let byte = (rng.next() as u8) | 1;
    (0..len).map(|at| byte.wrapping_add((at / 97) as u8)).collect()
}

/// Writes to the file and to its model.
fn put(model: &mut Vec<u8>, data: &[u8], offset: usize) {
    if model.len() < offset + data.len() {
        model.resize(offset + data.len(), 0);
    }
    model[offset..offset + data.len()].copy_from_slice(data);
}

/// Asserts that bytes match; reports the first difference.
fn same(seen: &[u8], want: &[u8], what: &str) {
    let differs = seen.iter().zip(want).position(|(seen, want)| seen != want);
    if let Some(at) = differs {
        let end = |bytes: &[u8]| bytes[at..bytes.len().min(at + 8)].to_vec();
        panic!("{what}: byte {at} of {}: {:x?}, not {:x?}", want.len(), end(seen), end(want));
    }
    assert_eq!(seen.len(), want.len(), "{what}");
}

const MOST: u64 = 6 << 20;

/// Runs one step on the file and on the model.
fn step(rng: &mut Rng, volume: &Volume, file: &File, model: &mut Vec<u8>) {
    let offset = rng.below(MOST);
    let at = usize::try_from(offset).unwrap();
    let len = usize::try_from(rng.log_uniform(300_000)).unwrap();
    let sectors = |len: usize| len.next_multiple_of(512);
    let what = rng.below(20);
    let before = model.len();
    match what {
        0..=5 => {
            let data = random(rng, len);
            file.write_all_at(&data, offset).unwrap();
            put(model, &data, at);
        }
        6..=9 => {
            let mut bytes = vec![0xee; len];
            let count = file.read_at(&mut bytes, offset).unwrap();
            let want = model.get(at..(at + len).min(model.len())).unwrap_or_default();
            same(&bytes[..count], want, &format!("read at {offset}"));
        }
        10 | 11 => {
            let data = random(rng, len.min(9000));
            assert_eq!(file.append(&data).unwrap(), model.len() as u64);
            model.extend(&data);
        }
        12 | 13 => {
            let (offset, at) = (offset / 512 * 512, at / 512 * 512);
            let data = random(rng, sectors(len));
            file.direct().write_all_at(&data, offset).unwrap();
            put(model, &data, at);
        }
        14 | 15 => {
            let (offset, at) = (offset / 512 * 512, at / 512 * 512);
            let mut bytes = vec![0xee; sectors(len)];
            let count = file.direct().read_at(&mut bytes, offset).unwrap();
            let want = model.get(at..(at + sectors(len)).min(model.len())).unwrap_or_default();
            same(&bytes[..count], want, &format!("direct read at {offset}"));
        }
        16 => {
            let size = if rng.chance(50) { rng.below(model.len() as u64 + 1) } else { offset };
            file.set_len(size).unwrap();
            model.resize(usize::try_from(size).unwrap(), 0);
        }
        17 => file.allocate(offset..offset + len as u64, FileSize::Keep).unwrap(),
        18 => match rng.below(3) {
            0 => file.sync_data().unwrap(),
            1 => file.sync_range(offset..offset + len as u64).unwrap(),
            _ => volume.sync().unwrap(),
        },
        _ => {
            let data = random(rng, len);
            let (a, b) = data.split_at(len / 3);
            file.write_all_vectored_at(&[IoSlice::new(a), IoSlice::new(b)], offset).unwrap();
            put(model, &data, at);
            let (mut first, mut second) = (vec![0; len / 2], vec![0; len - len / 2]);
            let bufs = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            assert_eq!(file.read_vectored_at(bufs, offset).unwrap(), len);
            first.extend(second);
            assert!(first == data);
        }
    }
    assert_eq!(file.size(), model.len() as u64, "step {what} {offset} {len} before {before}");
}

#[test]
fn every_alignment_agrees_with_a_model() {
    let seed = settings::seed("every_alignment_agrees_with_a_model");
    for (index, block_size) in [1024, 2048, 4096, 8192, 65536].into_iter().enumerate() {
        for policy in Policy::ALL {
            let device = Arc::new(Shape::new(48, block_size, true).make_poisoned());
            let options = small().research(ResearchOptions::new().policy(policy));
            let volume = open(&device, &options);
            let (file, mut model) = (create(&volume, "/f"), Vec::new());
            let free = volume.space().free_blocks;
            let mut rng = Rng::new(seed, index as u64);
            for _ in 0..120 {
                step(&mut rng, &volume, &file, &mut model);
            }
            assert!(read_all(&file) == model, "{block_size} {policy}");
            file.set_len(0).unwrap();
            model.clear();
            volume.sync().unwrap();
            assert_eq!(volume.space().free_blocks, free, "all space is free again");
            for _ in 0..60 {
                step(&mut rng, &volume, &file, &mut model);
            }
            drop(file);
            // Closing writes back the dirty pages.
            drop(volume);
            assert_clean(&device, &format!("{block_size} {policy}"));
            let volume = open(&device, &options);
            let direct = volume.direct_file("/f").unwrap();
            let mut bytes = vec![0; model.len().next_multiple_of(512)];
            assert_eq!(direct.read_at(&mut bytes, 0).unwrap(), model.len());
            assert!(bytes[..model.len()] == model[..], "the contents on the device");
        }
    }
}

#[test]
fn the_kernel_and_debugfs_read_the_written_data() {
    let Some(image) = Image::mke2fs(32, &["-b", "1024"]) else { return };
    let mut model = Vec::new();
    {
        let volume = image.open();
        let file = create(&volume, "/f");
        let mut rng = Rng::new(1, 1);
        for _ in 0..200 {
            let (offset, len) = (rng.below(1 << 20), rng.log_uniform(20_000));
            let data = random(&mut rng, usize::try_from(len).unwrap());
            file.write_all_at(&data, offset).unwrap();
            put(&mut model, &data, usize::try_from(offset).unwrap());
        }
        drop(file);
        volume.close().unwrap();
    }
    image.fsck();
    assert!(
        image.debugfs("stat /f").is_empty()
            || image.debugfs("stat /f").contains(&format!("Size: {}", model.len()))
    );
    image.with_kernel(|root| assert!(std::fs::read(root.join("f")).unwrap() == model));
}

#[test]
fn space_runs_out_when_data_is_written_and_never_when_it_is_written_back() {
    for block_size in [1024, 4096] {
        let device = Arc::new(Shape::new(12, block_size, true).make());
        let options = untimed().cache_bytes(64 << 20).write_back_interval(None);
        let volume = open(&device, &options);
        let files: Vec<_> = (0..4).map(|n| create(&volume, &format!("/{n}"))).collect();
        let free = volume.space().free_blocks;
        // Every second block, so that each becomes an extent of its own.
        let (mut taken, stride) = (0, 2 * u64::from(block_size));
        'full: for nth in 0.. {
            for file in &files {
                match file.write_all_at(&[7; 100], nth * stride) {
                    Ok(()) => taken += 1,
                    Err(Error::NoSpace) => break 'full,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(taken > free * 8 / 10, "{taken} blocks of {free}");
        assert!(volume.space().free_blocks < free / 10, "reserved space counts as used");
        for file in &files {
            file.sync_data().unwrap();
            let mut bytes = [0; 100];
            file.read_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, [7; 100]);
        }
        drop(files);
        volume.close().unwrap();
        assert_clean(&device, "full");
    }
}

/// Allocates all space to another file.
fn fill(volume: &Volume) {
    let ballast = volume.create_direct("/ballast").unwrap();
    for blocks in [1024, 64, 4, 1] {
        while ballast.allocate(ballast.size()..ballast.size() + blocks * 1024, FileSize::Extend).is_ok() {}
    }
}

/// Blocks are allocated before anything is zeroed.
#[test]
fn written_data_stays_if_there_is_no_space_to_zero_it() {
    let device = Arc::new(Shape::new(8, 1024, true).make());
    let volume = open(&device, &small());
    let file = create(&volume, "/f");
    file.direct().write_all_at(&[1; 8192], 0).unwrap();
    file.set_len(1 << 20).unwrap();
    fill(&volume);
    file.write_all_at(&[2; 8192], 0).unwrap();
    let zeroed = file.zero_range(0..1 << 20, FileSize::Extend);
    assert!(matches!(zeroed, Err(Error::NoSpace)), "{zeroed:?}");
    let mut seen = vec![0; 8192];
    file.direct().read_at(&mut seen, 0).unwrap();
    same(&seen, &[2; 8192], "past the cache");
    same(&read_all(&file)[..8192], &[2; 8192], "through the cache");
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "full");
}

/// Part of the write is visible by then, because it does not fit the cache. It goes on when a
/// commit has freed space.
#[test]
fn an_append_that_waits_for_space_is_there_once() {
    let device = Arc::new(Shape::new(16, 1024, true).make());
    let volume = open(&device, &small());
    for (name, mib) in [("/old", 4), ("/spare", 2)] {
        volume.create_direct(name).unwrap().allocate(0..mib << 20, FileSize::Extend).unwrap();
    }
    fill(&volume);
    volume.remove_file("/spare").unwrap();
    volume.sync().unwrap();
    let file = create(&volume, "/f");
    volume.remove_file("/old").unwrap();
    let data = random(&mut Rng::new(7, 0), 3 << 20);
    assert_eq!(file.append(&data).unwrap(), 0);
    same(&read_all(&file), &data, "once");
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "full");
}

#[test]
fn reserved_space_is_released_without_being_written() {
    let device = Arc::new(Shape::new(16, 1024, true).make());
    let volume = open(&device, &small());
    let free = || volume.space().free_blocks;
    let before = free();
    let file = create(&volume, "/f");
    let made = free();
    file.write_all_at(&vec![1; 100_000], 5000).unwrap();
    assert!(made - free() >= 98, "reserved at once");
    file.set_len(0).unwrap();
    assert_eq!(free(), made);
    file.write_all_at(&vec![1; 100_000], 5000).unwrap();
    // Direct writes over the same data allocate its blocks, so no reservation stays.
    file.direct().write_all_at(&vec![2; 102_400], 4096).unwrap();
    volume.sync().unwrap();
    let used = made - free();
    assert!((100..=101 + 3).contains(&used), "{used} blocks");
    file.write_all_at(&vec![1; 100_000], 1 << 20).unwrap();
    volume.remove_file("/f").unwrap();
    drop(file);
    volume.sync().unwrap();
    assert_eq!(free(), before);
    volume.close().unwrap();
    assert_clean(&device, "deleted");
}

#[test]
fn a_write_that_is_to_be_durable_is() {
    for (sync, append) in [(SyncMode::Data, false), (SyncMode::All, false), (SyncMode::Data, true)] {
        let device = Arc::new(Shape::new(16, 1024, true).make_poisoned());
        let volume = open(&device, &small());
        volume.create_direct("/f").unwrap();
        volume.sync().unwrap();
        let options = OpenOptions::read_write().sync(sync).append(append);
        let file = volume.open_file("/f", &options).unwrap();
        for n in 0..40_u8 {
            file.write_all_at(&[n + 1; 700], u64::from(n) * 700).unwrap();
            let crashed = Arc::new(device.fork());
            recover(&crashed);
            let after = open(&crashed, &small());
            let after = after.direct_file("/f").unwrap().buffered().unwrap();
            let mut bytes = [0; 700];
            assert_eq!(after.read_at(&mut bytes, u64::from(n) * 700).unwrap(), 700);
            assert_eq!(bytes, [n + 1; 700]);
        }
    }
}

#[test]
fn a_long_file_is_synced_and_read_ahead() {
    let device = Arc::new(Shape::new(48, 4096, true).make_poisoned());
    let options = untimed().cache_bytes(64 << 20);
    let data = random(&mut Rng::new(7, 0), (24 << 20) + 1234);
    let volume = open(&device, &options);
    let file = create(&volume, "/f");
    for (nth, piece) in data.chunks(1 << 20).enumerate() {
        file.write_all_at(piece, (nth << 20) as u64).unwrap();
    }
    file.sync_all().unwrap();
    let crashed = Arc::new(device.fork());
    // Other threads count the pages that they wrote back a moment later.
    while volume.cache_stats().dirty > 0 {
        std::thread::yield_now();
    }
    drop((file, volume));
    recover(&crashed);
    let mut seen = vec![0; data.len().next_multiple_of(512)];
    let count = open(&crashed, &options).direct_file("/f").unwrap().read_at(&mut seen, 0).unwrap();
    same(&seen[..count], &data, "after a crash following the sync");

    let volume = open(&device, &options);
    let file = volume.direct_file("/f").unwrap().buffered().unwrap();
    let mut seen = vec![0; data.len()];
    for (nth, piece) in seen.chunks_mut(1 << 20).enumerate() {
        assert_eq!(file.read_at(piece, (nth << 20) as u64).unwrap(), piece.len());
    }
    same(&seen, &data, "read in sequence");
    drop((file, volume));
    assert_clean(&device, "a long file");
}

#[test]
fn the_size_on_the_device_follows_the_data() {
    let device = Arc::new(Shape::new(16, 1024, true).make_poisoned());
    let volume = open(&device, &small());
    let file = create(&volume, "/f");
    file.write_all_at(&[1; 3000], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[2; 3000], 3000).unwrap();
    assert_eq!(file.size(), 6000);
    // A commit for another reason.
    volume.create_direct("/g").unwrap().sync_all().unwrap();
    let crashed = Arc::new(device.fork());
    recover(&crashed);
    assert_eq!(open(&crashed, &small()).direct_file("/f").unwrap().size(), 3000);
    file.sync_range(3000..3001).unwrap();
    let crashed = Arc::new(device.fork());
    recover(&crashed);
    let after = open(&crashed, &small()).direct_file("/f").unwrap().buffered().unwrap();
    let bytes = read_all(&after);
    assert!(bytes.len() >= 4096 && bytes[..3000] == [1; 3000] && bytes[3000..4096].iter().all(|&b| b == 2));
}

#[test]
fn every_handle_reports_a_failed_write_back_once() {
    let memory = Arc::new(Shape::new(16, 4096, true).make());
    let device = Arc::new(FaultDevice::new(memory, FaultPlan::default()));
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &small()).unwrap();
    let file = create(&volume, "/f");
    file.sync_all().unwrap();
    let (second, third) = (file.clone(), file.clone());
    file.write_all_at(&[1; 5000], 0).unwrap();
    device.arm(FaultPlan::at(1).kind(FaultKind::Writes).sticky(true));
    assert!(matches!(file.sync_data(), Err(Error::Device { .. })));
    assert!(matches!(file.sync_data(), Err(Error::Stopped(_))), "reported once; the volume has stopped");
    assert!(matches!(second.sync_all(), Err(Error::Device { .. })));
    assert!(matches!(third.sync_range(0..1), Err(Error::Device { .. })));
    assert!(matches!(third.sync_range(0..1), Err(Error::Stopped(_))));
    assert!(matches!(file.write_all_at(&[1], 0), Err(Error::Stopped(_))));
    let mut byte = [0];
    assert_eq!((file.read_at(&mut byte, 4999).unwrap(), byte), (1, [1]), "pages in memory can be read");
}

#[test]
fn a_read_waits_for_less_where_pages_are_enough() {
    let device = Arc::new(Shape::new(16, 4096, true).make());
    let volume = open(&device, &small());
    let options = OpenOptions::read_write().create_new(true).atomicity(Atomicity::Page);
    let file = volume.open_file("/f", &options).unwrap();
    let data: Vec<u8> = (0..50_000_u32).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&data, 123).unwrap();
    let mut bytes = vec![0; 60_000];
    assert_eq!(file.read_at(&mut bytes, 123).unwrap(), 50_000);
    assert!(bytes[..50_000] == data[..]);
    let mut halves = (vec![0; 10_000], vec![0; 10_001]);
    let bufs = &mut [IoSliceMut::new(&mut halves.0), IoSliceMut::new(&mut halves.1)];
    assert_eq!(file.read_vectored_at(bufs, 123).unwrap(), 20_001);
    assert!(halves.0 == data[..10_000] && halves.1 == data[10_000..20_001]);
}

#[test]
fn untorn_writes_are_one_request_or_an_error() {
    let device = Arc::new(Shape::new(16, 1024, true).make());
    let volume = open(&device, &small());
    let file = create(&volume, "/f");
    let invalid =
        |result: parext4::Result<()>| assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
    invalid(file.write_untorn(&[1; 1000], 0));
    invalid(file.write_untorn(&[1; 3072], 0));
    invalid(file.write_untorn(&[1; 2048], 1024));
    invalid(file.write_untorn(&[1; 2048], 0));
    file.write_untorn(&[1; 1024], 3072).unwrap();
    assert_eq!(file.size(), 4096);
    file.allocate(0..1 << 20, FileSize::Extend).unwrap();
    file.write_all_at(&[9; 5000], 0).unwrap();
    let place = file.device_range(0).unwrap().unwrap();
    let fits = (place.start / 1024).is_multiple_of(4);
    match file.write_untorn(&[2; 4096], 0) {
        Ok(()) if fits => assert_eq!(read_all(&file)[..5000], [[2; 4096].as_slice(), &[9; 904]].concat()),
        Err(Error::Invalid(_)) => assert_eq!(read_all(&file)[..5000], [9; 5000]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_fault_brings_a_page_in_and_makes_it_dirty() {
    let device = Arc::new(Shape::new(16, 1024, true).make());
    let volume = open(&device, &small());
    let file = create(&volume, "/f");
    file.set_len(10_000).unwrap();
    let (free, hits) = (volume.space().free_blocks, volume.cache_stats().hits);
    file.fault(5000, PageFault::Load).unwrap();
    assert_eq!(volume.space().free_blocks, free);
    let mut byte = [1];
    file.read_at(&mut byte, 5000).unwrap();
    assert!(byte == [0] && volume.cache_stats().hits > hits);
    file.fault(5000, PageFault::Store).unwrap();
    file.fault(9000, PageFault::Store).unwrap();
    // Four blocks, two for the part of the last page within the file, and one for the tree.
    assert_eq!(free - volume.space().free_blocks, 4 + 2 + 1);
    for (offset, write) in [(10_000, true), (10_000, false), (u64::MAX, true), (u64::MAX, false)] {
        let fault = file.fault(offset, if write { PageFault::Store } else { PageFault::Load });
        assert!(matches!(fault, Err(Error::Invalid(_))), "{offset} {write}: {fault:?}");
    }
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "faults");
}
