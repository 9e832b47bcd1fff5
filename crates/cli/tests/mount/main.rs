//! Tests of mounted volumes. Where possible, the same operations run on the kernel's ext4 and must have the same results.

mod append_only;
mod attempts;
mod cached;
mod coherence;
mod damage;
mod data;
mod dirs;
mod file_handles;
mod guard;
mod idmapped;
mod ioctls;
mod kill;
mod lifecycle;
mod log;
mod memory;
mod mount_8;
mod namespace;
mod options;
mod permissions;
mod privileges;
mod programs;
mod space;
mod stat;
mod times;
mod unprivileged;
mod user;
