//! Runs tests over the kinds of images of `image-kinds`: a sample, all with `PAREXT4_STRESS_ALL=1`, or those whose name contains
//! `PAREXT4_KIND`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use image_kinds::{KINDS, Kind, combinations};

use crate::rng::Rng;
use crate::settings;

/// Returns `alone` of the kinds of single features and `combined` combinations of features, from `seed`.
pub fn sample(seed: u64, alone: usize, combined: usize) -> Vec<Kind> {
    let combinations = combinations(seed);
    if let Some(name) = settings::kind() {
        let all = KINDS.iter().cloned().chain(combinations);
        return all.filter(|kind| kind.name.contains(&name)).collect();
    }
    let (alone, combined) = if settings::all() { (usize::MAX, usize::MAX) } else { (alone, combined) };
    let mut rng = Rng::new(seed, 0);
    let mut kinds = choose(KINDS.to_vec(), alone, &mut rng);
    kinds.extend(choose(combinations, combined, &mut rng));
    kinds
}

fn choose(mut kinds: Vec<Kind>, count: usize, rng: &mut Rng) -> Vec<Kind> {
    while kinds.len() > count {
        kinds.remove(usize::try_from(rng.below(kinds.len() as u64)).expect("below a length"));
    }
    kinds
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
