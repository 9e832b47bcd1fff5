//! A mount under mixed load: handles of every kind on one file, by several users, with thousands of
//! requests in flight, on half full and on full volumes. The kernel's ext4 is the reference.
//!
//! *Scripts* run the same steps on two volumes and compare all results. *Concurrent* tests have
//! many threads whose reads must return the data that was written, and processes that are killed.
//! Both mount the volume again from time to time. `PAREXT4_MIXED_SECONDS` sets the duration of each
//! test. `cargo xtask mount-mixed --seconds N` runs them for longer.

mod concurrent;
mod engines;
mod mapping;
mod script;
mod side;
mod usage;
mod users;
mod watch;

use std::time::Instant;

use concurrent::Shape;
use side::Kind;
use testkit::settings;

/// Runs scripts one after another until the time is over.
fn scripts(test: &str, kinds: [Kind; 2], block_size: u32) {
    let first = settings::seed(test);
    let deadline = Instant::now() + settings::mixed_seconds();
    for seed in first.. {
        let name = repeat(test, seed);
        if script::run(&name, seed, kinds, block_size).is_none() || Instant::now() >= deadline {
            return;
        }
    }
}

/// Returns the command that repeats a run.
fn repeat(test: &str, seed: u64) -> String {
    format!(
        "PAREXT4_STRESS_SEED={seed} PAREXT4_MIXED_SECONDS=0 cargo test -p parext4-cli --test mount_mixed -- --exact {test}"
    )
}

/// Compares the kernel's ext4 with itself, which checks that no compared result depends on time.
#[test]
fn scripts_on_the_kernel_twice() {
    scripts("scripts_on_the_kernel_twice", [Kind::Kernel; 2], 4096);
}

#[test]
fn scripts_kernel_cache() {
    scripts("scripts_kernel_cache", [Kind::Kernel, Kind::Ours("cache=kernel")], 4096);
}

#[test]
fn scripts_kernel_cache_blocks_of_1k() {
    scripts("scripts_kernel_cache_blocks_of_1k", [Kind::Kernel, Kind::Ours("cache=kernel,threads=1")], 1024);
}

#[test]
fn scripts_writeback() {
    scripts("scripts_writeback", [Kind::Kernel, script::WRITES_BACK], 4096);
}

#[test]
fn scripts_direct() {
    scripts("scripts_direct", [Kind::Kernel, Kind::Ours("cache=direct")], 1024);
}

const HALF_FULL: Shape =
    Shape { workers: 24, depth: 64, files: 3, region: 128, free: Some(24 << 20), clients: 2 };
const FULL: Shape = Shape { free: Some(1 << 20), clients: 0, ..HALF_FULL };
/// Number of threads: more than the server has.
const MANY_THREADS: Shape = Shape { workers: 700, depth: 2, files: 1, region: 32, free: None, clients: 1 };
/// Up to 6,144 transfers in flight.
const MANY_TRANSFERS: Shape = Shape { depth: 256, region: 512, free: None, ..HALF_FULL };

fn concurrent(test: &str, kind: Kind, block_size: u32, shape: Shape) {
    let seed = settings::seed(test);
    concurrent::run(&repeat(test, seed), seed, kind, block_size, shape, settings::mixed_seconds());
}

#[test]
fn concurrent_on_the_kernel() {
    concurrent("concurrent_on_the_kernel", Kind::Kernel, 4096, HALF_FULL);
}

#[test]
fn concurrent_on_the_kernel_full() {
    concurrent("concurrent_on_the_kernel_full", Kind::Kernel, 1024, FULL);
}

#[test]
fn concurrent_on_the_kernel_many_threads() {
    concurrent("concurrent_on_the_kernel_many_threads", Kind::Kernel, 4096, MANY_THREADS);
}

#[test]
fn concurrent_kernel_cache() {
    concurrent("concurrent_kernel_cache", Kind::Ours("cache=kernel"), 4096, HALF_FULL);
}

#[test]
fn concurrent_kernel_cache_full() {
    concurrent("concurrent_kernel_cache_full", Kind::Ours("cache=kernel"), 1024, FULL);
}

#[test]
fn concurrent_kernel_cache_many_threads() {
    concurrent("concurrent_kernel_cache_many_threads", Kind::Ours("cache=kernel"), 4096, MANY_THREADS);
}

#[test]
fn concurrent_kernel_cache_many_transfers() {
    concurrent("concurrent_kernel_cache_many_transfers", Kind::Ours("cache=kernel"), 4096, MANY_TRANSFERS);
}

#[test]
fn concurrent_writeback_full() {
    concurrent("concurrent_writeback_full", Kind::Ours("cache=writeback"), 4096, FULL);
}

#[test]
fn concurrent_writeback_many_transfers() {
    concurrent("concurrent_writeback_many_transfers", Kind::Ours("cache=writeback"), 1024, MANY_TRANSFERS);
}

#[test]
fn concurrent_writeback_many_threads() {
    concurrent("concurrent_writeback_many_threads", Kind::Ours("cache=writeback"), 4096, MANY_THREADS);
}

#[test]
fn concurrent_writeback() {
    concurrent("concurrent_writeback", Kind::Ours("cache=writeback"), 4096, HALF_FULL);
}

#[test]
fn concurrent_direct() {
    concurrent("concurrent_direct", Kind::Ours("cache=direct"), 1024, HALF_FULL);
}

#[test]
fn concurrent_direct_full() {
    concurrent("concurrent_direct_full", Kind::Ours("cache=direct"), 4096, FULL);
}

#[test]
#[ignore = "a process that the concurrent tests start and kill"]
fn client_that_is_killed() {
    concurrent::work_until_killed();
}
