//! Many threads at once: on one file, on the sizes of one file, on many files.
//!
//! Run with `cargo test -p parext4 --profile stress --test stress`. `PAREXT4_STRESS_SECONDS` is the
//! duration of each configuration; `PAREXT4_STRESS_SEED` repeats the choices of a run.
//! ThreadSanitizer uses the suppressions in `tests/tsan-*.supp`.

mod bursts;
mod calls;
mod churn;
mod little_memory;
mod odd_sizes;
mod one_file;
mod queued;
