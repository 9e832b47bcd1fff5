//! Images mounted on directories, used by programs, beside the kernel's ext4 where that can be asked.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "a part is used")]
#[path = "../../../parext4/tests/common/rng.rs"]
mod rng;
#[allow(dead_code, reason = "a part is used")]
#[path = "../../../parext4/tests/common/settings.rs"]
mod settings;

mod bed;
mod data;
mod dirs;
mod kernel;
mod kill;
mod lifecycle;
mod log;
mod namespace;
mod options;
mod permissions;
mod programs;
mod space;
mod stat;
mod times;
mod unprivileged;
