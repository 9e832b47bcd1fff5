//! Damages any structure of an image, and then uses the image in every way.

#![no_main]

use std::sync::LazyLock;

use parext4_fuzz::{Seed, damaged, seeds};
use testkit::damage::exercise;

static SEEDS: LazyLock<Vec<Seed>> = LazyLock::new(|| seeds(Some));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    exercise(damaged(&SEEDS, data));
});
