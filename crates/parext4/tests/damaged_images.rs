//! Damaged images of all kinds: every use of one ends, without a panic, with little memory and a
//! small stack. A test program of its own, because it measures the peak of the process's resident
//! memory. `fuzz/` does the same for longer.
//!
//! `PAREXT4_DAMAGE` is the number of damaged images of each kind.

use testkit::damage::{Anatomy, BUDGET, exercise, on_small_stack, seeds};
use testkit::peak_memory::measured;
use testkit::rng::Rng;
use testkit::watchdog::Watchdog;
use testkit::{kinds, settings};

/// Kinds that a test run tries.
const SAMPLE: usize = 12;

#[test]
fn damaged_images_of_all_kinds_do_no_harm() {
    let seed = settings::seed("damage");
    // A volume with multi-mount protection only opens after a wait.
    for kind in kinds::sample(seed, SAMPLE, |kind| !kind.mke2fs.contains("mmp")) {
        let Some(sound) = seeds(&kind) else { continue };
        let anatomies: Vec<_> = sound.iter().map(Anatomy::of).collect();
        eprintln!("{}: {:?}", kind.name, anatomies.iter().map(Anatomy::counts).collect::<Vec<_>>());
        let mut rng = Rng::new(seed, kind.name.bytes().map(u64::from).sum());
        let mut opened = 0;
        for nth in 0..settings::damaged_images() {
            let which = nth % sound.len();
            let device = sound[which].fork();
            let changes = anatomies[which].damage(&device, &mut |limit| rng.below(limit));
            let what = format!("{} ({}), image {nth}: {changes:#?}", kind.name, kind.mke2fs);
            let watchdog = Watchdog::start(&what, seed, 1);
            let (result, memory) = measured(|| watchdog.watch(0, || on_small_stack(|| exercise(device))));
            opened += usize::from(result.unwrap_or_else(|_| panic!("{what}")));
            let limit = BUDGET + (kind.mib << 21);
            assert!(memory <= limit, "{what}: {} MiB", memory >> 20);
        }
        eprintln!("{}: {opened} could be opened", kind.name);
    }
}
