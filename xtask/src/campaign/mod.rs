//! The campaigns: parext4 against e2fsprogs and the kernel, on real images.

pub mod churn;
pub mod crash;
pub mod dirty;
pub mod fast_commit;
pub mod faults;
pub mod formats;
pub mod fuzz;
pub mod journal_diff;
pub mod journal_formats;
pub mod kill;
pub mod mkfs;
pub mod mount;
pub mod mutants;
pub mod network;
pub mod programs;
pub mod seed;
pub mod simulate;
pub mod split_brain;
