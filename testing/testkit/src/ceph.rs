//! A Ceph cluster for a test, or the message that there is none.

pub use ceph_cluster::{Cluster, Options, Store, TENANT};

use crate::skipped;

/// Starts a cluster. `None`, after a call of [`skipped`], if Ceph is not installed.
pub fn start(options: &Options) -> Option<Cluster> {
    let missing = Cluster::missing();
    if !missing.is_empty() {
        skipped(&format!("no Ceph: apt-get install {}", missing.join(" ")));
        return None;
    }
    Some(Cluster::start(options).expect("the cluster starts"))
}
