//! Commands and mounts of volumes on network devices, which are named by URLs.

mod commands;
mod export;
mod fenced;
mod node;
mod standby;
mod sweep;
