//! The engine on a simulated device, with time skipped, under a scheduler that chooses each step of
//! each thread. One seed gives exactly the same run: operations, schedule of the threads, behaviour
//! of the device, and times. `cargo xtask simulate` runs the simulator; docs/testing.md describes
//! it. No program for users uses this crate, and without `--cfg shuttle` it is empty.
//!
//! | module | contents |
//! |---|---|
//! | `campaign` | runs of consecutive seeds, until a time or a failure |
//! | `run` | one run: generations of threads on a volume, each of which begins with the state that the last one has left |
//! | `generation`, `power` | one generation: recovery, threads, and the power cut |
//! | `states` | the states that the power cut can leave, and the demands on them |
//! | `profile` | the choices of a run: the device's times and faults, and the options of the volume |
//! | `device` | the simulated device: its queues, its contents, and how it fails |
//! | `execution` | runs code under the scheduler of the simulation, with its clock |
//! | `trace` | the hash of all steps and requests of a run |

#![cfg(shuttle)]
#![forbid(unsafe_code)]

pub mod campaign;
mod device;
mod execution;
mod generation;
mod power;
mod profile;
pub mod run;
mod states;
mod trace;
