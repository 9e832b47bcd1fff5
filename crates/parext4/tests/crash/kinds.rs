//! Crashes of a workload on the kinds of images that mke2fs makes: each state recovers here and
//! with e2fsck.

use image_kinds::Kind;
use testkit::{kinds, settings};

use super::sequence::Recording;

/// Kinds that a test run tries.
const SAMPLE: usize = 5;
/// Operations on each.
const OPERATIONS: usize = 80;

#[test]
fn crashes_of_all_kinds() {
    let seed = settings::seed("kinds");
    // Without a journal, a crash may damage the volume. A volume with multi-mount protection only
    // opens after a wait.
    let usable = |kind: &Kind| kind.has_journal() && !kind.mke2fs.contains("mmp");
    kinds::for_each(kinds::sample(seed, SAMPLE, usable), seed, |kind, seed| {
        let Some(base) = kinds::in_memory(kind) else { return };
        let mut recording = Recording::new(base, kind.has_extents(), seed);
        recording.record(OPERATIONS);
        eprintln!("{}: {} crashes", kind.name, recording.check());
    });
}
