//! Models: the engine under a scheduler that tries interleavings, and the same models with a guard taken
//! away, which they must notice.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p parext4 --release --test shuttle`.
#![cfg(shuttle)]

use std::io::{self, IoSlice, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use shuttle::rand::Rng;

use parext4::fault::{Fault, plant};
use parext4::{
    Device, File, MemDevice, MkfsOptions, OpenOptions, Policy, SetAttributes, Timestamp, Volume, mkfs,
};

const SECTOR: usize = 512;

/// A device that lets others run between any two sectors of a request.
#[derive(Debug)]
struct Yielding(Arc<MemDevice>);

impl Device for Yielding {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector_size(&self) -> u32 {
        self.0.sector_size()
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut at = offset;
        for sector in bufs.iter_mut().flat_map(|buf| buf.chunks_mut(SECTOR)) {
            shuttle::thread::yield_now();
            let len = sector.len() as u64;
            self.0.read_at(at, &mut [IoSliceMut::new(sector)])?;
            at += len;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset;
        for sector in bufs.iter().flat_map(|buf| buf.chunks(SECTOR)) {
            shuttle::thread::yield_now();
            self.0.write_at(at, &[IoSlice::new(sector)])?;
            at += sector.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }
}

/// Faults are planted in the whole process, so one model runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A volume of 1 KiB blocks, two sectors each, made once and forked for every schedule.
fn volume(image: &MemDevice) -> Volume {
    open(Arc::new(image.fork()))
}

fn open(device: Arc<MemDevice>) -> Volume {
    open_under(device, Policy::Range)
}

fn open_under(device: Arc<MemDevice>, policy: Policy) -> Volume {
    // With explanations, to try their locks as well.
    let explain = policy != Policy::Range;
    let options = OpenOptions { commit_interval: None, policy, explain, ..OpenOptions::default() };
    Volume::open(Arc::new(Yielding(device)), &options).expect("the image opens")
}

fn image() -> MemDevice {
    let device = MemDevice::new(4 << 20);
    let options = MkfsOptions { block_size: Some(1024), device_is_zero: true, ..MkfsOptions::default() };
    mkfs(&device, &options).expect("mkfs");
    device
}

/// Checks `model` under many schedules, then that it fails with each of `faults`.
fn check(iterations: usize, faults: &[Fault], model: impl Fn(&MemDevice) + Send + Sync + 'static) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let model = Arc::new(model);
    let image = Arc::new(image());
    let run = |iterations: usize| {
        let (model, image) = (Arc::clone(&model), Arc::clone(&image));
        shuttle::check_random(move || model(&image), iterations);
    };
    plant(Fault::None);
    run(iterations);
    for &fault in faults {
        plant(fault);
        let noticed = catch_unwind(AssertUnwindSafe(|| run(iterations * 10))).is_err();
        plant(Fault::None);
        assert!(noticed, "the model does not notice {fault:?}");
    }
}

/// Runs two operations at once.
fn race(file: &File, one: impl FnOnce(&File) + Send + 'static, other: impl FnOnce(&File) + Send + 'static) {
    let threads = [spawn(file, one), spawn(file, other)];
    for thread in threads {
        thread.join().expect("no operation panics");
    }
}

fn spawn(file: &File, work: impl FnOnce(&File) + Send + 'static) -> shuttle::thread::JoinHandle<()> {
    let file = file.clone();
    shuttle::thread::spawn(move || work(&file))
}

fn write(file: &File, byte: u8, sectors: usize, offset: u64) {
    file.write_at(&vec![byte; sectors * SECTOR], offset).expect("the write succeeds");
}

fn read(file: &File, sectors: usize, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; sectors * SECTOR];
    let len = file.read_at(&mut bytes, offset).expect("the read succeeds");
    bytes.truncate(len);
    bytes
}

#[test]
fn two_writers_initialise_one_block() {
    check(300, &[Fault::OwnBytesOnly], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        file.allocate(0, 1024, false).unwrap();
        race(&file, |f| write(f, 1, 1, 0), |f| write(f, 2, 1, 512));
        assert_eq!(read(&file, 2, 0), [[1; SECTOR], [2; SECTOR]].concat());
    });
}

#[test]
fn a_reader_within_the_size_sees_the_data() {
    check(300, &[], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        race(
            &file,
            |f| write(f, 7, 4, 0),
            |f| {
                let size = f.size();
                let seen = read(f, 4, 0);
                assert!(seen.len() as u64 >= size, "data that was visible is gone");
                assert!(seen.iter().all(|&byte| byte == 7), "an append shows before its data");
                assert!(seen.is_empty() || seen.len() == 4 * SECTOR, "half of a write is seen");
            },
        );
    });
}

