//! Images of tests on a network block device instead of a file.
//!
//! `PAREXT4_TEST_SERVER` chooses the server: `nbdkit` or `qemu-nbd` serve the file of the image,
//! and any other value is the configuration file of a Ceph cluster with a pool `rbd`.

use std::path::Path;
use std::process::Command;

use crate::nbd::{Nbdkit, QemuNbd, Running, Server};
use crate::settings;

/// A server of the image of one test; ended when dropped.
pub enum Served {
    /// nbdkit, with the file.
    Nbdkit(Running<Nbdkit>),
    /// qemu-nbd, with the file.
    QemuNbd(Running<QemuNbd>),
    /// A Ceph cluster that runs already.
    Rbd(RbdImage),
}

/// An image of a Ceph cluster; removed when dropped.
pub struct RbdImage {
    conf: String,
    name: String,
}

impl Served {
    /// Makes an image of `size` bytes and serves it. The file `image` holds its bytes on an NBD
    /// server.
    ///
    /// # Panics
    /// The server that the environment names cannot be started.
    pub fn new(image: &Path, size: u64) -> Option<Self> {
        let server = settings::server()?;
        let dir = image.parent().expect("an image lies in a directory");
        let file = || std::fs::File::create(image).unwrap().set_len(size).unwrap();
        let served = match server.as_str() {
            "nbdkit" => {
                file();
                Nbdkit::new(&format!("file {}", image.display())).start(dir).map(Self::Nbdkit)
            }
            "qemu-nbd" => {
                file();
                QemuNbd { image: image.to_owned(), arguments: Vec::new() }.start(dir).map(Self::QemuNbd)
            }
            conf => Some(Self::Rbd(RbdImage::new(conf, dir, size))),
        };
        Some(served.unwrap_or_else(|| panic!("PAREXT4_TEST_SERVER={server} is not installed")))
    }

    /// Returns the URL of the image.
    pub fn url(&self) -> String {
        match self {
            Self::Nbdkit(server) => server.url(""),
            Self::QemuNbd(server) => server.url(""),
            Self::Rbd(RbdImage { conf, name }) => format!("rbd:rbd/{name}?conf={conf}"),
        }
    }

    /// Makes the file `image` hold the bytes of the image.
    pub fn fetch(&self, image: &Path) {
        if let Self::Rbd(rbd) = self {
            let _ = std::fs::remove_file(image);
            rbd.run(&["export", "--no-progress", &rbd.name, image.to_str().unwrap()]);
        }
    }
}

impl RbdImage {
    fn new(conf: &str, dir: &Path, size: u64) -> Self {
        let name = dir.file_name().unwrap().to_string_lossy().trim_start_matches('.').to_owned();
        let image = Self { conf: conf.to_owned(), name };
        image.run(&["create", &image.name, "--size", &format!("{}M", size >> 20)]);
        image
    }

    fn run(&self, arguments: &[&str]) {
        let output = Command::new("rbd").args(["--conf", &self.conf]).args(arguments).output();
        let output = output.expect("rbd is installed");
        assert!(output.status.success(), "rbd {arguments:?}: {}", crate::tool::text(&output));
    }
}

impl Drop for RbdImage {
    fn drop(&mut self) {
        // A test that failed may still have the image open. It goes with the cluster.
        let _ = Command::new("rbd").args(["--conf", &self.conf, "rm", "--no-progress", &self.name]).output();
    }
}
