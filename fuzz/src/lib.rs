//! Sound images that the fuzz targets damage, and the limits under which they use them.
//!
//! `cargo xtask fuzz` builds the targets and runs them. A target that needs the images makes them
//! if there are none. An input of the fuzzer is a list of choices (which image, which fields, which
//! values), so inputs stay small.

#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

use image_kinds::{KINDS, combinations};
use parext4::MemDevice;
use testkit::choices::{Bytes, Choices};
use testkit::damage::{Anatomy, BUDGET, on_small_stack};
use testkit::peak_memory::measured;

/// The environment variable with a number N: a target keeps only one in N of the images in memory.
const ONE_IN: &str = "PAREXT4_FUZZ_ONE_IN";
/// The environment variable that has a target print what an input means.
const SHOW: &str = "PAREXT4_FUZZ_SHOW";

/// Returns the folder with the sound images. Makes images of all kinds in it, as sparse files, if
/// there is no such folder.
fn folder() -> io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    if !folder.exists() {
        // Complete when it gets its name.
        let making = folder.with_extension("part");
        std::fs::create_dir_all(&making)?;
        make_seeds(&making)?;
        std::fs::rename(making, &folder)?;
    }
    Ok(folder)
}

fn make_seeds(folder: &Path) -> io::Result<()> {
    // Volumes with multi-mount protection only open after a wait.
    let kinds = KINDS.iter().cloned().chain(combinations(1)).filter(|kind| !kind.mke2fs.contains("mmp"));
    for kind in kinds {
        for (nth, device) in testkit::damage::seeds(&kind).into_iter().flatten().enumerate() {
            let name: String = kind.name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
            device.save(folder.join(format!("{name}-{nth}")))?;
        }
    }
    Ok(())
}

/// A sound image, and its structures.
pub struct Seed {
    pub image: MemDevice,
    pub anatomy: Anatomy,
}

/// Reads the sound images; `select` chooses their structures, or leaves an image out.
///
/// # Panics
/// If mke2fs is not installed.
pub fn seeds(select: impl Fn(Anatomy) -> Option<Anatomy>) -> Vec<Seed> {
    let one_in = std::env::var(ONE_IN).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let entries = folder().and_then(std::fs::read_dir).expect("the folder of images");
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let seeds = paths.into_iter().step_by(one_in).filter_map(|path| {
        let image = MemDevice::from_bytes(std::fs::read(path).expect("an image"));
        let anatomy = select(Anatomy::of(&image))?;
        Some(Seed { image, anatomy })
    });
    let seeds: Vec<_> = seeds.collect();
    assert!(!seeds.is_empty(), "no images: mke2fs is not installed");
    seeds
}

/// Returns one of the images, by choice.
pub fn choose<'a>(seeds: &'a [Seed], choices: &mut Bytes<'_>) -> &'a Seed {
    choices.pick(seeds)
}

/// Damages a copy of an image as `choices` say, and returns it.
pub fn damaged(seed: &Seed, choices: &mut Bytes<'_>) -> MemDevice {
    let image = seed.image.fork();
    let changes = seed.anatomy.damage(&image, &mut |limit| choices.below(limit));
    show(&changes);
    image
}

/// Prints what an input means, if the environment asks for it.
pub fn show(what: &impl std::fmt::Debug) {
    if std::env::var_os(SHOW).is_some() {
        eprintln!("{what:#?}");
    }
}

/// Uses an image of `len` bytes in a thread with a small stack.
///
/// # Panics
/// If the use does, or if it needs more memory than twice the image and [`BUDGET`].
pub fn within_limits(len: u64, using: impl FnOnce() + Send) {
    let (result, memory) = measured(|| on_small_stack(using));
    assert!(result.is_ok(), "the message is above");
    assert!(memory <= BUDGET + 2 * len, "{} MiB for an image of {} MiB", memory >> 20, len >> 20);
}
