//! Crashes, failing devices, and recovery.

mod buffered;
mod checkpoint;
mod chosen;
mod composed;
mod fast_commit;
mod fast_commit_area;
mod fault_sweep;
mod faults;
mod journal_device;
mod kinds;
mod mkfs;
mod orphans;
mod parallel;
mod recovery;
mod replace;
mod replay;
mod sequence;
