//! Volumes on NBD servers that are killed and started again under load.
//!
//! One server keeps writes in a cache that is lost with the process; so every write that no flush
//! covers is lost unless the client sends it again. `PAREXT4_NBD_KILLS` is the number of kills of
//! each test.

mod kills;
mod writers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use parext4::device::DeviceOptions;
use parext4::{MkfsOptions, Volume, VolumeOptions, mkfs};
use parext4_storage::open_device;
use tempfile::TempDir;
use testkit::nbd::{Nbdkit, QemuNbd, Running, Server};
use testkit::rng::Rng;
use testkit::volume::untimed;

const MIB: u64 = 48;

/// A server of an image, of one of three kinds.
enum Kind {
    /// nbdkit with a cache that is lost with the process.
    Caching,
    /// nbdkit on the file itself.
    File,
    /// qemu-nbd.
    Qemu,
}

/// An image and how it is served.
struct Export {
    kind: Kind,
    image: PathBuf,
}

impl Server for Export {
    fn command(&self, socket: &Path) -> Command {
        let image = self.image.display();
        match self.kind {
            Kind::Caching => {
                Nbdkit::new(&format!("--filter=cache file {image} cache=writeback")).command(socket)
            }
            Kind::File => Nbdkit::new(&format!("file {image}")).command(socket),
            Kind::Qemu => {
                let arguments = vec!["--cache=writeback".to_owned(), "--discard=unmap".to_owned()];
                QemuNbd { image: self.image.clone(), arguments }.command(socket)
            }
        }
    }
}

/// An image and the server that serves it.
struct Served {
    dir: TempDir,
    server: Running<Export>,
    rng: Rng,
}

impl Served {
    /// Makes an empty image and serves it. `None` if the program is not installed.
    fn start(kind: Kind, seed: u64) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(MIB << 20).unwrap();
        let server = Export { kind, image }.start(dir.path())?;
        Some(Self { dir, server, rng: Rng::new(seed, 77) })
    }

    /// Makes a volume through the server and opens it.
    fn volume(&self, options: &VolumeOptions) -> Volume {
        let device = open_device(self.server.url("&reconnect=60"), &DeviceOptions::new()).unwrap();
        // Copies of the image are opened while the volume is, which multi-mount protection would
        // delay.
        mkfs(&*device, &MkfsOptions::new().mmp(false).device_is_zero(true)).unwrap();
        Volume::open_device(device, options).unwrap()
    }

    /// Lets the server run for a random time, kills it, copies the image, and starts it again after
    /// a random time.
    fn kill(&mut self) -> PathBuf {
        std::thread::sleep(Duration::from_millis(30 + self.rng.below(200)));
        self.server.kill();
        let copy = self.dir.path().join("copy");
        std::fs::copy(self.dir.path().join("image"), &copy).unwrap();
        std::thread::sleep(Duration::from_millis(self.rng.below(50)));
        self.server.restart();
        copy
    }
}

/// Opens the volume in an image, which replays its journal.
fn recover(image: &Path) -> Volume {
    let device = open_device(image, &DeviceOptions::new()).unwrap();
    Volume::open_device(device, &untimed()).unwrap()
}
