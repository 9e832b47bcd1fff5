//! The kernel's ext4 as an oracle: loop devices, mounts and freezes that undo themselves.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::command::cmd;
use crate::{image, interrupt};

/// The size of a journal on a device of its own.
const JOURNAL_BLOCKS: u64 = 1200;

/// A loop device; detached when dropped.
pub struct Loop {
    device: PathBuf,
    /// The file of sysfs that names the image, which is there while the device is attached.
    image: PathBuf,
}

/// Longest time until a loop device is detached.
const PATIENCE: Duration = Duration::from_mins(1);

impl Loop {
    /// Attaches `image`. Direct I/O keeps no second cache between the mount and the image.
    pub fn attach(image: &Path) -> Result<Loop> {
        let device = cmd("losetup").args("--find --show --direct-io=on").arg(image).run()?;
        let device = Path::new(device.trim());
        let name = device.file_name().context("no loop device")?;
        let image = Path::new("/sys/block").join(name).join("loop/backing_file");
        Ok(Loop { device: device.into(), image })
    }

    /// Returns the path of the device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Returns the image of the device; `None` if it has none.
    fn attached(&self) -> Option<String> {
        std::fs::read_to_string(&self.image).ok()
    }
}

impl Drop for Loop {
    /// Detaches the device. Blocks until the kernel has written all of a volume that was mounted: a
    /// copy of the mount in another namespace goes on after the unmount, and the device stays
    /// attached until then.
    fn drop(&mut self) {
        let image = self.attached();
        if let Err(error) = cmd("losetup").arg("--detach").arg(&self.device).always().run() {
            println!("  cannot detach {}: {error:#}", self.device.display());
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        while image.is_some() && self.attached() == image && !interrupt::requested() {
            if Instant::now() > deadline {
                println!("  {} is still in use", self.device.display());
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Makes the image `path` of `size` bytes with `mke2fs`, to which `options` go, and its journal
/// with blocks of `block_size` bytes, as the volume gets, in the image `journal`. Returns the
/// device of the journal.
pub fn mke2fs_with_journal(
    path: &Path,
    size: u64,
    options: &str,
    journal: &Path,
    block_size: u32,
) -> Result<Loop> {
    File::create(journal)?.set_len(JOURNAL_BLOCKS * u64::from(block_size))?;
    // mke2fs wants a block device.
    let device = Loop::attach(journal)?;
    cmd("mke2fs").args("-q -F -O journal_dev -b").arg(block_size.to_string()).arg(&device.device).run()?;
    image::mke2fs(path, size, &format!("{options} -J device={}", device.device.display()))?;
    Ok(device)
}

/// An image mounted by the kernel; unmounted, and its loop device detached, when dropped.
pub struct Mount {
    dir: PathBuf,
    mounted: bool,
    // Dropped after the unmount in `Drop::drop`.
    _device: Loop,
}

impl Mount {
    /// Mounts `image` at the folder `dir`, which it makes, with mount options such as
    /// `rw,data=ordered`.
    pub fn new(image: &Path, dir: &Path, options: &str) -> Result<Mount> {
        std::fs::create_dir_all(dir)?;
        let device = Loop::attach(image)?;
        cmd("mount").args("-t ext4 -o").arg(options).arg(&device.device).arg(dir).run()?;
        Ok(Mount { dir: dir.into(), mounted: true, _device: device })
    }

    /// The folder where the volume's root is seen.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts; the errors that `drop` can only print are the caller's here.
    pub fn unmount(mut self) -> Result<()> {
        self.mounted = false;
        cmd("umount").arg(&self.dir).always().run().context("unmounting")?;
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        if cmd("umount").arg(&self.dir).always().run().is_err() {
            // Another process has a file open in it. A lazy unmount takes effect when that is
            // closed.
            let _ = cmd("umount").arg("--lazy").arg(&self.dir).always().run();
        }
    }
}

/// A mounted volume of the kernel that lets no write through; thawed when dropped.
pub struct Frozen<'a> {
    mount: &'a Mount,
}

impl<'a> Frozen<'a> {
    /// Freezes `mount`.
    pub fn new(mount: &'a Mount) -> Result<Frozen<'a>> {
        cmd("fsfreeze").arg("--freeze").arg(&mount.dir).run()?;
        Ok(Frozen { mount })
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Err(error) = cmd("fsfreeze").arg("--unfreeze").arg(&self.mount.dir).always().run() {
            println!("  cannot thaw {}: {error:#}", self.mount.dir.display());
        }
    }
}
