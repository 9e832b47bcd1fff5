//! Safe types that call librados and librbd. All unsafe code of the crate is here.

mod cluster;
mod image;
mod library;
mod transfer;
mod update_watch;
mod values;

pub(crate) use cluster::{Cluster, EXCLUSIVE_LOCK};
pub(crate) use image::{Image, Locker};
pub(crate) use transfer::Receive;
pub(crate) use update_watch::UpdateWatch;
