//! A Ceph cluster of one machine with an RBD image in memory.

use anyhow::Result;
use ceph_cluster::{Cluster, Options};

use super::{Server, fio_command};
use crate::command::Cmd;
use crate::testbed::TestBed;

/// Name of the image.
const IMAGE: &str = "bench";

/// A cluster with an image. Dropping it ends the cluster.
struct Rbd(Cluster);

/// Starts a cluster and makes an image.
pub fn memory(_bed: &TestBed, size: u64) -> Result<Box<dyn Server>> {
    let cluster = Cluster::start(&Options::default())?;
    cluster.rbd(&["create".to_owned(), format!("rbd/{IMAGE}"), format!("--size={}M", size >> 20)])?;
    Ok(Box::new(Rbd(cluster)))
}

impl Server for Rbd {
    fn name(&self) -> &'static str {
        "RBD, memory"
    }

    fn url(&self) -> String {
        self.0.url(IMAGE)
    }

    fn fio(&self) -> Cmd {
        // librbd's cache answers writes before they reach the cluster, and parext4 has it off.
        fio_command()
            .env("CEPH_CONF", self.0.conf())
            .env("CEPH_ARGS", "--rbd_cache=false")
            .args("--ioengine=rbd --clientname=admin --pool=rbd")
            .arg(format!("--rbdname={IMAGE}"))
    }

    /// Each job of fio is a client of its own, and clients of one image pass its exclusive lock to
    /// each other at each write.
    fn jobs(&self, words: &str) -> String {
        words.replace("--numjobs=10 --iodepth=10", "--numjobs=1 --iodepth=100")
    }

    fn limits(&self) -> &'static str {
        "one OSD with objects in memory, which takes most of the processors' time"
    }
}
