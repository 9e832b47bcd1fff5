//! Models: the engine under a scheduler that tries interleavings, and the same models with a guard taken away,
//! which they must notice. [`hazards`] says which model is there for what.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p parext4 --release --test shuttle`.
#![cfg(shuttle)]

mod ahead;
mod appends;
mod buffered;
mod checkpoints;
mod commits;
mod conversions;
mod crashes;
mod full;
mod gates;
mod hazards;
mod inodes;
mod layout;
mod pages;
mod policies;
mod queues;
mod replacements;
mod sizes;
mod space;
mod support;
mod writers;
mod writes;
mod xattrs;
