//! The image of the demo: where it is made, and that it is removed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use indicatif::BinaryBytes;
use parext4::device::Direct;
use parext4::{DeviceOptions, FileDevice};
use parext4_storage::Location;
use tempfile::TempDir;

/// Default size of the image, in bytes.
const SIZE: u64 = 1536 << 20;
/// Smallest size of the image, in bytes.
const MIN_SIZE: u64 = 64 << 20;
/// Bytes left free on the disk.
const SPARE: u64 = 256 << 20;

/// An image file; removed when dropped.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    size: u64,
    direct: bool,
    keep: bool,
    /// The temporary directory of the image, if it is in one.
    dir: Option<TempDir>,
}

impl Image {
    /// Makes an empty image file, and allocates its space.
    ///
    /// # Errors
    /// If `image` exists, or the disk has too little space.
    pub fn new(image: Option<&Path>, size: Option<u64>, keep: bool) -> Result<Self> {
        if let Some(image) = image {
            let is_file = Location::parse(image)?.path().is_some();
            ensure!(is_file, "{}: a URL; the demo makes an image file of its own", image.display());
            ensure!(!image.exists(), "{}: exists; the demo makes a new image", image.display());
            return Self { path: image.to_owned(), size: 0, direct: false, keep, dir: None }.reserve(size);
        }
        let mut dirs = vec![std::env::temp_dir(), PathBuf::from("/var/tmp")];
        dirs.extend(std::env::current_dir());
        // A directory in memory has no direct I/O, and the demo would measure no disk there.
        let disk = dirs.iter().find(|dir| allows_direct(dir)).unwrap_or(&dirs[0]);
        let dir = tempfile::Builder::new().prefix("parext4-demo-").tempdir_in(disk);
        let dir = dir.with_context(|| disk.display().to_string())?;
        let path = dir.path().join("demo.img");
        Self { path, size: 0, direct: false, keep, dir: Some(dir) }.reserve(size)
    }

    fn reserve(mut self, size: Option<u64>) -> Result<Self> {
        let parent = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.size = match size {
            Some(size) => size,
            None => SIZE.min(free_space(parent)?.saturating_sub(SPARE)),
        };
        ensure!(
            self.size >= MIN_SIZE,
            "{}: the demo needs {} and {} to spare",
            parent.display(),
            BinaryBytes(MIN_SIZE),
            BinaryBytes(SPARE)
        );
        let device = FileDevice::open(&self.path, &DeviceOptions::new().create(self.size))?;
        self.direct = device.is_direct();
        device.allocate().with_context(|| format!("reserving space for {}", self.path.display()))?;
        Ok(self)
    }

    /// Returns the path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns true if I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Returns how to open the image.
    pub fn direct(&self) -> Direct {
        if self.direct { Direct::Always } else { Direct::Never }
    }

    /// Returns true if the image is kept.
    pub fn is_kept(&self) -> bool {
        self.keep
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        match self.dir.take() {
            Some(dir) if self.keep => {
                let _ = dir.keep();
            }
            Some(_) => {}
            None if self.keep => {}
            None => {
                let _ = fs::remove_file(&self.path);
            }
        }
    }
}

/// Returns true if files in `dir` allow direct I/O.
fn allows_direct(dir: &Path) -> bool {
    let probe = || {
        // tmpfs may allow direct I/O although it is no disk.
        const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
        let on_disk = rustix::fs::statfs(dir).is_ok_and(|statfs| statfs.f_type != TMPFS_MAGIC);
        let file = tempfile::NamedTempFile::new_in(dir).ok().filter(|_| on_disk)?;
        file.as_file().set_len(1 << 20).ok()?;
        FileDevice::open(file.path(), &DeviceOptions::new()).ok().filter(FileDevice::is_direct)
    };
    probe().is_some()
}

/// Returns the bytes that are free for files in `dir`.
fn free_space(dir: &Path) -> Result<u64> {
    let space = rustix::fs::statvfs(dir).with_context(|| dir.display().to_string())?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}
