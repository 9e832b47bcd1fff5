//! Crashes, devices that fail, and what a volume is recovered from.

mod buffered;
mod checkpoint;
mod faults;
mod orphans;
mod parallel;
mod recovery;
mod replace;
mod replay;
mod sequence;
