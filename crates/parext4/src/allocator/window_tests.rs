//! Windows on real volumes: their places, their return, and that nothing runs out of space because
//! of them.

use super::blocks::Run;
use super::tests::{allocate, volume};
use super::window::Window;
use super::*;
use crate::{DirectFile, Error, FileSize, MemDevice, MkfsOptions, OpenOptions, Volume, VolumeOptions, mkfs};
use parext4_format::FsBlock;

const BLOCK: usize = 1024;

/// A volume of 512 MiB in 64 groups, so that windows are of the largest size.
fn large_volume() -> Volume {
    let device = Arc::new(MemDevice::new(512 << 20));
    let options = MkfsOptions::new().block_size(1024).device_is_zero(true);
    mkfs(&*device, &options).unwrap();
    Volume::open_device(device, &VolumeOptions::new().commit_interval(None)).unwrap()
}

fn create(volume: &Volume, name: &str) -> DirectFile {
    volume.open_direct(format!("/{name}"), &OpenOptions::read_write().create_new(true)).unwrap()
}

/// The block of the volume that holds block `block` of a file.
fn place(file: &DirectFile, block: usize) -> u64 {
    file.device_range((block * BLOCK) as u64).unwrap().unwrap().start / BLOCK as u64
}

fn windows(file: &DirectFile) -> Vec<Arc<Window>> {
    file.inode_ref().inode.windows.read().to_vec()
}

