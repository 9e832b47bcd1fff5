//! The devices that machines contend for.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use ceph_cluster::Cluster;

use crate::campaign::network::server::certificates;
use crate::nbdkit::{ONE_THREAD, is_listening, nbdkit};
use crate::process::Process;

/// Bytes of a device.
const SIZE: u64 = 128 << 20;

/// A device that two machines reach.
pub trait Storage {
    fn url(&self) -> String;

    /// Returns words of the message of an owner that has lost the volume.
    fn reason(&self) -> &'static str;

    /// Copies the contents to a file.
    fn copy_to(&self, file: &Path) -> Result<()>;
}

/// An RBD image, removed when dropped.
pub struct RbdImage<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl<'a> RbdImage<'a> {
    /// Names an image, which `parext4 mkfs` makes.
    pub fn new(cluster: &'a Cluster, number: u32) -> Result<Self> {
        Ok(Self { cluster, name: format!("disk{number}") })
    }
}

impl Storage for RbdImage<'_> {
    fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    fn reason(&self) -> &'static str {
        "fenced: another client took over the image"
    }

    fn copy_to(&self, file: &Path) -> Result<()> {
        self.cluster.rbd(&["export".as_ref(), self.name.as_ref(), file.as_os_str()]).map(drop)
    }
}

impl Drop for RbdImage<'_> {
    fn drop(&mut self) {
        // An image that a failed round has left open stays until the cluster ends.
        let _ = self.cluster.rbd(&["rm", &self.name]);
    }
}

/// A file that nbdkit serves; both end when this is dropped.
pub struct NbdExport {
    image: PathBuf,
    socket: PathBuf,
    /// The folder of the certificates, if the server has TLS.
    certificates: Option<PathBuf>,
    server: Option<Process>,
}

impl NbdExport {
    /// Returns true if nbdkit is not installed.
    pub fn is_missing() -> bool {
        Command::new("nbdkit").arg("--version").stdout(Stdio::null()).status().is_err()
    }

    /// Serves a file of zeros at `image`.
    pub fn new(image: &Path, has_tls: bool) -> Result<Self> {
        std::fs::File::create(image)?.set_len(SIZE)?;
        let socket = image.with_extension("socket");
        let certificates = has_tls.then(|| image.with_extension("certificates"));
        let mut nbdkit = nbdkit(&socket).arg(ONE_THREAD);
        if let Some(certificates) = &certificates {
            certificates::make(certificates)?;
            let option = format!("--tls-certificates={}", certificates.display());
            nbdkit = nbdkit.arg("--tls=require").arg(option);
        }
        let nbdkit = nbdkit.arg("file").arg(image);
        let mut server = Process::start("nbdkit", nbdkit, image.with_extension("log"))?;
        server.wait_until(|| is_listening(&socket))?;
        Ok(Self { image: image.to_owned(), socket, certificates, server: Some(server) })
    }
}

impl Storage for NbdExport {
    fn url(&self) -> String {
        let socket = self.socket.display();
        match &self.certificates {
            Some(certificates) => {
                let ca = certificates.join("ca-cert.pem");
                format!("nbds+unix:///?socket={socket}&tls-hostname=localhost&ca={}", ca.display())
            }
            None => format!("nbd+unix:///?socket={socket}"),
        }
    }

    fn reason(&self) -> &'static str {
        "another machine"
    }

    fn copy_to(&self, file: &Path) -> Result<()> {
        std::fs::copy(&self.image, file).map(drop).context("copying the image")
    }
}

impl Drop for NbdExport {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_file(&self.image);
        let _ = std::fs::remove_file(&self.socket);
    }
}
