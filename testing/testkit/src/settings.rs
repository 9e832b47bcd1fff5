//! Settings of the tests from the environment: durations, numbers of operations, seeds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the duration of one configuration: `PAREXT4_STRESS_SECONDS`, else `default`.
pub fn seconds(default: f64) -> Duration {
    Duration::from_secs_f64(number("PAREXT4_STRESS_SECONDS").unwrap_or(default))
}

/// Returns true if tests should try every case instead of a sample: `PAREXT4_STRESS_ALL=1`.
pub fn all() -> bool {
    number::<u32>("PAREXT4_STRESS_ALL").is_some_and(|value| value != 0)
}

/// Returns a part of the names of the only kinds of images to test: `PAREXT4_KIND`.
pub fn kind() -> Option<String> {
    std::env::var("PAREXT4_KIND").ok()
}

/// Returns the number of damaged images that tests make of each kind: `PAREXT4_DAMAGE`.
pub fn damaged_images() -> usize {
    number("PAREXT4_DAMAGE").unwrap_or(25)
}

/// Returns the only fault of the fault sweep: `PAREXT4_FAULT`.
pub fn fault() -> Option<String> {
    std::env::var("PAREXT4_FAULT").ok()
}

/// Returns the largest number of cases that a sample of the fault sweep has of each kind:
/// `PAREXT4_FAULT_SAMPLE`.
pub fn fault_sample() -> u64 {
    number("PAREXT4_FAULT_SAMPLE").unwrap_or(u64::MAX)
}

/// Returns the number of operations in each configuration of the random tests of one file:
/// `PAREXT4_FSX_OPS`.
pub fn fsx_ops() -> u64 {
    number("PAREXT4_FSX_OPS").unwrap_or(2000)
}

/// Returns the number of operations of each thread that works on names of a mount:
/// `PAREXT4_NAMES_OPS`.
pub fn names_ops() -> u64 {
    number("PAREXT4_NAMES_OPS").unwrap_or(1000)
}

/// Returns how often tests kill the server of a mount: `PAREXT4_KILL_ROUNDS`.
pub fn kill_rounds() -> u64 {
    number("PAREXT4_KILL_ROUNDS").unwrap_or(6)
}

/// Returns the server that images of tests are on, if they are not in files: `PAREXT4_TEST_SERVER`.
pub fn server() -> Option<String> {
    std::env::var("PAREXT4_TEST_SERVER").ok()
}

/// Returns how often tests kill the NBD server of a volume: `PAREXT4_NBD_KILLS`.
pub fn nbd_kills() -> u64 {
    number("PAREXT4_NBD_KILLS").unwrap_or(6)
}

/// Returns the duration of each test of mixed handles on a mount: `PAREXT4_MIXED_SECONDS`.
pub fn mixed_seconds() -> Duration {
    Duration::from_secs_f64(number("PAREXT4_MIXED_SECONDS").unwrap_or(2.0))
}

/// Returns the size in MiB of the file with which memory use is measured: `PAREXT4_MEMORY_MIB`.
pub fn memory_mib() -> u64 {
    number("PAREXT4_MEMORY_MIB").unwrap_or(256)
}

/// Returns the seed of all random choices of the test `name`, and prints it: `PAREXT4_STRESS_SEED`,
/// or else the clock.
pub fn seed(name: &str) -> u64 {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the random ones")]
    let seed = number("PAREXT4_STRESS_SEED").unwrap_or_else(|| clock() as u64);
    eprintln!("{name}: PAREXT4_STRESS_SEED={seed} repeats the choices of this run");
    seed
}

/// Returns the seed `default`, or the one that [`seed`] would return if the environment has one.
pub fn fixed_seed(name: &str, default: u64) -> u64 {
    std::env::var("PAREXT4_STRESS_SEED").map_or(default, |_| seed(name))
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    let value = text.parse().ok();
    assert!(value.is_some(), "{variable}={text} is not a number");
    value
}
