//! RBD images of a Ceph cluster, which this program starts: the contract of devices, the lock,
//! snapshots, and whole volumes.
//!
//! Without Ceph all tests are skipped.

mod contract;
mod gone;
mod lock;
mod osd;
mod resize;
mod snapshots;
mod trees;

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard};

use parext4::{Device, DeviceOptions};
use parext4_storage::open_device;
use testkit::ceph::{self, Cluster, Options, Store, TENANT};

/// Time in seconds after which a dead client of the test cluster no longer counts as alive.
const WATCH_SECONDS: u32 = 5;

static CLUSTER: LazyLock<Option<Cluster>> = LazyLock::new(|| {
    ceph::start(&Options { store: Store::File, watch_seconds: WATCH_SECONDS, ..Options::default() })
});

/// Write-locked by the test that kills the OSD.
static OSD: RwLock<()> = RwLock::new(());

/// The cluster, whose OSD runs for as long as this value exists.
struct Running {
    cluster: &'static Cluster,
    _osd: RwLockReadGuard<'static, ()>,
}

impl Deref for Running {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

/// Returns the cluster of all tests, which the first one starts. `None` if Ceph is not installed.
fn running() -> Option<Running> {
    let cluster = CLUSTER.as_ref()?;
    Some(Running { cluster, _osd: OSD.read().unwrap_or_else(PoisonError::into_inner) })
}

impl Running {
    /// Returns the URL of an image for a user that has only the capabilities of the profile `rbd`.
    fn tenant(&self, image: &str) -> String {
        self.url_of_user(image, TENANT)
    }

    /// Makes an image of `size` bytes and opens it for writing.
    fn create(&self, image: &str, size: u64) -> Arc<dyn Device> {
        open_device(self.tenant(image), &DeviceOptions::new().create(size)).unwrap()
    }

    /// Opens an image for writing.
    fn open(&self, image: &str) -> io::Result<Arc<dyn Device>> {
        open_device(self.tenant(image), &DeviceOptions::new())
    }

    /// Opens an image read-only.
    fn reader(&self, image: &str) -> Arc<dyn Device> {
        open_device(self.tenant(image), &DeviceOptions::new().read_only(true)).unwrap()
    }

    /// Copies an image to a file, in which e2fsck must find no error. Returns the path of the file.
    fn export(&self, image: &str) -> PathBuf {
        let file = self.dir().join(format!("{image}.export"));
        self.rbd(&["export".as_ref(), image.as_ref(), file.as_os_str()]).unwrap();
        let output = testkit::tool(Command::new("/usr/sbin/e2fsck").args(["-f", "-n"]).arg(&file));
        if let Some(output) = output {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        file
    }
}

fn write(device: &dyn Device, offset: u64, bytes: &[u8]) -> io::Result<()> {
    device.write_at(offset, &[IoSlice::new(bytes)])
}

fn read(device: &dyn Device, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    device.read_at(offset, &mut [IoSliceMut::new(&mut bytes)])?;
    Ok(bytes)
}
