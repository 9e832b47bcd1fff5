//! A Ceph cluster on this machine: one monitor and one or two OSDs, on 127.0.0.1 and in a temporary
//! directory.
//!
//! [`Cluster::start`] takes about 6 seconds. The cluster ends when it is dropped, and also when the
//! process that started it ends in any other way. It requires the Debian packages `ceph-mon`,
//! `ceph-osd` and `ceph-common`.

#![forbid(unsafe_code)]

mod cluster;
mod config;
mod guard;
mod run;

pub use cluster::Cluster;
pub use config::{Options, Pace, Store, TENANT};

/// Programs that a cluster needs, with the Debian packages that have them.
pub const PROGRAMS: &[(&str, &str)] = &[
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("ceph", "ceph-common"),
    ("ceph-authtool", "ceph-common"),
    ("monmaptool", "ceph-base"),
    ("rbd", "ceph-common"),
];