#[test]
fn reads_never_see_half_an_overwrite() {
    check(300, &[Fault::ReadUnheld], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        write(&file, 1, 2, 0);
        write(&volume.create("/g", 0o644).unwrap(), 9, 64, 0);
        write(&file, 1, 2, 4096);
        write(&file, 1, 6, 1024);
        race(
            &file,
            |f| write(f, 2, 8, 0),
            |f| {
                let seen = read(f, 8, 0);
                assert!(seen.iter().all(|byte| *byte == seen[0]), "half of a write is seen");
            },
        );
    });
}

#[test]
fn appends_are_neither_lost_nor_torn() {
    check(200, &[Fault::AppendAtSize], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        let writer = |byte: u8| move |f: &File| f.append(&[byte; 3 * SECTOR]).map(|_| ()).unwrap();
        race(&file, writer(1), writer(2));
        let seen = read(&file, 6, 0);
        let (first, second) = seen.split_at(3 * SECTOR);
        assert!(first.iter().all(|b| *b == first[0]) && second.iter().all(|b| *b == second[0]));
        assert_eq!(u32::from(first[0]) + u32::from(second[0]), 3, "both records are there");
    });
}

#[test]
fn an_append_meets_a_write_behind_the_end() {
    check(300, &[Fault::AppendAtSize], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        race(&file, |f| f.append(&[1; 3 * SECTOR]).map(|_| ()).unwrap(), |f| write(f, 2, 1, SECTOR as u64));
        // The append went first and was overwritten in its middle, or it came behind the write.
        let seen = read(&file, 16, 0);
        let first = [[1; SECTOR], [2; SECTOR], [1; SECTOR]].concat();
        let second = [[0; SECTOR], [2; SECTOR], [1; SECTOR], [1; SECTOR], [1; SECTOR]].concat();
        assert!(seen == first || seen == second, "{} bytes", seen.len());
    });
}

#[test]
fn a_close_meets_a_sync() {
    check(150, &[], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create("/f", 0o644).unwrap();
        let synced = Arc::new(Mutex::new(false));
        let writer = {
            let synced = Arc::clone(&synced);
            move |f: &File| {
                let done = f.append(&[7; SECTOR]).is_ok() && f.sync_data().is_ok();
                *synced.lock().unwrap() = done;
            }
        };
        race(&file, writer, move |_: &File| volume.close().unwrap());
        let after = open(device).open_file("/f").unwrap();
        assert!(after.size() == SECTOR as u64 || !*synced.lock().unwrap(), "what was synced is lost");
    });
}

#[test]
fn a_truncation_meets_a_write() {
    check(300, &[], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        write(&file, 1, 8, 0);
        race(&file, |f| write(f, 2, 4, 2048), |f| f.set_len(1024).unwrap());
        match file.size() {
            1024 => {}
            // The write came last: what was cut off before it is zeros.
            4096 => {
                let seen = read(&file, 8, 0);
                let want = [[1; 1024], [0; 1024], [2; 1024], [2; 1024]].concat();
                assert_eq!(seen, want);
            }
            size => panic!("size {size}"),
        }
        volume.sync().unwrap();
    });
}

