//! Shared parts of the tests of several crates. No program uses this crate.
//!
//! | module | contents |
//! |---|---|
//! | [`rng`], [`choices`], [`settings`] | random choices from a seed, or from the bytes of a fuzzer; what the environment asks of a test run |
//! | [`skip`], [`kernel`] | tests that cannot run here; what the kernel lacks for mounting a volume |
//! | [`sector`] | sectors that name the operation that wrote them |
//! | [`watchdog`], [`slowest`], [`poll`] | operations that do not return; the slowest calls; conditions to wait for |
//! | [`peak_memory`] | the memory that a call needs |
//! | [`image`], [`volume`], [`full_volume`] | volumes in files and in memory, e2fsprogs on them, volumes without free blocks |
//! | [`kinds`] | tests over the kinds of images |
//! | [`encrypted`] | encrypted directories, which the kernel makes |
//! | [`device`] | devices that forward to another and interfere with its requests |
//! | [`device_contract`] | the contracts of devices and queues, as checks of any device |
//! | [`ceph`] | a Ceph cluster on this machine |
//! | [`nbd`] | NBD servers: one whose answers a test chooses, and real ones that can be killed |
//! | [`served`] | images of tests on a network block device |
//! | [`command`] | the command `parext4` on an image |
//! | `fuse_mount`, `kernel_mount` (feature `mount`) | images mounted by `parext4 mount`, and by the kernel |
//! | [`ops`] | the operations of random tests, models of their effect, and what a crash may leave of it |
//! | [`workload`] | random operations on a volume |
//! | [`history`], [`linearizability`] | what threads did to one file, and whether one order of operations explains it |
//! | [`access_list`] | access control lists as bytes |
//! | [`damage`] | hostile images: damage to every structure, and all uses of a damaged volume |
//! | [`fast_commit_tags`] | a writer of fast commits |
//! | [`fault_sweep`] | workloads that are repeated with each request failing |
//! | [`durability`], [`crash_states`], [`cut`], [`recorded_run`] | what must be found after a crash, the states that a crash can leave, and runs that crash afterwards |
//! | [`sequence`] | operations, compared with their model, with crashes in between, as a fuzzer chooses |

#![forbid(unsafe_code)]

pub mod access_list;
pub mod ceph;
pub mod choices;
pub mod command;
pub mod crash_states;
pub mod cut;
pub mod damage;
pub mod device;
pub mod durability;
pub mod encrypted;
pub mod fast_commit_tags;
pub mod fault_sweep;
pub mod full_volume;
#[cfg(feature = "mount")]
pub mod fuse_mount;
pub mod history;
pub mod image;
pub mod kernel;
#[cfg(feature = "mount")]
pub mod kernel_mount;
pub mod kinds;
pub mod linearizability;
pub mod nbd;
pub mod ops;
pub mod peak_memory;
pub mod poll;
pub mod recorded_run;
pub mod rng;
pub mod sector;
pub mod sequence;
pub mod served;
pub mod settings;
pub mod slowest;
pub mod tool;
pub mod verity;
pub mod volume;
pub mod watchdog;
pub mod workload;

pub use device_testkit::{contract as device_contract, skip, skip_allowed, skipped};
pub use image::Image;
pub use parext4_storage::open_device;
pub use tool::{kernel_umount, tool};
