//! Damages any structure of an image, and then uses the image in every way.

#![no_main]

use std::sync::LazyLock;

use parext4::Device as _;
use parext4_fuzz::{Seed, choose, damaged, seeds, within_limits};
use testkit::choices::Bytes;
use testkit::damage::exercise;

static SEEDS: LazyLock<Vec<Seed>> = LazyLock::new(|| seeds(Some));

libfuzzer_sys::fuzz_target!(init: { LazyLock::force(&SEEDS); }, |data: &[u8]| {
    let mut choices = Bytes::new(data);
    let image = damaged(choose(&SEEDS, &mut choices), &mut choices);
    within_limits(image.size(), move || { let _ = exercise(image); });
});
