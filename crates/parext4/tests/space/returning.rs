//! Space that is about to come back: no operation fails with "no space" before the volume is full
//! and nothing is in flight.
//!
//! The test with many threads runs for `PAREXT4_STRESS_SECONDS`, at least once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::server::ServerInode;
use parext4::{
    AlignedBuf, Completion, DirectFile, Error, FileSize, IoFlags, IoQueue, IoRequest, MemDevice, MkfsOptions,
    OpenOptions, Volume, VolumeOptions, mkfs,
};
use testkit::settings;
use testkit::volume::{DirectFiles as _, assert_clean, untimed};

const BLOCK: usize = 4096;
const THREADS: u64 = 8;
/// Operations that a queue has in flight.
const DEPTH: usize = 64;
/// Time after which a thread returns space that another one waits for.
const WHILE: Duration = Duration::from_millis(30);

/// Makes a volume of `mib` MiB with blocks of [`BLOCK`] bytes.
fn volume(mib: u64, options: &VolumeOptions) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(mib << 20));
    let format = MkfsOptions::new().block_size(4096).inode_ratio(4096).reserved_percent(0.0);
    mkfs(&*device, &format.device_is_zero(true)).unwrap();
    let volume = Volume::open_device(Arc::clone(&device) as _, options).unwrap();
    (device, volume)
}

/// Like [`volume`], with files that are mapped by indirect blocks.
fn volume_without_extents(mib: u64) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(mib << 20));
    let format = MkfsOptions::new().block_size(4096).reserved_percent(0.0).features("^extent").unwrap();
    mkfs(&*device, &format.device_is_zero(true)).unwrap();
    let volume = Volume::open_device(Arc::clone(&device) as _, &untimed()).unwrap();
    (device, volume)
}

/// Allocates all blocks for data but about `left` to one file.
fn fill(volume: &Volume, left: u64) {
    let file = volume.create_direct("/fill").unwrap();
    let len = volume.space().available_blocks.saturating_sub(left) * BLOCK as u64;
    file.allocate(0..len, FileSize::Extend).unwrap();
}

fn create(volume: &Volume, dir: &str, count: u64) -> Vec<DirectFile> {
    volume.create_dir(dir, 0o755).unwrap();
    (0..count).map(|nth| volume.create_direct(format!("{dir}/{nth}")).unwrap()).collect()
}

/// Writes the first block of files by a queue, one file after the other, until one does not fit.
/// Returns how many did.
fn write_first_blocks(volume: &Volume, files: &[DirectFile]) -> usize {
    let mut queue = volume.io_queue(u32::try_from(DEPTH).unwrap());
    let (mut done, mut written) = (Vec::new(), 0);
    for file in files {
        let request = IoRequest::Write { buf: AlignedBuf::zeroed(BLOCK), len: BLOCK, offset: 0 };
        queue.submit(file, request, 0, IoFlags::new());
        while queue.in_flight() >= DEPTH {
            queue.harvest(&mut done).unwrap();
        }
        if !are_written(volume, &mut done, &mut written) {
            break;
        }
    }
    finish(&mut queue, &mut done);
    are_written(volume, &mut done, &mut written);
    written
}

fn finish(queue: &mut IoQueue, done: &mut Vec<Completion>) {
    while queue.in_flight() > 0 {
        queue.harvest(done).unwrap();
    }
}

/// Counts what is done. Returns false if something did not fit. Nothing frees space, so the volume
/// has been full then.
fn are_written(volume: &Volume, done: &mut Vec<Completion>, written: &mut usize) -> bool {
    let mut fits = true;
    for completion in done.drain(..) {
        match completion.result {
            Ok(_) => *written += 1,
            Err(Error::NoSpace) => {
                assert_eq!(volume.space().available_blocks, 0, "a write failed before the volume was full");
                fits = false;
            }
            Err(error) => panic!("{error}"),
        }
    }
    fits
}

