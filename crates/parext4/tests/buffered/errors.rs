//! Failures of write-back: writers that wait for memory get the error, every open file reports it
//! once, and writes succeed again once the cause is gone.

use std::sync::Arc;

use parext4::device::{FaultDevice, FaultKind, FaultPlan};
use parext4::{
    Device, DirectFile, Error, File, MemDevice, Policy, ResearchOptions, Result, Volume, VolumeOptions,
};
use testkit::Image;
use testkit::full_volume::{BLOCK, FullVolume, SMALL};
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, untimed};
use testkit::watchdog::Watchdog;

/// Dirty-page limit at which most writers must wait and write back themselves.
fn little_memory(policy: Policy) -> VolumeOptions {
    untimed()
        .cache_bytes(1 << 20)
        .dirty_limit_bytes(64 << 10)
        .write_back_interval(None)
        .research(ResearchOptions::new().policy(policy))
}

fn buffered(file: &DirectFile) -> File {
    file.buffered().unwrap()
}

/// Makes a file of preallocated blocks on a full volume whose tree has no room for another split.
fn full(policy: Policy) -> FullVolume {
    FullVolume::new(SMALL, &little_memory(policy), 0, 0)
}

/// Writes every `step`-th block from `first` on until a write fails. Returns the blocks written and
/// the error. Two adjacent blocks of the file must not both be written: their extents merge, and
/// then need no split.
fn write_until_refused(file: &File, byte: u8, first: u64, step: usize) -> (Vec<u64>, Error) {
    let mut taken = Vec::new();
    for block in (first..SMALL.blocks).step_by(step) {
        match file.write_all_at(&[byte; 1024], block * BLOCK) {
            Ok(()) => taken.push(block),
            Err(error) => return (taken, error),
        }
    }
    panic!("all writes were taken");
}

fn no_space(result: Result<()>) {
    assert!(matches!(result, Err(Error::NoSpace)), "{result:?}");
}

