//! Power cuts during short sequences of operations and histories of threads: every state that one
//! can leave is recovered and checked. `cargo xtask crash` runs the sweep; docs/testing.md
//! describes it. The operations, and the oracle that says what may be found after a crash, are in
//! `testkit::ops`. No program for users uses this crate.
//!
//! | module | contents |
//! |---|---|
//! | [`op`], [`start`] | the sizes of operations; the trees before the first of them |
//! | [`generate`] | all sequences of a length, and random ones |
//! | [`kind`] | the volumes |
//! | [`record`] | recordings, and states that a crash can leave |
//! | [`verify`], [`recovery`] | checks of one state, and power cuts during its recovery |
//! | [`experiment`], [`sequence`], [`history`], [`shared`], [`upkeep`] | recordings with their oracles: sequences, histories of threads, files that threads share, work on whole volumes |
//! | [`case`], [`failure`], [`sweep`] | what is run; what failed; all cases |

#![forbid(unsafe_code)]

pub mod case;
pub mod experiment;
pub mod failure;
pub mod generate;
pub mod history;
pub mod kind;
pub mod op;
pub mod record;
pub mod recovery;
pub mod sequence;
pub mod shared;
pub mod start;
pub mod sweep;
pub mod upkeep;
pub mod verify;