#[test]
fn first_writes_of_one_queue_fill_a_small_volume() {
    let (device, volume) = volume(4, &untimed());
    let files = create(&volume, "/files", volume.space().available_blocks);
    let free = volume.space().available_blocks;
    assert!(free > 300, "{free}");
    assert_eq!(write_first_blocks(&volume, &files) as u64, free);
    drop(files);
    volume.close().unwrap();
    assert_clean(&device, "filled by a queue");
}

/// The queue submits most of its operations while the volume still has space, so they have blocks
/// reserved when it ends.
#[test]
fn a_queue_completes_its_own_operations_before_it_reports_a_full_volume() {
    let (device, volume) = volume(16, &untimed());
    let files = create(&volume, "/files", 1500);
    fill(&volume, 1300);
    let mut queue = volume.io_queue(2048);
    for file in &files {
        let request = IoRequest::Write { buf: AlignedBuf::zeroed(BLOCK), len: BLOCK, offset: 0 };
        queue.submit(file, request, 0, IoFlags::new());
    }
    let mut done = Vec::new();
    finish(&mut queue, &mut done);
    let written = done.iter().filter(|completion| completion.result.is_ok()).count();
    assert!(
        volume.space().available_blocks == 0 && written >= 1300,
        "{written} files fit, {:?}",
        volume.space()
    );
    drop((queue, files));
    volume.close().unwrap();
    assert_clean(&device, "filled by one queue at once");
}

/// Threads write the first blocks of files, through queues, directly and through the page cache.
fn fill_the_last_percent() {
    let (device, volume) = volume(64, &VolumeOptions::new());
    let all: Vec<_> = (0..THREADS).map(|thread| create(&volume, &format!("/{thread}"), 60)).collect();
    fill(&volume, volume.space().blocks / 100);
    std::thread::scope(|scope| {
        for (thread, files) in all.iter().enumerate() {
            let volume = &volume;
            scope.spawn(move || match thread % 4 {
                0 | 1 => drop(write_first_blocks(volume, files)),
                2 => write_until_full(volume, files, |file| file.write_all_at(&[1; BLOCK], 0)),
                _ => write_until_full(volume, files, |file| file.buffered()?.write_all_at(&[1; BLOCK], 0)),
            });
        }
    });
    assert_eq!(volume.space().available_blocks, 0);
    drop(all);
    volume.close().unwrap();
    assert_clean(&device, "filled by threads");
}

fn write_until_full(
    volume: &Volume,
    files: &[DirectFile],
    write: impl Fn(&DirectFile) -> parext4::Result<()>,
) {
    for file in files {
        match write(file) {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                assert_eq!(volume.space().available_blocks, 0, "a write failed before the volume was full");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn threads_that_write_the_last_percent_fail_when_it_is_full() {
    let until = Instant::now() + settings::seconds(0.0);
    loop {
        fill_the_last_percent();
        if Instant::now() >= until {
            break;
        }
    }
}

#[test]
fn buffered_writes_of_small_files_use_the_last_block() {
    let (device, volume) = volume(4, &untimed());
    let files = create(&volume, "/files", 40);
    fill(&volume, 20);
    let fits = |file: &DirectFile| match file.buffered().unwrap().write_all_at(b"text", 0) {
        Err(Error::NoSpace) => false,
        written => written.is_ok(),
    };
    let written = files.iter().filter(|file| fits(file)).count();
    assert_eq!((written, volume.space().available_blocks), (20, 0));
    drop(files);
    volume.close().unwrap();
    assert_clean(&device, "filled by buffered writes");
}

/// Fills the volume with a file, removes the file, and writes another one at once, while `holder`
/// drops what it was given.
fn write_after_removal<T: Send + 'static>(hold: impl FnOnce(DirectFile) -> T) {
    let (device, volume) = volume(4, &untimed());
    let other = volume.create_direct("/other").unwrap();
    fill(&volume, 0);
    let held = hold(volume.direct_file("/fill").unwrap());
    volume.remove_file("/fill").unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(WHILE);
        drop(held);
    });
    other.write_all_at(&[1; 2 * BLOCK], 0).unwrap();
    holder.join().unwrap();
    drop(other);
    volume.close().unwrap();
    assert_clean(&device, "written after a removal");
}

