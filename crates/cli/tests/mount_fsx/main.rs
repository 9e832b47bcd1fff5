//! Random operations of every kind on one file of a mount, compared with a model in memory, in the
//! manner of fsx: through the kernel's cache, with `O_DIRECT`, and mapped.
//!
//! `PAREXT4_FSX_OPS` sets the number of operations of each configuration. `cargo xtask mount-fsx`
//! does 250,000.

mod file;
mod mapping;

use file::FileUnderTest;
use mapping::Mapping;
use testkit::fuse_mount::FuseMount;
use testkit::ops::file_ops::FSX;
use testkit::rng::Rng;
use testkit::settings;

/// Number of operations between two checks of the whole file, and between two checks of the whole
/// volume.
const LOOK: u64 = 500;
const CLOSE: u64 = 20_000;

fn run(block_size: u64, options: &str) {
    let what = format!("{options}, blocks of {block_size}");
    let Some(fuse) = FuseMount::new(&["--block-size", &block_size.to_string()]) else { return };
    if !Mapping::is_possible() {
        return;
    }
    let mut rng = Rng::new(settings::seed(&what), block_size);
    let mut tested = FileUnderTest::new(fuse, options, block_size);
    for nth in 1..=settings::fsx_ops() {
        let op = FSX.random(&mut rng, &tested.shape());
        tested.apply(nth, op, rng.chance(40));
        if nth % LOOK == 0 {
            tested.check_all();
        }
        if nth % CLOSE == 0 {
            tested.reopen();
        }
    }
    println!("{what}: {}", tested.close());
}

#[test]
fn kernel_cache_blocks_of_1k() {
    run(1024, "cache=kernel");
}

#[test]
fn kernel_cache_blocks_of_4k() {
    run(4096, "cache=kernel,threads=1");
}

#[test]
fn kernel_cache_blocks_of_64k() {
    run(65536, "cache=kernel");
}

#[test]
fn writeback_blocks_of_16k() {
    run(16384, "cache=writeback");
}

#[test]
fn direct_blocks_of_64k() {
    run(65536, "cache=direct");
}

#[test]
fn writeback_blocks_of_1k() {
    run(1024, "cache=writeback,threads=1");
}

#[test]
fn writeback_blocks_of_4k() {
    run(4096, "cache=writeback");
}

#[test]
fn direct_blocks_of_1k() {
    run(1024, "cache=direct");
}

#[test]
fn direct_blocks_of_4k() {
    run(4096, "cache=direct,threads=1");
}
