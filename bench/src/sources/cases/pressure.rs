//! Cases with files as large as the cache, and larger.

use super::{Case, EXT4, LOOP, PLAIN, Scale, XFS, cached, job, row};
use crate::job::{Job, Layout, Rw};

/// Sizes of the files, as multiples of the cache.
const MULTIPLES: [u64; 3] = [1, 2, 4];

/// Returns the cases: overwrites, and a mix of reads and overwrites, with all jobs in step (see
/// [`lockstep`](crate::lockstep)).
pub fn cases(scale: Scale) -> Vec<Case> {
    let cache = scale.size / 8;
    let each = [PLAIN, EXT4, XFS].map(|run| [run, run.per_job()]).concat();
    let runs = [&each[..2], &[LOOP], &each[2..]].concat();
    let case = |name: &str, rw, multiple: u64| {
        let job = Job {
            size: cache * multiple,
            in_step: true,
            runtime: scale.runtime / 2,
            // Writes are cheaper until write-back begins.
            ramp: scale.runtime / 4,
            ..cached(job(scale, Layout::Written, 4096, 8, 1), rw)
        };
        Case { cache: Some(cache), ..row("pressure", &format!("pressure-{name}-4k-{multiple}x"), job, &runs) }
    };
    let cases = [("overwrite", Rw::RandWrite), ("randrw", Rw::RandMixed)];
    cases.into_iter().flat_map(|(name, rw)| MULTIPLES.map(|multiple| case(name, rw, multiple))).collect()
}