#[test]
fn a_write_waits_for_the_deletion_of_a_removed_file() {
    write_after_removal(|file| file);
    write_after_removal(|file| file.inode_ref().clone().departing());
}

#[test]
fn a_removed_file_that_stays_open_does_not_keep_a_write_for_long() {
    let (_device, volume) = volume(4, &untimed());
    let other = volume.create_direct("/other").unwrap();
    fill(&volume, 0);
    let open = volume.direct_file("/fill").unwrap();
    volume.remove_file("/fill").unwrap();
    // Only the first one waits, for a second.
    for _ in 0..1000 {
        assert!(matches!(other.write_all_at(&[1; BLOCK], 0), Err(Error::NoSpace)));
    }
    drop(open);
    other.write_all_at(&[1; BLOCK], 0).unwrap();
}

/// An operation in flight holds a range of the file with preallocated blocks.
#[test]
fn preallocated_blocks_of_a_file_in_use_are_available() {
    /// The most blocks that the trees of the other files take, and that the operation has reserved.
    const KEPT: u64 = 8;
    let (device, volume) = volume(64, &untimed());
    let log = volume.open_direct("/log", &OpenOptions::read_write().create_new(true)).unwrap();
    for _ in 0..40 {
        log.append(&[1; BLOCK]).unwrap();
    }
    let mut queue = volume.io_queue(4);
    queue.submit(&log, IoRequest::Append { buf: AlignedBuf::zeroed(BLOCK), len: BLOCK }, 0, IoFlags::new());
    let ahead = log.inode_ref().metadata().sectors / 8 - 41;
    assert!(ahead > KEPT, "{ahead} blocks are preallocated");
    fill(&volume, 0);
    let other = volume.create_direct("/other").unwrap();
    other.allocate(0..(ahead - KEPT) * BLOCK as u64, FileSize::Extend).unwrap();
    let mut done = Vec::new();
    finish(&mut queue, &mut done);
    assert!(done.iter().all(|completion| completion.result.is_ok()) && log.size() == 41 * BLOCK as u64);
    drop((queue, log, other));
    volume.close().unwrap();
    assert_clean(&device, "preallocated blocks were used");
}

/// A write into a hole needs two indirect blocks and one for its data, but there are two blocks. An
/// operation in flight holds another range of the file, so that claims which the write leaves in it
/// stay.
#[test]
fn a_failed_write_of_a_file_without_extents_keeps_no_blocks() {
    let (device, volume) = volume_without_extents(4);
    let (file, other) = (volume.create_direct("/file").unwrap(), volume.create_direct("/other").unwrap());
    /// The first file block below the double indirect block.
    const DOUBLE: u64 = 12 + BLOCK as u64 / 4;
    file.write_all_at(&[1; BLOCK], 0).unwrap();
    for file in [&file, &other] {
        file.set_len((DOUBLE + 1) * BLOCK as u64).unwrap();
    }
    let fill = volume.create_direct("/fill").unwrap();
    while volume.space().available_blocks > 2 {
        fill.append(&[1; BLOCK]).unwrap();
        volume.sync().unwrap();
    }
    assert_eq!(volume.space().available_blocks, 2);
    let buffered = file.buffered().unwrap();
    let mut queue = volume.io_queue(1);
    let overwrite = IoRequest::Write { buf: AlignedBuf::zeroed(BLOCK), len: BLOCK, offset: 0 };
    queue.submit(&file, overwrite, 0, IoFlags::new());
    let end = DOUBLE * BLOCK as u64;
    assert!(matches!(file.write_all_at(&[2; BLOCK], end), Err(Error::NoSpace)));
    assert!(matches!(buffered.write_all_at(b"text", end), Err(Error::NoSpace)));
    other.write_all_at(&[3; 2 * BLOCK], 0).unwrap();
    finish(&mut queue, &mut Vec::new());
    drop((queue, file, other, fill));
    volume.close().unwrap();
    assert_clean(&device, "a failed write of a file without extents");
}
