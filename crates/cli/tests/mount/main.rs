//! Images mounted on directories, used by programs, beside the kernel's ext4 where that can be asked.

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
