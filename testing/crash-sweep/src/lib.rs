//! Power cuts during short sequences of operations and histories of threads: every state that one
//! can leave is recovered and checked. `cargo xtask crash` runs the sweep; docs/testing.md
//! describes it. No program for users uses this crate.
//!
//! | module | contents |
//! |---|---|
//! | [`op`], [`tree`] | operations and calls that make them durable; the expected tree, and what each operation makes of it |
//! | [`generate`] | all sequences of a length, and random ones |
//! | [`oracle`] | what may be found after a crash |
//! | [`kind`], [`run`], [`found`] | the volumes; running steps on one; the tree that one has |
//! | [`record`] | recordings, and states that a crash can leave |
//! | [`verify`], [`recovery`] | checks of one state, and power cuts during its recovery |
//! | [`experiment`], [`sequence`], [`history`], [`shared`], [`upkeep`] | recordings with their oracles: sequences, histories of threads, files that threads share, work on whole volumes |
//! | [`case`], [`failure`], [`sweep`] | what is run; what failed; all cases |

#![forbid(unsafe_code)]

pub mod case;
pub mod experiment;
pub mod failure;
pub mod found;
pub mod generate;
pub mod history;
pub mod kind;
pub mod op;
pub mod oracle;
pub mod record;
pub mod recovery;
pub mod run;
pub mod sequence;
pub mod shared;
pub mod sweep;
pub mod tree;
pub mod upkeep;
pub mod verify;
