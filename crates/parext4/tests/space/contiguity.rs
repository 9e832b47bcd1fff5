//! Files that grow in parallel are contiguous: by appends of many threads to files of their own or
//! to one file, and by fills in random order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parext4::{Device, DirectFile, MemDevice, ResearchOptions, Volume, VolumeOptions};

use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

const WRITERS: usize = 32;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn open(device: &Arc<MemDevice>) -> Volume {
    open_with(device, &untimed())
}

fn open_with(device: &Arc<MemDevice>, options: &VolumeOptions) -> Volume {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, options).expect("the volume opens")
}

/// Returns the number of contiguous runs of the file, however its extents describe them.
fn pieces(file: &DirectFile) -> u64 {
    let (mut at, mut pieces) = (0, 0);
    while at < file.size() {
        let place = file.device_range(at).expect("a map").expect("no holes");
        at += place.end - place.start;
        pieces += 1;
    }
    pieces
}

/// Returns the minimum number of runs for `bytes` bytes, as one extent maps 128 MiB.
fn ideal(bytes: u64) -> u64 {
    bytes.div_ceil(128 * MIB)
}

/// Asserts that files have at most 1.1 times as many runs as they need.
fn assert_together(files: &[DirectFile], what: &str) {
    let found: u64 = files.iter().map(pieces).sum();
    let needed: u64 = files.iter().map(|file| ideal(file.size())).sum();
    eprintln!("{what}: {found} pieces, {needed} needed");
    assert!(found * 10 <= needed * 11, "{what}: {found} pieces, {needed} needed");
}

/// Returns bytes that identify their offset and file.
fn stamped(request: u64, writer: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(request).unwrap()];
    for sector in bytes.chunks_mut(512) {
        sector[..8].copy_from_slice(&writer.to_le_bytes());
    }
    bytes
}

/// Closes the volume, runs e2fsck, opens it again, and checks the runs and the contents.
fn close_and_check(device: &Arc<MemDevice>, volume: Volume, paths: &[String], what: &str) {
    volume.close().expect("the volume closes");
    assert_clean(device, what);
    let volume = open(device);
    let files: Vec<DirectFile> = paths.iter().map(|path| volume.direct_file(path).expect("a file")).collect();
    assert_together(&files, &format!("{what}, opened again"));
}

/// Every writer appends `each` bytes to a file of its own, `request` at a time, by `write`.
fn grow_files(mib: u64, each: u64, request: u64, what: &str, write: impl Fn(&DirectFile, &[u8]) + Sync) {
    let device = Arc::new(Shape::new(mib, 4096, true).make());
    let volume = open(&device);
    let paths: Vec<String> = (0..WRITERS).map(|writer| format!("/f{writer}")).collect();
    let files: Vec<DirectFile> =
        paths.iter().map(|path| volume.create_direct(path).expect("create")).collect();
    std::thread::scope(|scope| {
        for (writer, file) in (0..).zip(&files) {
            let write = &write;
            scope.spawn(move || {
                let bytes = stamped(request, writer);
                (0..each / request).for_each(|_| write(file, &bytes));
            });
        }
    });
    assert_together(&files, what);
    for (writer, file) in (0_u64..).zip(&files) {
        let mut sector = [0; 512];
        file.read_at(&mut sector, each - 512).expect("read");
        assert_eq!(sector[..8], writer.to_le_bytes(), "{what}: another file's data");
    }
    drop(files);
    close_and_check(&device, volume, &paths, what);
}

fn append(file: &DirectFile, bytes: &[u8]) {
    file.append(bytes).expect("append");
}

#[test]
fn files_appended_in_parallel_are_contiguous_4k() {
    grow_files(1024, 4 * MIB, 4 * KIB, "32 files, appends of 4k", append);
}

#[test]
fn files_appended_in_parallel_are_contiguous_128k() {
    grow_files(1536, 16 * MIB, 128 * KIB, "32 files, appends of 128k", append);
}

#[test]
fn files_appended_in_parallel_are_contiguous_2m() {
    grow_files(1536, 16 * MIB, 2 * MIB, "32 files, appends of 2M", append);
}

#[test]
fn files_extended_in_parallel_are_contiguous() {
    let write = |file: &DirectFile, bytes: &[u8]| file.write_all_at(bytes, file.size()).expect("write");
    grow_files(1536, 16 * MIB, 128 * KIB, "32 files, writes of 128k", write);
}

/// All writers append to one file, `request` bytes at a time, `bytes` in all.
fn grow_one(mib: u64, bytes: u64, request: u64, what: &str) {
    let device = Arc::new(Shape::new(mib, 4096, true).make());
    let volume = open(&device);
    let (file, done) = (volume.create_direct("/f").expect("create"), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS as u64 {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let data = stamped(request, writer);
                while done.fetch_add(request, Ordering::Relaxed) < bytes {
                    append(file, &data);
                }
            });
        }
    });
    assert_together(std::slice::from_ref(&file), what);
    drop(file);
    close_and_check(&device, volume, &["/f".into()], what);
}

