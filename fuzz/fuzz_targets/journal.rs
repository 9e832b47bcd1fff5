//! Damages the log of an image that a crash left, or composes another one, with revocations and
//! fast commits, and replays it.

#![no_main]

use std::sync::LazyLock;

use parext4::Device as _;
use parext4_fuzz::{Seed, choose, damaged, seeds, show, within_limits};
use testkit::choices::{Bytes, Choices};
use testkit::damage::{Anatomy, replay, replay_as_e2fsck};

static SEEDS: LazyLock<Vec<Seed>> =
    LazyLock::new(|| seeds(|anatomy| anatomy.has_journal().then_some(anatomy)));
/// The same images if they have a log, with only the structures of the log.
static LOGS: LazyLock<Vec<Seed>> = LazyLock::new(|| {
    let logs = SEEDS.iter().filter(|seed| seed.anatomy.has_log());
    logs.map(|seed| Seed { image: seed.image.fork(), anatomy: Anatomy::of(&seed.image).only_journal() })
        .collect()
});

/// e2fsck replays one in this number of sound logs.
const SAMPLE: u64 = 8;

libfuzzer_sys::fuzz_target!(init: { LazyLock::force(&LOGS); }, |data: &[u8]| {
    let mut choices = Bytes::new(data);
    if choices.below(3) == 0 {
        let seed = choose(&LOGS, &mut choices);
        let image = damaged(seed, &mut choices);
        return within_limits(image.size(), || replay(&image, &seed.anatomy));
    }
    let seed = choose(&SEEDS, &mut choices);
    let image = seed.image.fork();
    let Some(log) = seed.anatomy.compose_log(&image, &mut choices) else { return };
    show(&log);
    let has_fast_commits =
        choices.chance(50) && seed.anatomy.compose_fast_commits(&image, log.next, &mut choices);
    if log.is_sound && !has_fast_commits && choices.below(SAMPLE) == 0 {
        replay_as_e2fsck(&image, &seed.anatomy);
    }
    if choices.chance(25) {
        let changes = Anatomy::of(&image).only_journal().damage(&image, &mut |limit| choices.below(limit));
        show(&changes);
    }
    within_limits(image.size(), || replay(&image, &seed.anatomy));
});
