//! Files that a cache cannot hold, or only just: threads that share one beside threads that have one each.

use super::{Case, EXT4, LOOP, PLAIN, Scale, XFS, cached, job, row};
use crate::job::{Job, Layout, Rw};

/// The working set as a multiple of the cache.
const MULTIPLES: [u64; 3] = [1, 2, 4];

/// Overwrites, and reads and overwrites by turns. All jobs are in step: otherwise jobs whose own files are in memory run at
/// its speed and keep them there, and the total says how many operations missed the cache, not what a miss costs.
pub fn cases(scale: Scale) -> Vec<Case> {
    let cache = scale.size / 8;
    let each = [PLAIN, EXT4, XFS].map(|run| [run, run.per_job()]).concat();
    let runs = [&each[..2], &[LOOP], &each[2..]].concat();
    let case = |name: &str, rw, multiple: u64| {
        let job = Job {
            size: cache * multiple,
            in_step: true,
            runtime: scale.runtime / 2,
            // Writes cost less until the first ones are written back.
            ramp: scale.runtime / 4,
            ..cached(job(scale, Layout::Written, 4096, 8, 1), rw)
        };
        Case { cache: Some(cache), ..row("pressure", &format!("pressure-{name}-4k-{multiple}x"), job, &runs) }
    };
    let cases = [("overwrite", Rw::RandWrite), ("randrw", Rw::RandMixed)];
    cases.into_iter().flat_map(|(name, rw)| MULTIPLES.map(|multiple| case(name, rw, multiple))).collect()
}
