//! Logs that are composed by choices, with revocations, flaws and fast commits: a replay in memory,
//! one on the device and one by e2fsck agree. The fuzz target `journal` does the same for longer.

use image_kinds::Kind;
use testkit::damage::{Anatomy, replay, replay_as_e2fsck, seeds};
use testkit::rng::Rng;
use testkit::{kinds, settings};

/// Kinds that a test run tries.
const SAMPLE: usize = 4;
/// Logs on each.
const LOGS: usize = 40;

#[test]
fn composed_logs_of_all_kinds_are_replayed_as_e2fsck_does() {
    let seed = settings::seed("composed");
    let usable = |kind: &Kind| kind.has_journal() && !kind.mke2fs.contains("mmp");
    kinds::for_each(kinds::sample(seed, SAMPLE, usable), seed, |kind, seed| {
        let Some(sound) = seeds(kind).map(|mut seeds| seeds.swap_remove(0)) else { return };
        let (anatomy, mut rng) = (Anatomy::of(&sound), Rng::new(seed, 0));
        let mut counts = [0; 3];
        for _ in 0..LOGS {
            let image = sound.fork();
            let Some(log) = anatomy.compose_log(&image, &mut rng) else { return };
            let has_fast_commits = rng.chance(40) && anatomy.compose_fast_commits(&image, log.next, &mut rng);
            replay(&image, &anatomy);
            let is_compared = log.is_sound && !has_fast_commits && rng.chance(25);
            if is_compared {
                replay_as_e2fsck(&image, &anatomy);
            }
            for (count, is_so) in counts.iter_mut().zip([log.is_sound, has_fast_commits, is_compared]) {
                *count += usize::from(is_so);
            }
        }
        eprintln!("{}: {LOGS} logs; sound, with fast commits, compared: {counts:?}", kind.name);
    });
}