#[test]
fn one_file_appended_by_all() {
    grow_one(1024, 32 * MIB, 4 * KIB, "one file, appends of 4k");
    grow_one(1024, 96 * MIB, 128 * KIB, "one file, appends of 128k");
    grow_one(1024, 96 * MIB, 2 * MIB, "one file, appends of 2M");
}

/// Returns the numbers below `count` in a random order of `seed`.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let (mut numbers, mut rng): (Vec<u64>, _) = ((0..count).collect(), Rng::new(seed, 0));
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, usize::try_from(rng.below(last as u64 + 1)).unwrap());
    }
    numbers
}

#[test]
fn a_sparse_file_filled_in_any_order_is_contiguous() {
    const BYTES: u64 = 32 * MIB;
    let device = Arc::new(Shape::new(2048, 4096, true).make());
    let volume = open(&device);
    let file = volume.create_direct("/f").expect("create");
    file.set_len(BYTES).expect("set_len");
    let blocks = shuffled(BYTES / 4096, 7);
    std::thread::scope(|scope| {
        for part in blocks.chunks(blocks.len() / 8) {
            let file = &file;
            scope.spawn(move || {
                part.iter().for_each(|block| file.write_all_at(&[1; 4096], block * 4096).expect("write"));
            });
        }
    });
    let found = pieces(&file);
    eprintln!("a sparse file filled in any order: {found} pieces");
    assert!(found <= 4, "{found} pieces");
    drop(file);
    volume.close().expect("the volume closes");
    assert_clean(&device, "a sparse file filled in any order");
}

#[test]
fn small_files_written_at_once_stay_packed() {
    const FILES: u64 = 400;
    let device = Arc::new(Shape::new(512, 4096, true).make());
    let volume = open(&device);
    let mut places = Vec::new();
    for nth in 0..FILES {
        let file = volume.create_direct(format!("/{nth}")).expect("create");
        file.write_all_at(&vec![1; usize::try_from(4096 * (1 + nth % 4)).unwrap()], 0).expect("write");
        places.push(file.device_range(0).expect("a map").expect("data"));
    }
    places.sort_unstable_by_key(|place| place.start);
    let gaps = places.windows(2).filter(|pair| pair[0].end != pair[1].start).count();
    // A group has sixteen starting blocks for small files.
    assert!(gaps < 20, "{FILES} small files lie in {gaps} places");
    volume.close().expect("the volume closes");
}

#[test]
fn blocks_reserved_by_one_file_are_available_to_another() {
    let device = Arc::new(Shape::new(64, 4096, true).make());
    let volume = open(&device);
    let kept: Vec<DirectFile> =
        (0..WRITERS).map(|n| volume.create_direct(format!("/kept{n}")).unwrap()).collect();
    let free = volume.space().free_blocks;
    kept.iter().for_each(|file| append(file, &[1; 4096]));
    assert_eq!(volume.space().free_blocks, free - WRITERS as u64, "a window counts as used");

    // Uses all the space while every file is open, and then again in one run when none is.
    let all = volume.create_direct("/all").unwrap();
    let mut rest = usize::try_from(volume.space().free_blocks * 4096).unwrap();
    let mut request = 1 << 20;
    while request >= 4096 {
        match all.append(&vec![2; request]) {
            Ok(_) => rest -= request,
            Err(parext4::Error::NoSpace) => request /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    // Data leaves 2 % to metadata, of which the extent tree of a file with many runs uses a part.
    let left = rest as u64 / 4096;
    assert!(left <= volume.space().blocks / 50 + 8, "{left} free blocks cannot be allocated");
    kept.iter().for_each(|file| assert_eq!(file.size(), 4096));
    drop((kept, all));
    volume.close().expect("the volume closes");
    assert_clean(&device, "a full volume");
}

/// Returns the runs of the first of two files that are appended to in turns, 16 times, `request`
/// bytes at a time.
fn pieces_in_turns(serialize_allocation_from: Option<u32>, request: usize) -> u64 {
    let device = Arc::new(Shape::new(256, 4096, true).make());
    let volume = open_with(
        &device,
        &untimed().research(ResearchOptions::new().serialize_allocation_from(serialize_allocation_from)),
    );
    let files = ["/a", "/b"].map(|path| volume.create_direct(path).expect("create"));
    for _ in 0..16 {
        files.iter().for_each(|file| append(file, &vec![1; request]));
    }
    let found = pieces(&files[0]);
    drop(files);
    volume.close().expect("the volume closes");
    assert_clean(&device, "appends in turns");
    found
}

#[test]
fn files_interleave_only_where_allocation_is_not_serialized() {
    const SMALL: usize = 4096;
    const LARGE: usize = 64 * 4096;
    assert_eq!([pieces_in_turns(Some(0), SMALL), pieces_in_turns(Some(0), LARGE)], [1, 1]);
    assert_eq!([pieces_in_turns(None, SMALL), pieces_in_turns(None, LARGE)], [16, 16]);
    assert_eq!([pieces_in_turns(Some(33), SMALL), pieces_in_turns(Some(33), LARGE)], [16, 1]);
}
