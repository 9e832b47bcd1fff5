//! An RBD image on a Ceph cluster of this machine.

use std::path::{Path, PathBuf};

use anyhow::Result;
use ceph_cluster::{Cluster, Options, Store};

use super::Server;
use crate::testbed::{TestBed, remove};

/// A cluster with an OSD whose objects are in memory.
pub const MEMORY: &str = "rbd-memory";
/// A cluster with an OSD whose objects are in a file. A killed OSD finds them again.
pub const FILE: &str = "rbd-file";
/// The image.
const IMAGE: &str = "image";
/// The only OSD.
const OSD: usize = 0;

/// A cluster with one image.
pub struct RbdServer<'a> {
    bed: &'a TestBed,
    cluster: Cluster,
}

impl<'a> RbdServer<'a> {
    /// Starts a cluster, [`MEMORY`] or [`FILE`], and makes an image of `size` bytes.
    pub fn new(bed: &'a TestBed, name: &str, size: u64) -> Result<RbdServer<'a>> {
        let store = if name == MEMORY { Store::Memory } else { Store::File };
        let cluster = Cluster::start(&Options { store, ..Options::default() })?;
        cluster.rbd(&["create", IMAGE, "--size", &format!("{}M", size >> 20)])?;
        Ok(RbdServer { bed, cluster })
    }

    fn copy(&self) -> PathBuf {
        self.bed.path("rbd-export")
    }
}

impl Server for RbdServer<'_> {
    fn url(&self, options: &str) -> String {
        let separator = if options.is_empty() { "" } else { "&" };
        format!("{}{separator}{options}", self.cluster.url(IMAGE))
    }

    fn start(&mut self) -> Result<()> {
        self.cluster.restart_osd(OSD)
    }

    fn kill(&mut self) -> Result<()> {
        self.cluster.kill_osd(OSD)
    }

    fn bytes(&self) -> Result<PathBuf> {
        let copy = self.copy();
        remove(&copy)?;
        self.cluster.rbd(&[Path::new("export"), Path::new("--no-progress"), Path::new(IMAGE), &copy])?;
        Ok(copy)
    }

    /// The lock of a killed client would last until its watch expires.
    fn release(&self) -> Result<()> {
        self.bed.parext4("takeover").arg(self.url("")).run().map(drop)
    }
}

impl Drop for RbdServer<'_> {
    fn drop(&mut self) {
        let _ = remove(&self.copy());
    }
}
