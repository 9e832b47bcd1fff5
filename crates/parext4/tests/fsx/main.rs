//! Random operations of every kind on one file, alternately buffered and direct, against a model in
//! memory, with a cache smaller than the file; in the manner of fsx.
//!
//! Run with `cargo test -p parext4 --profile stress --test fsx`. `PAREXT4_FSX_OPS` is the number of
//! operations of each configuration.

mod file;

use file::FileUnderTest;
use testkit::ops::file_ops::FSX;
use testkit::rng::Rng;
use testkit::volume::Shape;
use testkit::watchdog::Watchdog;
use testkit::{kinds, settings};

/// Operations between two checks of the whole file, and between two checks of the whole volume.
const LOOK: u64 = 500;
const CLOSE: u64 = 10_000;
/// How often the kernel and parext4 take turns.
const TURNS: u64 = 4;

fn run(block_size: u32, cache_size: u64, stream: u64) {
    run_on(Shape::new(24, block_size, true), cache_size, stream);
}

fn run_on(shape: Shape, cache_size: u64, stream: u64) {
    let (block_size, extents) = (shape.block_size, shape.has_extents());
    let clusters = shape.cluster_blocks;
    let what = format!(
        "blocks of {block_size}, clusters of {clusters}, extents: {extents}, a cache of {} KiB",
        cache_size >> 10
    );
    let mut rng = Rng::new(settings::seed(&what), stream);
    let tested = FileUnderTest::new(shape, cache_size);
    run_ops(tested, settings::fsx_ops(), &mut rng, &what);
}

fn run_ops(mut tested: FileUnderTest, ops: u64, rng: &mut Rng, what: &str) {
    let watchdog = Watchdog::start(what, 0, 1);
    for nth in 1..=ops {
        let op = FSX.random(rng, &tested.shape());
        watchdog.watch(0, || tested.apply(nth, op));
        if nth % LOOK == 0 {
            watchdog.watch(0, || tested.check_all());
        }
        if nth % CLOSE == 0 {
            tested.reopen();
        }
    }
    tested.reopen();
    tested.close();
}

/// Fewer operations on each of several kinds of images.
#[test]
fn a_file_on_all_kinds_of_images() {
    let seed = settings::seed("kinds");
    kinds::for_each(kinds::sample(seed, 5, |_| true), seed, |kind, seed| {
        let Some(device) = kinds::in_memory(kind) else { return };
        let tested = FileUnderTest::on(device, kind.has_extents(), 1 << 20);
        run_ops(tested, settings::fsx_ops() / 5, &mut Rng::new(seed, 0), &kind.name);
    });
}

#[test]
fn blocks_of_1k_under_pressure() {
    run(1024, 1 << 20, 1);
}

#[test]
fn blocks_of_2k_under_pressure() {
    run(2048, 1 << 20, 2);
}

#[test]
fn blocks_of_4k_under_pressure() {
    run(4096, 1 << 20, 3);
}

#[test]
fn blocks_of_16k_under_pressure() {
    run_on(Shape::new(48, 16384, true), 4 << 20, 8);
}

#[test]
fn blocks_of_64k_under_pressure() {
    run_on(Shape::new(128, 65536, true), 4 << 20, 9);
}

#[test]
fn blocks_of_1k_all_in_memory() {
    run(1024, 64 << 20, 4);
}

#[test]
fn blocks_of_4k_all_in_memory() {
    run(4096, 64 << 20, 5);
}

#[test]
fn indirect_blocks_of_1k_under_pressure() {
    run_on(Shape::new(24, 1024, true).without_extents(), 1 << 20, 6);
}

#[test]
fn indirect_blocks_of_64k_under_pressure() {
    run_on(Shape::new(64, 65536, false).without_extents(), 4 << 20, 10);
}

#[test]
fn clusters_of_4_small_blocks_under_pressure() {
    run_on(Shape::new(24, 1024, true).with_clusters(4), 1 << 20, 8);
}

#[test]
fn clusters_of_16_blocks_under_pressure() {
    run_on(Shape::new(24, 4096, true).with_clusters(16), 1 << 20, 9);
}

#[test]
fn clusters_of_64_small_blocks_all_in_memory() {
    run_on(Shape::new(24, 1024, true).with_clusters(64), 64 << 20, 10);
}

/// The kernel and parext4 change one file in turn, with clusters that the other one has left in
/// part.
#[test]
fn clusters_in_turn_with_the_kernel() {
    for (stream, (block_size, clusters)) in (11..).zip([(1024, 2), (1024, 16), (4096, 4), (4096, 32)]) {
        let what = format!("in turn, blocks of {block_size}, clusters of {clusters}");
        let mut rng = Rng::new(settings::seed(&what), stream);
        let mut tested =
            FileUnderTest::new(Shape::new(24, block_size, true).with_clusters(clusters), 1 << 20);
        let watchdog = Watchdog::start(&what, 0, 1);
        for turn in 1..=TURNS {
            for nth in 0..settings::fsx_ops() / 20 {
                let op = FSX.random(&mut rng, &tested.shape());
                watchdog.watch(0, || tested.apply(turn * 1000 + nth, op));
            }
            if !watchdog.watch(0, || tested.change_by_kernel(&mut rng, settings::fsx_ops() / 20)) {
                return;
            }
        }
        tested.close();
    }
}

#[test]
fn indirect_blocks_of_4k_all_in_memory() {
    run_on(Shape::new(24, 4096, true).without_extents(), 64 << 20, 7);
}
