//! Benchmarks and the demo of parext4: one job on any target, the comparison with other file systems, and the demo.
//!
//! The program `parext4` has them as its commands `bench` and `demo`. This crate parses no command line.
#![forbid(unsafe_code)]

pub mod demo;
pub mod duration;
pub mod engine;
pub mod explain;
mod ground;
pub mod interrupt;
pub mod job;
mod lane;
mod median;
pub mod null;
mod order;
mod outcome;
mod queue_lane;
mod runner;
pub mod single;
pub mod sources;
mod step;
mod target;

pub use target::TargetSpec;
