//! Runs tests over the kinds of images of `image-kinds`: over a sample, over all kinds with
//! `PAREXT4_STRESS_ALL=1`, or over the kinds with `PAREXT4_KIND` in their names.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use image_kinds::{KINDS, Kind, combinations};

use parext4::MemDevice;

use crate::rng::Rng;
use crate::{Image, settings, skip_allowed};

/// Returns `count` of the usable kinds, chosen by a seed, which also determines the combinations of
/// features.
pub fn sample(seed: u64, count: usize, usable: impl Fn(&Kind) -> bool) -> Vec<Kind> {
    let name = settings::kind();
    let is_named = |kind: &Kind| name.as_ref().is_none_or(|name| kind.name.contains(name));
    let all = KINDS.iter().cloned().chain(combinations(seed));
    let mut kinds: Vec<_> = all.filter(|kind| is_named(kind) && usable(kind)).collect();
    let count = if settings::all() || name.is_some() { kinds.len() } else { count };
    let mut rng = Rng::new(seed, 0);
    while kinds.len() > count {
        kinds.remove(usize::try_from(rng.below(kinds.len() as u64)).expect("below a length"));
    }
    kinds
}

/// Makes an empty volume of a kind in memory, on a device full of old bytes. `None`, after a call
/// of [`skipped`](crate::skipped), if mke2fs is not installed, or refuses a combination of
/// features.
///
/// # Panics
/// If mke2fs refuses a kind of the table.
pub fn in_memory(kind: &Kind) -> Option<MemDevice> {
    accepted(kind, Image::of_kind_on_old_bytes(kind)?).map(|image| image.load())
}

/// Returns the image that was made of a kind. `None`, after a call of [`skip_allowed`], if mke2fs
/// refused a combination of features.
///
/// # Panics
/// If mke2fs refused a kind of the table.
pub fn accepted(kind: &Kind, made: Result<Image, String>) -> Option<Image> {
    if let Err(message) = &made {
        assert!(kind.name.starts_with("combination"), "{message}");
        skip_allowed(message);
    }
    made.ok()
}

/// Calls `test` with each kind and a seed of its own, on as many threads as there are processors.
///
/// # Panics
/// If a call panics; with the names of all kinds for which it did.
pub fn for_each(kinds: Vec<Kind>, seed: u64, test: impl Fn(&Kind, u64) + Sync) {
    let queue = Mutex::new(kinds.into_iter());
    let failed = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(kind) = { queue.lock().expect("no thread panics with it").next() } {
                    eprintln!("{}: {}", kind.name, kind.mke2fs);
                    let own =
                        kind.name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
                    if catch_unwind(AssertUnwindSafe(|| test(&kind, own))).is_err() {
                        failed
                            .lock()
                            .expect("no thread panics with it")
                            .push(format!("{} ({})", kind.name, kind.mke2fs));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics with it");
    assert!(failed.is_empty(), "seed {seed}: failed for {}", failed.join("; "));
}
