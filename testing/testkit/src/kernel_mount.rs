//! Mounts an image with the kernel's ext4, as the reference of comparisons.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::command::text;
use crate::fuse_mount::tool;
use crate::kernel;
use crate::tool::{kernel_umount, text as messages};

/// A volume that the kernel has mounted; unmounted when dropped.
pub struct KernelMount {
    dir: tempfile::TempDir,
    options: String,
}

impl KernelMount {
    /// Makes a volume and mounts it. `None`, after a call of [`kernel::not_mounted`], if the kernel
    /// does not mount it.
    pub fn mounted(mke2fs_options: &[&str], options: &str) -> Option<Self> {
        let kernel = Self::new(options);
        let image = kernel.image();
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        tool(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).args(mke2fs_options).arg(&image))?;
        kernel.first_mounted()
    }

    /// Mounts a copy of an image. `None` as for [`mounted`](Self::mounted).
    pub fn with_copy_of(image: &Path, options: &str) -> Option<Self> {
        let kernel = Self::new(options);
        std::fs::copy(image, kernel.image()).unwrap();
        kernel.first_mounted()
    }

    fn new(options: &str) -> Self {
        let kernel = Self { dir: tempfile::tempdir().unwrap(), options: format!("loop,{options}") };
        std::fs::create_dir(kernel.path()).unwrap();
        kernel
    }

    fn first_mounted(self) -> Option<Self> {
        let output = self.mount();
        if !output.status.success() {
            kernel::not_mounted(&self.image(), &messages(&output));
            return None;
        }
        Some(self)
    }

    fn mount(&self) -> Output {
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", &self.options]).arg(self.image()).arg(self.path()).output().unwrap()
    }

    /// Unmounts and mounts again, so that reads come from the device.
    pub fn mount_again(&self) {
        self.umount();
        let output = self.mount();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Changes an option of the mount, such as `ro`.
    pub fn remount(&self, option: &str) -> Output {
        let mut mount = Command::new("mount");
        mount.arg("-o").arg(format!("remount,{option}")).arg(self.path()).output().unwrap()
    }

    /// Unmounts the volume, if it is mounted.
    pub fn umount(&self) {
        let is_mounted = || {
            std::fs::read_to_string("/proc/self/mounts")
                .is_ok_and(|mounts| mounts.contains(&text(&self.path())))
        };
        if is_mounted() {
            kernel_umount(&self.path());
        }
    }

    /// Returns the path of the image.
    pub fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Returns the directory on which the volume is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        self.umount();
    }
}
