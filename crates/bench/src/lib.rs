//! Benchmarks and the demo of parext4: one job on any target, the comparison with other file systems, and the demo.
//!
//! The program `parext4` has them as its commands `bench` and `demo`. This crate parses no command line.
#![forbid(unsafe_code)]

mod access_order;
mod buffers;
pub mod demo;
pub mod duration;
pub mod engine;
pub mod explain;
pub mod interrupt;
pub mod job;
mod job_files;
mod lockstep;
mod median;
pub mod null;
mod outcome;
mod queued;
mod runner;
pub mod single;
pub mod sources;
mod storage;
mod submitter;
mod target;

pub use target::TargetSpec;
