//! A page cache that is far too small for the threads that write through it, and calls that change the layout of the
//! whole file between them: all come to an end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::{BufferedOptions, OpenOptions, Volume};

use crate::common::memory::{Shape, assert_clean, untimed};
use crate::common::rng::Rng;
use crate::common::settings;
use crate::common::watchdog::Watchdog;

/// More than there are pages.
const WRITERS: usize = 96;
const SIZE: u64 = 8 << 20;

fn run(name: &str, most: u64) {
    let seed = settings::seed(name);
    let device = Arc::new(Shape::new(64, 4096, true).make());
    let write_back_interval = Some(Duration::from_millis(20));
    let options = OpenOptions { cache_size: 128 << 10, write_back_interval, ..untimed() };
    let volume = Volume::open(Arc::clone(&device) as Arc<_>, &options).unwrap();
    let file = volume.create("/f", 0o644).unwrap().buffered(BufferedOptions::default()).unwrap();
    file.file().set_len(SIZE).unwrap();
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
                    let at = rng.below(SIZE - len);
                    watchdog
                        .watch(writer, || file.write_at(&data[..usize::try_from(len).unwrap()], at).unwrap());
                }
            });
        }
        scope.spawn(move || {
            let mut rng = Rng::new(seed, WRITERS as u64);
            while Instant::now() < deadline {
                watchdog.watch(WRITERS, || match rng.below(2) {
                    0 => file.file().punch_hole(0, SIZE).unwrap(),
                    _ => file.file().zero_range(0, SIZE, true).unwrap(),
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
    run("writes_of_parts_of_pages_end", 2048);
}

#[test]
fn writes_of_several_pages_end() {
    run("writes_of_several_pages_end", 40_000);
}
