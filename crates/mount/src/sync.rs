//! The synchronisation primitives of the parts that the models run.
//!
//! One module, so that `--cfg shuttle` can swap them for a model checker's.

#[cfg(not(shuttle))]
mod raw {
    pub(crate) use crossbeam_channel::{Receiver, Sender, unbounded};
    pub(crate) use parking_lot::Mutex;
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread::{Builder, JoinHandle};
}

#[cfg(shuttle)]
mod raw;

pub(crate) use raw::{Builder, JoinHandle, Mutex, Receiver, Sender, atomic, unbounded};