#[test]
fn an_append_meets_a_truncation() {
    check(300, &[], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        write(&file, 1, 4, 0);
        race(&file, |f| f.append(&[2; SECTOR]).map(|_| ()).unwrap(), |f| f.set_len(512).unwrap());
        // Either the append went behind the new end, or the truncation cut it off.
        let seen = read(&file, 8, 0);
        let kept = [1; SECTOR].to_vec();
        let both = [[1; SECTOR], [2; SECTOR]].concat();
        assert!(seen == kept || seen == both, "{} bytes", seen.len());
    });
}

#[test]
fn commits_meet_conversions() {
    check(150, &[], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create("/f", 0o644).unwrap();
        file.allocate(0, 8192, false).unwrap();
        let syncer = spawn(&file, |f| f.sync_all().unwrap());
        race(&file, |f| write(f, 1, 2, 1024), |f| write(f, 2, 3, 4096));
        syncer.join().unwrap();
        file.sync_data().unwrap();
        // What a crash would leave now, seen by whoever opens it next.
        let after = open(Arc::new(device.fork()));
        let seen = read(&after.open_file("/f").unwrap(), 16, 0);
        assert!(seen[1024..2048].iter().all(|b| *b == 1) && seen[4096..5632].iter().all(|b| *b == 2));
        assert!(seen[..1024].iter().all(|b| *b == 0) && seen[2048..4096].iter().all(|b| *b == 0));
    });
}

#[test]
fn a_size_and_the_blocks_under_it_commit_together() {
    check(150, &[Fault::SizeLater], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create("/f", 0o644).unwrap();
        file.allocate(0, 2048, true).unwrap();
        let seen = Arc::new(Mutex::new(None));
        let crash = {
            let (device, seen) = (Arc::clone(&device), Arc::clone(&seen));
            move |f: &File| {
                // Long enough for the write to come to its end.
                for _ in 0..shuttle::rand::thread_rng().gen_range(0..40) {
                    shuttle::thread::yield_now();
                }
                f.sync_all().unwrap();
                *seen.lock().unwrap() = Some(device.fork());
            }
        };
        race(&file, |f| write(f, 7, 4, 0), crash);
        let crashed = seen.lock().unwrap().take().unwrap();
        let after = open(Arc::new(crashed)).open_file("/f").unwrap();
        let size = after.size();
        after.set_len(2048).unwrap();
        let bytes = read(&after, 4, 0);
        let (inside, behind) = bytes.split_at(usize::try_from(size).unwrap());
        assert!(inside.iter().all(|b| *b == 7) && behind.iter().all(|b| *b == 0), "size {size}");
    });
}

#[test]
fn freed_blocks_wait_for_their_commit() {
    check(20, &[Fault::ReuseAtOnce], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let old = volume.create("/old", 0o644).unwrap();
        write(&old, 1, 64, 0);
        let new = volume.create("/new", 0o644).unwrap();
        volume.sync().unwrap();
        // The truncation is not durable, so the blocks must still be the old file's after a crash.
        old.set_len(0).unwrap();
        for at in 0..64 {
            write(&new, 2, 64, at * 64 * SECTOR as u64);
        }
        let after = open(Arc::new(device.fork()));
        let seen = read(&after.open_file("/old").unwrap(), 64, 0);
        assert!(seen.iter().all(|byte| *byte == 1), "another file's data shows after a crash");
    });
}

#[test]
fn writes_that_share_the_file_convert_the_same_blocks() {
    check(300, &[], |image| {
        let device = Arc::new(image.fork());
        let volume = open_under(Arc::clone(&device), Policy::SharedOverwrite);
        let file = volume.create("/f", 0o644).unwrap();
        file.allocate(0, 4096, false).unwrap();
        race(&file, |f| write(f, 1, 6, 0), |f| write(f, 2, 6, 1024));
        drop(file);
        volume.close().unwrap();
        // Not ordered where they overlap, and whole in each sector.
        let seen = read(&open(device).open_file("/f").unwrap(), 8, 0);
        for (number, sector) in seen.chunks(SECTOR).enumerate() {
            let by = |byte: u8| sector.iter().all(|b| *b == byte);
            assert!((number < 6 && by(1)) || (number >= 2 && by(2)), "sector {number} is of nobody");
        }
    });
}

