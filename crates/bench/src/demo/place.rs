//! Where the demo's image lies, and that it goes away again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use indicatif::BinaryBytes;
use parext4::device::{Direct, Location};
use parext4::{DeviceOptions, FileDevice};
use tempfile::TempDir;

/// Size of the image if the disk has room for it.
const SIZE: u64 = 1536 << 20;
/// The least that the demo works with.
const MIN_SIZE: u64 = 64 << 20;
/// Left free on the disk.
const SPARE: u64 = 256 << 20;

/// An image, removed when dropped.
#[derive(Debug)]
pub struct Place {
    image: PathBuf,
    size: u64,
    direct: bool,
    keep: bool,
    /// Removed with all that is in it.
    dir: Option<TempDir>,
}

impl Place {
    /// Makes an empty image file whose space is reserved.
    pub fn new(image: Option<&Path>, size: Option<u64>, keep: bool) -> Result<Self> {
        if let Some(image) = image {
            Location::parse(image)?;
            ensure!(!image.exists(), "{}: exists; the demo makes a new image", image.display());
            return Self { image: image.to_owned(), size: 0, direct: false, keep, dir: None }.reserve(size);
        }
        let mut dirs = vec![std::env::temp_dir(), PathBuf::from("/var/tmp")];
        dirs.extend(std::env::current_dir());
        // A temporary directory in memory, which has no direct I/O, would show nothing of the disk.
        let disk = dirs.iter().find(|dir| allows_direct(dir)).unwrap_or(&dirs[0]);
        let dir = tempfile::Builder::new().prefix("parext4-demo-").tempdir_in(disk);
        let dir = dir.with_context(|| disk.display().to_string())?;
        let image = dir.path().join("demo.img");
        Self { image, size: 0, direct: false, keep, dir: Some(dir) }.reserve(size)
    }

    fn reserve(mut self, size: Option<u64>) -> Result<Self> {
        let parent = self.image.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
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
        let device = FileDevice::open(&self.image, &DeviceOptions::new().create(self.size))?;
        self.direct = device.is_direct();
        device.allocate().with_context(|| format!("reserving space for {}", self.image.display()))?;
        Ok(self)
    }

    /// The image file.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// How to open the image.
    pub fn direct(&self) -> Direct {
        if self.direct { Direct::Always } else { Direct::Never }
    }

    /// Whether the image stays.
    pub fn is_kept(&self) -> bool {
        self.keep
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match self.dir.take() {
            Some(dir) if self.keep => {
                let _ = dir.keep();
            }
            Some(_) => {}
            None if self.keep => {}
            None => {
                let _ = fs::remove_file(&self.image);
            }
        }
    }
}

/// Whether files in `dir` can be accessed directly, with blocks of 4 KiB.
fn allows_direct(dir: &Path) -> bool {
    let probe = || {
        // On tmpfs direct I/O may be allowed and yet be no disk.
        const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
        let on_disk = rustix::fs::statfs(dir).is_ok_and(|statfs| statfs.f_type != TMPFS_MAGIC);
        let file = tempfile::NamedTempFile::new_in(dir).ok().filter(|_| on_disk)?;
        file.as_file().set_len(1 << 20).ok()?;
        FileDevice::open(file.path(), &DeviceOptions::new()).ok().filter(FileDevice::is_direct)
    };
    probe().is_some()
}

/// Bytes that a file in `dir` can have.
fn free_space(dir: &Path) -> Result<u64> {
    let space = rustix::fs::statvfs(dir).with_context(|| dir.display().to_string())?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}
