//! Sizes that are not multiples of the sector, set during reads and writes of other threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::{DirectFile, Error, MemDevice, Volume};

use testkit::rng::Rng;
use testkit::sector::SECTOR;
use testkit::settings;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};
use testkit::watchdog::Watchdog;

const THREADS: usize = 8;
const SPAN: u64 = 256 << 10;
const LONGEST: u64 = 16 << 10;

/// Returns the byte that every write puts at `place`: never 0, and different in neighbouring
/// sectors and blocks.
fn pattern(place: u64) -> u8 {
    let mixed = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    u8::try_from(mixed % 255).unwrap() + 1
}

fn patterned(first: u64, len: u64) -> Vec<u8> {
    (first..first + len).map(pattern).collect()
}

/// Returns the start of a sector, and a length of whole sectors.
fn place(rng: &mut Rng) -> (u64, u64) {
    let sector = SECTOR as u64;
    (rng.below(SPAN / sector) * sector, rng.log_uniform(LONGEST / sector) * sector)
}

fn read(file: &DirectFile, first: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    let count = file.read_at(&mut bytes, first).expect("read_at");
    bytes.truncate(count);
    bytes
}

/// One operation of many concurrent threads. Reads return the byte of the offset, or zeros.
fn operation(file: &DirectFile, rng: &mut Rng) {
    let (first, len) = place(rng);
    match rng.below(10) {
        0..4 => {
            for (place, byte) in (first..).zip(read(file, first, len)) {
                assert!(byte == 0 || byte == pattern(place), "byte {place} is {byte:#x}");
            }
        }
        4..7 => file.write_all_at(&patterned(first, len), first).expect("write_at"),
        7 => {
            // A write may end in the last sector where the file does.
            match file.write_all_at(&patterned(first, len - rng.below(500)), first) {
                Ok(()) | Err(Error::Invalid(_)) => {}
                Err(error) => panic!("write_at: {error}"),
            }
        }
        _ => file.set_len(rng.below(SPAN)).expect("set_len"),
    }
}

/// One thread against a model, byte by byte.
fn against_model(file: &DirectFile, rng: &mut Rng, operations: u32) {
    file.set_len(0).expect("set_len");
    let mut model: Vec<u8> = Vec::new();
    for number in 0..operations {
        let (first, len) = place(rng);
        let at = usize::try_from(first).unwrap();
        match rng.below(10) {
            0..4 => {
                let end = model.len().min(at + usize::try_from(len).unwrap());
                let want = model.get(at..end).unwrap_or_default();
                assert!(read(file, first, len) == want, "operation {number}: read {len} at {first}");
            }
            4..8 => {
                let odd = rng.chance(50) && first + len > model.len() as u64 + 500;
                let bytes = patterned(first, if odd { len - rng.below(500) } else { len });
                file.write_all_at(&bytes, first).expect("write_at");
                model.resize(model.len().max(at + bytes.len()), 0);
                model[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            _ => {
                let size = rng.below(SPAN);
                file.set_len(size).expect("set_len");
                model.resize(usize::try_from(size).unwrap(), 0);
            }
        }
        assert_eq!(file.size(), model.len() as u64);
    }
    assert!(read(file, 0, 2 * SPAN) == model, "the whole file");
}

fn run(name: &str, shape: Shape) {
    let seed = settings::seed(name);
    let device = Arc::new(shape.make());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<_>, &untimed()).expect("open");
    let file = volume.create_direct("/file").expect("create");
    let watchdog = Watchdog::start(name, seed, THREADS);
    let limit = settings::seconds(1.0);
    let deadline = Instant::now() + limit.min(Duration::from_secs(30));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (file, watchdog) = (&file, &watchdog);
            scope.spawn(move || {
                let mut rng = Rng::new(seed, thread as u64);
                while Instant::now() < deadline {
                    watchdog.watch(thread, || operation(file, &mut rng));
                }
            });
        }
    });
    against_model(&file, &mut Rng::new(seed, 99), 2000);
    let contents = read(&file, 0, 2 * SPAN);
    drop(file);
    volume.close().expect("close");
    reopened(&device, &contents);
    assert_clean(&device, name);
}

fn reopened(device: &Arc<MemDevice>, contents: &[u8]) {
    let volume = Volume::open_device(Arc::clone(device) as Arc<_>, &untimed()).expect("open again");
    let file = volume.direct_file("/file").expect("open_file");
    assert!(read(&file, 0, 2 * SPAN) == contents, "another open finds other contents");
}

#[test]
fn odd_sizes_1k() {
    run("odd_sizes_1k", Shape::new(16, 1024, true));
}

#[test]
fn odd_sizes_4k_no_journal() {
    run("odd_sizes_4k_no_journal", Shape::new(16, 4096, false));
}
