//! A page cache that is far too small for the threads that write through it, and calls that change
//! the layout of the whole file: all of them complete.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::{FileSize, Volume};

use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};
use testkit::watchdog::Watchdog;

/// More threads than the smaller cache has pages.
const WRITERS: usize = 96;
const VOLUME: u64 = 64 << 20;

struct Setting {
    cache_size: u64,
    /// Bytes of the file.
    size: u64,
    /// Bytes of the longest write.
    most: u64,
}

fn run(name: &str, setting: &Setting) {
    let &Setting { cache_size, size, most } = setting;
    let seed = settings::seed(name);
    let device = Arc::new(Shape::new(64, 4096, true).make());
    let write_back_interval = Some(Duration::from_millis(20));
    let options = untimed().cache_bytes(cache_size).write_back_interval(write_back_interval);
    let volume = Volume::open_device(Arc::clone(&device) as Arc<_>, &options).unwrap();
    let file = volume.create_direct("/f").unwrap().buffered().unwrap();
    file.set_len(size).unwrap();
    let watchdog = Watchdog::start(name, seed, WRITERS + 1);
    let deadline = Instant::now() + settings::seconds(3.0);
    std::thread::scope(|scope| {
        let (file, watchdog) = (&file, &watchdog);
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut rng = Rng::new(seed, writer as u64);
                let data = vec![writer as u8; usize::try_from(most).unwrap()];
                while Instant::now() < deadline {
                    let len = 1 + rng.below(most);
                    let at = rng.below(size - len);
                    let data = &data[..usize::try_from(len).unwrap()];
                    watchdog.watch(writer, || file.write_all_at(data, at).unwrap());
                }
            });
        }
        scope.spawn(move || {
            let mut rng = Rng::new(seed, WRITERS as u64);
            while Instant::now() < deadline {
                // Fails: the volume has too few blocks to zero.
                watchdog.watch(WRITERS, || match size > VOLUME || rng.chance(50) {
                    true => file.punch_hole(0..size).unwrap(),
                    false => file.zero_range(0..size, FileSize::Keep).unwrap(),
                });
            }
        });
    });
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, name);
}

#[test]
fn writes_of_parts_of_pages_end() {
    let setting = Setting { cache_size: 128 << 10, size: 8 << 20, most: 2048 };
    run("writes_of_parts_of_pages_end", &setting);
}

#[test]
fn writes_of_several_pages_end() {
    let setting = Setting { cache_size: 128 << 10, size: 8 << 20, most: 40_000 };
    run("writes_of_several_pages_end", &setting);
}

/// Each page needs several tree nodes of the cache, so the nodes run out before the pages.
#[test]
fn writes_far_apart_complete() {
    let setting = Setting { cache_size: 2 << 20, size: 15 << 40, most: 100 };
    run("writes_far_apart_complete", &setting);
}
