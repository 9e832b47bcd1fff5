//! Models: the engine under a scheduler that tries interleavings. Each model must fail when a guard
//! is removed by a planted fault. [`hazards`] lists the models by hazard.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p parext4 --release --test shuttle`.
#![cfg(shuttle)]

mod appends;
mod buffered;
mod checkpoints;
mod claims;
mod clusters;
mod commits;
mod conversions;
mod crashes;
mod flushes;
mod full;
mod gates;
mod hazards;
mod inline;
mod inodes;
mod layout;
mod leases;
mod pages;
mod policies;
mod preallocation;
mod queues;
mod quotas;
mod replacements;
mod sizes;
mod space;
mod support;
mod sweep;
mod writers;
mod writes;
mod xattrs;