#[test]
fn a_full_volume_refuses_writes_until_it_can_write_back_again() {
    for policy in Policy::ALL {
        let mut full = full(policy);
        let watchdog = Watchdog::start("a_full_volume", 0, 4);
        let handles: Vec<_> = (0..4).map(|_| buffered(&full.file)).collect();
        // Opened before the first failure, and idle until the end.
        let idle = buffered(&full.file);
        let refused: Vec<_> = std::thread::scope(|scope| {
            let write = |(nth, file)| {
                let watchdog = &watchdog;
                scope.spawn(move || {
                    watchdog.watch(nth, || write_until_refused(file, 3 + nth as u8, 2 * nth as u64, 8))
                })
            };
            let threads: Vec<_> = handles.iter().enumerate().map(write).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (nth, (taken, error)) in refused.iter().enumerate() {
            assert!(matches!(error, Error::NoSpace), "{error}");
            for block in taken {
                let at = usize::try_from(block * BLOCK).unwrap();
                full.model[at..at + 1024].fill(3 + nth as u8);
            }
        }
        let (busy, rest) = handles.split_first().unwrap();
        no_space(busy.sync_data());
        no_space(busy.sync_range(0..SMALL.blocks * BLOCK));

        full.volume.remove_file("/filler").unwrap();
        full.volume.sync().unwrap();
        // All data is on the device now. Still, each handle reports the failure once.
        for file in rest.iter().chain([&idle]) {
            no_space(file.sync_data());
            file.sync_data().unwrap();
            file.sync_all().unwrap();
        }
        busy.sync_data().unwrap();
        buffered(&full.file).sync_data().unwrap();
        // The refused write succeeds now.
        for (nth, file) in handles.iter().enumerate() {
            for block in (nth as u64..SMALL.blocks).step_by(4) {
                watchdog.watch(nth, || file.write_all_at(&[9; 1024], block * BLOCK).unwrap());
            }
        }
        full.model.fill(9);
        drop((handles, idle));
        full.check("after writing again");
        full.close("after writing again");
    }
}

#[test]
fn a_hole_is_punched_where_data_cannot_be_written_back() {
    for policy in Policy::ALL {
        let mut full = full(policy);
        let file = buffered(&full.file);
        write_until_refused(&file, 3, 0, 4);
        no_space(file.sync_data());
        full.file.punch_hole(0..SMALL.blocks * BLOCK).unwrap();
        file.sync_data().unwrap();
        full.model.fill(0);
        full.check("punched");
        file.write_all_at(&[4; 1024], 5 * BLOCK).unwrap();
        file.sync_data().unwrap();
        full.model[5 * 1024..6 * 1024].fill(4);
        drop(file);
        full.close("punched");
    }
}

#[test]
fn a_file_that_cannot_be_written_back_does_not_stop_other_files() {
    // Writes that check the dirty-page limit only before they begin, and writes that also check it
    // on their way.
    for (policy, len) in Policy::ALL.into_iter().flat_map(|policy| [(policy, 10 << 10), (policy, 100 << 10)])
    {
        let full = full(policy);
        // Written blocks can be overwritten without space.
        let other = buffered(&full.volume.direct_file("/filler").unwrap());
        other.direct().write_all_at(&vec![1; 300 << 10], 0).unwrap();
        // From now on more is dirty than the limit allows.
        let stuck = buffered(&full.file);
        assert!(matches!(write_until_refused(&stuck, 3, 0, 4), (_, Error::NoSpace)));
        let watchdog = Watchdog::start("a_file_that_cannot_be_written_back", 0, 3);
        std::thread::scope(|scope| {
            for nth in 0..3 {
                let (watchdog, other) = (&watchdog, &other);
                scope.spawn(move || {
                    for byte in 0..3 {
                        let data = vec![byte; len];
                        for offset in (nth * len..300 << 10).step_by(3 * len) {
                            watchdog.watch(nth, || other.write_all_at(&data, offset as u64).unwrap());
                        }
                    }
                });
            }
        });
        no_space(stuck.sync_data());
        let mut seen = vec![0; 300 << 10];
        other.read_at(&mut seen, 0).unwrap();
        assert!(seen.iter().all(|&byte| byte == 2));
    }
}

#[test]
fn writers_that_wait_for_memory_get_the_error_of_the_device() {
    for policy in Policy::ALL {
        let memory = Arc::new(Shape::new(16, 4096, true).make());
        let device = Arc::new(FaultDevice::new(memory, FaultPlan::default()));
        let volume =
            Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &little_memory(policy)).unwrap();
        let file = volume.create_direct("/f").unwrap();
        let handles: Vec<_> = (0..4).map(|_| buffered(&file)).collect();
        let idle = buffered(&file);
        handles[0].write_all_at(&[1; 4096], 0).unwrap();
        volume.sync().unwrap();
        device.arm(FaultPlan::at(1).kind(FaultKind::Writes).sticky(true));
        let watchdog = Watchdog::start("the_device_fails", 0, 4);
        std::thread::scope(|scope| {
            for (nth, file) in handles.iter().enumerate() {
                let watchdog = &watchdog;
                scope.spawn(move || {
                    let write = |page: u64| file.write_all_at(&[2; 4096], (page * 4 + nth as u64) * 4096);
                    let error = watchdog.watch(nth, || (1..1000).find_map(|page| write(page).err()));
                    let error = error.expect("more is dirty than may be");
                    assert!(matches!(error, Error::Device { .. } | Error::Stopped(_)), "{error}");
                });
            }
        });
        for file in handles.iter().chain([&idle]) {
            assert!(matches!(file.sync_data(), Err(Error::Device { .. })), "each writer gets the error");
            assert!(matches!(file.sync_data(), Err(Error::Stopped(_))), "and once");
        }
    }
}

/// A read that the caller made gets the error. A read-ahead that fails leaves its pages to the next
/// read.
#[test]
fn reads_succeed_after_read_aheads_that_failed() {
    const LEN: usize = 12 << 20;
    const CHUNK: usize = 128 << 10;
    let memory = Arc::new(Shape::new(32, 4096, true).make());
    let device = Arc::new(FaultDevice::new(memory, FaultPlan::default()));
    let options = untimed().cache_bytes(64 << 20);
    let open = || Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
    let data = super::random(&mut Rng::new(9, 0), LEN);
    super::create(&open(), "/f").write_all_at(&data, 0).unwrap();
    for (fail_at, sticky) in (1..60).step_by(3).flat_map(|nth| [(nth, false), (nth, true)]) {
        let volume = open();
        let file = volume.direct_file("/f").unwrap().buffered().unwrap();
        device.arm(FaultPlan::at(fail_at).kind(FaultKind::Reads).sticky(sticky));
        let (mut seen, mut failures) = (vec![0; CHUNK], 0);
        for (nth, expected) in data.chunks(CHUNK).enumerate() {
            match file.read_at(&mut seen, (nth * CHUNK) as u64) {
                Ok(_) => assert!(seen == expected, "chunk {nth} after read {fail_at} failed"),
                Err(error) => failures += u32::from(matches!(error, Error::Device { .. })),
            }
        }
        assert!(sticky || failures <= 1, "{failures} reads failed");
        device.disarm();
        assert!(super::read_all(&file) == data, "after read {fail_at} failed");
    }
}

/// The map of a file without extents is read again when it is needed. While that fails, delayed
/// blocks stay reserved, once.
#[test]
fn delayed_blocks_stay_reserved_once_while_their_map_cannot_be_read() {
    /// More leaves of a map than stay in memory, and the bytes that each maps.
    const LEAVES: u64 = 4200;
    const REACH: u64 = 256 << 10;
    let features = "^extent,^64bit,^metadata_csum,^has_journal";
    let Some(image) = Image::mke2fs(32, &["-b", "1024", "-O", features]) else { return };
    let memory = Arc::new(MemDevice::from_bytes(std::fs::read(image.path()).unwrap()));
    let device = Arc::new(FaultDevice::new(memory, FaultPlan::default()));
    let options = untimed().metadata_cache_bytes(64 << 10).write_back_interval(None);
    let open = || Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
    let start_of = |leaf: u64| 12 * 1024 + leaf * REACH;
    let volume = open();
    let file = super::create(&volume, "/f");
    for leaf in 0..LEAVES {
        file.write_all_at(&[1; 1024], start_of(leaf)).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    volume.close().unwrap();
    for is_truncated in [false, true] {
        let volume = open();
        let file = volume.direct_file("/f").unwrap().buffered().unwrap();
        let from = if is_truncated { 100 } else { 50 };
        let free = volume.space().free_blocks;
        for block in 0..7 {
            file.write_all_at(&[2; 1024], start_of(0) + (from + block) * 1024).unwrap();
        }
        for leaf in 0..LEAVES {
            file.direct().read_at(&mut [0; 1024], start_of(leaf)).unwrap();
        }
        device.arm(FaultPlan::at(1).kind(FaultKind::Reads).sticky(true));
        for _ in 0..2 {
            let failed = file.sync_data();
            assert!(matches!(failed, Err(Error::Device { .. })), "{failed:?}");
        }
        device.disarm();
        if is_truncated {
            file.set_len(start_of(0)).unwrap();
        }
        file.sync_all().unwrap();
        drop(file);
        let counted = volume.space().free_blocks;
        volume.close().unwrap();
        assert_eq!(counted, open().space().free_blocks, "truncated: {is_truncated}");
        assert!(is_truncated || counted == free - 7, "{counted} of {free}");
    }
}
