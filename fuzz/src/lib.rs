//! Sound images that the fuzz targets damage, and choices from the bytes of the fuzzer.
//!
//! `cargo run --release --example seeds`, in this folder, makes the images once, with mke2fs. `cargo +nightly fuzz run image` then
//! damages them: each input of the fuzzer is a list of choices (which image, which fields, which values), so inputs stay small. A run
//! with limits of time and memory for each input:
//!
//! ```sh
//! cargo +nightly fuzz run --sanitizer none image -- -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=96
//! ```

#![forbid(unsafe_code)]

use std::path::PathBuf;

use parext4::MemDevice;
use testkit::damage::Anatomy;

/// The environment variable with a number N: a target keeps only one in N of the images in memory.
const ONE_IN: &str = "PAREXT4_FUZZ_ONE_IN";

/// Returns the folder with the sound images.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

/// A sound image, and its structures.
pub struct Seed {
    image: MemDevice,
    anatomy: Anatomy,
}

/// Reads the sound images; `select` chooses their structures, or leaves an image out.
///
/// # Panics
/// If there are none.
pub fn seeds(select: impl Fn(Anatomy) -> Option<Anatomy>) -> Vec<Seed> {
    let one_in = std::env::var(ONE_IN).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder()).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let seeds = paths.into_iter().step_by(one_in).filter_map(|path| {
        let image = MemDevice::from_bytes(std::fs::read(path).expect("an image"));
        let anatomy = select(Anatomy::of(&image))?;
        Some(Seed { image, anatomy })
    });
    let seeds: Vec<_> = seeds.collect();
    assert!(!seeds.is_empty(), "no images; make them with `cargo run --release --example seeds`");
    seeds
}

/// Damages one of the images as the choices in `data` say, and returns it.
pub fn damaged(seeds: &[Seed], data: &[u8]) -> MemDevice {
    let mut choices = Choices(data);
    let seed = &seeds[usize::try_from(choices.below(seeds.len() as u64)).expect("an index")];
    let image = seed.image.fork();
    let changes = seed.anatomy.damage(&image, &mut |limit| choices.below(limit));
    if std::env::var_os("PAREXT4_FUZZ_SHOW").is_some() {
        eprintln!("{changes:#?}");
    }
    image
}

/// The bytes of the fuzzer that are left. After the last one, all choices are 0.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    /// Returns a number below `limit` from as many bytes as it needs.
    fn below(&mut self, limit: u64) -> u64 {
        let bytes = (64 - (limit - 1).leading_zeros()).div_ceil(8) as usize;
        let (used, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        used.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) % limit
    }
}