#[test]
fn two_writers_initialise_one_block_alone() {
    for policy in [Policy::Exclusive, Policy::SharedOverwrite] {
        check(150, &[], move |image| {
            let volume = open_under(Arc::new(image.fork()), policy);
            let file = volume.create("/f", 0o644).unwrap();
            file.allocate(0, 1024, false).unwrap();
            race(&file, |f| write(f, 1, 1, 0), |f| write(f, 2, 1, 512));
            assert_eq!(read(&file, 2, 0), [[1; SECTOR], [2; SECTOR]].concat());
        });
    }
}

#[test]
fn a_truncation_waits_for_what_shares_the_file() {
    check(150, &[], |image| {
        let volume = open_under(Arc::new(image.fork()), Policy::SharedOverwrite);
        let file = volume.create("/f", 0o644).unwrap();
        write(&file, 1, 8, 0);
        race(&file, |f| write(f, 2, 4, 2048), |f| f.set_len(1024).unwrap());
        match file.size() {
            1024 => assert_eq!(read(&file, 8, 0), [1; 1024]),
            4096 => assert_eq!(read(&file, 8, 0), [[1; 1024], [0; 1024], [2; 1024], [2; 1024]].concat()),
            size => panic!("size {size}"),
        }
    });
}

/// A volume where only a window has 16 blocks together, and its file: what else is free lies in pieces of 12.
fn with_one_long_run(image: &MemDevice) -> (Volume, File) {
    const BLOCK: u64 = 1024;
    let volume = volume(image);
    let owner = volume.create("/owner", 0o644).unwrap();
    owner.append(&[1; BLOCK as usize]).unwrap();
    let (pieces, ballast) =
        (volume.create("/pieces", 0o644).unwrap(), volume.create("/ballast", 0o644).unwrap());
    for nth in 0..10 {
        pieces.allocate(nth * 12 * BLOCK, 12 * BLOCK, false).unwrap();
        ballast.allocate(nth * 4 * BLOCK, 4 * BLOCK, false).unwrap();
    }
    // Of the run that is left, all but what the window has and a little.
    let rest = volume.space().free_blocks - 31 - 8;
    drop(pieces);
    volume.remove_file("/pieces").unwrap();
    volume.sync().unwrap();
    ballast.allocate(ballast.size(), rest * BLOCK, false).unwrap();
    (volume, owner)
}

#[test]
fn a_window_that_was_taken_back_gives_out_nothing() {
    check(100, &[Fault::WindowOutlivesReturn], |image| {
        let (volume, owner) = with_one_long_run(image);
        let other = volume.create("/other", 0o644).unwrap();
        let needs_it = other.clone();
        race(
            &owner,
            |f| assert_eq!(f.append(&[1; 32 * SECTOR]).unwrap(), 1024),
            move |_| write(&needs_it, 2, 32, 0),
        );
        assert!(read(&owner, 34, 0).iter().all(|&byte| byte == 1), "the owner's data is overwritten");
        assert!(read(&other, 32, 0).iter().all(|&byte| byte == 2), "the other's data is overwritten");
    });
}

#[test]
fn the_time_of_an_overwrite_rides_along_with_a_commit() {
    check(300, &[Fault::TimesUnlisted], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create("/f", 0o644).unwrap();
        write(&file, 1, 2, 0);
        volume.sync().unwrap();
        // Its time waits, until it is set outright.
        write(&file, 2, 2, 0);
        let long_ago = Timestamp { seconds: 5, nanoseconds: 0 };
        let set = SetAttributes { mtime: Some(long_ago), ..SetAttributes::default() };
        file.node().set_attributes(&set).unwrap();
        assert_eq!(file.node().metadata().mtime, long_ago);
        let syncer = volume.clone();
        race(&file, |f| write(f, 3, 2, 0), move |_: &File| syncer.sync().unwrap());
        volume.sync().unwrap();
        let mtime = file.node().metadata().mtime;
        assert_ne!(mtime, long_ago);
        let after = open(Arc::new(device.fork()));
        assert_eq!(after.metadata("/f").unwrap().mtime, mtime, "the time of a write is lost");
    });
}