/// Allocates all that data may have.
fn use_up(inner: &crate::engine::Engine) -> u64 {
    let (mut got, mut want) = (0, 4096);
    while want > 0 {
        match allocate(inner, 0, want) {
            Ok(runs) => got += runs.iter().map(|run| u64::from(run.len)).sum::<u64>(),
            Err(Error::NoSpace) => want /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    got
}

fn unclaimed(allocator: &Allocator) -> i64 {
    allocator.unclaimed.load(Ordering::Relaxed)
}

#[test]
fn an_appended_file_gets_a_window_and_a_small_written_one_none() {
    let volume = large_volume();
    let (appended, written) = (create(&volume, "a"), create(&volume, "w"));
    let free = volume.space().free_blocks;
    appended.append(&[1; BLOCK]).unwrap();
    written.write_all_at(&[1; BLOCK], 0).unwrap();
    assert_eq!((windows(&appended).len(), windows(&written).len()), (1, 0));
    assert_eq!(volume.space().free_blocks, free - 2, "blocks of windows are not in use");
    written.write_all_at(&[1; BLOCK], BLOCK as u64).unwrap();
    assert_eq!(windows(&written).len(), 1, "it grows");
    assert_eq!(place(&written, 1), place(&written, 0) + 1);

    let ahead = create(&volume, "f");
    ahead.allocate(0..100 << 10, FileSize::Extend).unwrap();
    assert!(windows(&ahead).is_empty());
}

#[test]
fn windows_of_one_file_follow_each_other_and_those_of_others_lie_apart() {
    let volume = large_volume();
    let (a, b) = (create(&volume, "a"), create(&volume, "b"));
    let len = {
        a.append(&[1; BLOCK]).unwrap();
        b.append(&[1; BLOCK]).unwrap();
        windows(&a)[0].run.len as usize
    };
    assert!(place(&a, 0).abs_diff(place(&b, 0)) >= len as u64 * 3 / 2, "room to grow");
    for file in [&a, &b] {
        for _ in (0..len).step_by(16) {
            file.append(&[1; 16 * BLOCK]).unwrap();
        }
    }
    for file in [&a, &b] {
        assert_eq!(place(file, len), place(file, 0) + len as u64);
    }
}

#[test]
fn a_block_goes_where_its_place_in_the_file_says() {
    let volume = large_volume();
    let file = create(&volume, "a");
    for block in [70, 3, 500, 71, 0, 499] {
        file.write_all_at(&[1; BLOCK], (block * BLOCK) as u64).unwrap();
    }
    let base = place(&file, 0);
    for block in [3, 70, 71, 499, 500] {
        assert_eq!(place(&file, block), base + block as u64);
    }
    assert_eq!(windows(&file).len(), 1);
}

#[test]
fn windows_go_with_the_last_user_and_with_what_is_cut_off() {
    let volume = large_volume();
    let allocator = volume.engine.allocator();
    let file = create(&volume, "a");
    file.append(&[1; 4 * BLOCK]).unwrap();
    assert_eq!(allocator.windows.lock().len(), 1);
    file.set_len(2 * BLOCK as u64).unwrap();
    assert_eq!(allocator.windows.lock().len(), 0);
    assert!(windows(&file).is_empty());
    file.append(&[1; 4 * BLOCK]).unwrap();
    let second = file.clone();
    drop(file);
    assert_eq!(allocator.windows.lock().len(), 1);
    drop(second);
    assert_eq!(allocator.windows.lock().len(), 0);
    let file = volume.open_direct("/a", &OpenOptions::read_write()).unwrap();
    file.append(&[1; 4 * BLOCK]).unwrap();
    volume.remove_file("/a").unwrap();
    drop(file);
    assert_eq!(allocator.windows.lock().len(), 0);
}

#[test]
fn every_block_can_be_had_though_windows_are_open() {
    let volume = large_volume();
    let (inner, allocator) = (&volume.engine, volume.engine.allocator());
    let files: Vec<DirectFile> = (0..32).map(|n| create(&volume, &n.to_string())).collect();
    for file in &files {
        file.append(&[1; BLOCK]).unwrap();
        assert_eq!(windows(file).len(), 1);
    }
    let available = unclaimed(allocator) - allocator.pool;
    assert_eq!(use_up(inner), u64::try_from(available).unwrap());
    assert_eq!(unclaimed(allocator), allocator.pool);
    // The rest is for metadata.
    let mut reservation = allocator.reserve(u32::try_from(allocator.pool).unwrap()).unwrap();
    for _ in 0..allocator.pool {
        let goal = FsBlock(0);
        inner
            .transact(ALLOCATE_CREDITS, |handle| allocator.allocate_metadata(handle, goal, &mut reservation))
            .unwrap();
    }
    drop(reservation);
    assert_eq!((unclaimed(allocator), allocator.windows.lock().len()), (0, 0));
    assert!(matches!(files[0].append(&[1; BLOCK]), Err(Error::NoSpace)));
}

#[test]
fn a_small_volume_has_small_windows_or_none() {
    let volume = volume();
    let inner = &volume.engine;
    let file = create(&volume, "a");
    file.append(&[1; BLOCK]).unwrap();
    let free = u32::try_from(unclaimed(inner.allocator())).unwrap();
    assert!(windows(&file)[0].run.len <= free / 64);
    while unclaimed(inner.allocator()) > inner.allocator().pool + 600 {
        allocate(inner, 0, 500).unwrap();
    }
    let late = create(&volume, "b");
    late.append(&[1; BLOCK]).unwrap();
    assert!(windows(&late).iter().all(|window| window.run.len <= 32));
}

#[test]
fn rather_a_window_is_taken_back_than_a_request_cut_up() {
    let volume = large_volume();
    let inner = &volume.engine;
    let file = create(&volume, "a");
    file.append(&[1; BLOCK]).unwrap();
    let window = Arc::clone(&windows(&file)[0]);
    // Whatever lies together elsewhere goes.
    for group in &inner.allocator().groups {
        while group
            .keep_for_window(inner.cache(), |free| free.largest_run().filter(|run| run.len >= 64))
            .unwrap()
            .is_some()
        {}
    }
    let runs = allocate(inner, 0, 64).unwrap();
    assert_eq!(runs.len(), 1);
    assert!(window.is_used_up(), "it was taken back");
    file.append(&[1; BLOCK]).unwrap();
    assert_eq!(file.size(), 2 * BLOCK as u64, "its file goes on without");
}

#[test]
fn threads_that_take_each_others_windows_get_every_block_once() {
    let volume = volume();
    let allocator = volume.engine.allocator();
    let before = unclaimed(allocator);
    let files: Vec<DirectFile> = (0..8).map(|n| create(&volume, &n.to_string())).collect();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                let mut blocks = 7;
                while blocks > 0 {
                    match file.append(&vec![1; blocks * BLOCK]) {
                        Ok(_) => {}
                        Err(Error::NoSpace) => blocks /= 2,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let mut runs = Vec::new();
    for file in &files {
        let mut at = 0;
        while at < file.size() {
            let place = file.device_range(at).unwrap().unwrap();
            let len = place.end - place.start;
            runs.push(Run {
                start: FsBlock(place.start / BLOCK as u64),
                len: u32::try_from(len).unwrap() / 1024,
            });
            at += len;
        }
    }
    runs.sort_unstable_by_key(|run| run.start);
    let apart = |pair: &[Run]| pair[0].start + u64::from(pair[0].len) <= pair[1].start;
    assert!(runs.windows(2).all(apart), "a block was given out twice");
    let used: i64 = runs.iter().map(|run| i64::from(run.len)).sum();
    let trees = before - unclaimed(allocator) - used;
    assert!((0..before / 50).contains(&trees) && unclaimed(allocator) <= allocator.pool);
    drop(files);
    assert_eq!(allocator.windows.lock().len(), 0);
}
