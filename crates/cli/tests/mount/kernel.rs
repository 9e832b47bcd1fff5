//! The kernel's ext4 on an image of its own, to do the same things to.

use std::path::PathBuf;
use std::process::Command;

use crate::bed::{tool, until};
use crate::common::text;

/// A volume that the kernel has mounted, unmounted in the end.
pub struct Kernel {
    dir: tempfile::TempDir,
}

impl Kernel {
    /// `None`, with a loud word, if the kernel mounts no images here.
    pub fn mounted(mke2fs_options: &[&str], options: &str) -> Option<Self> {
        let kernel = Self { dir: tempfile::tempdir().unwrap() };
        let image = kernel.dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        tool(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).args(mke2fs_options).arg(&image))?;
        std::fs::create_dir(kernel.path()).unwrap();
        let options = format!("loop,{options}");
        let mut mount = Command::new("mount");
        let mounted =
            mount.args(["-t", "ext4", "-o", &options, &text(&image), &text(&kernel.path())]).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(kernel);
        }
        eprintln!("SKIPPED: the kernel does not mount images here");
        None
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let is_mounted = || {
            std::fs::read_to_string("/proc/self/mounts")
                .is_ok_and(|mounts| mounts.contains(&text(&self.path())))
        };
        let umount = || Command::new("umount").arg("-q").arg(self.path()).output();
        let unmounted = !is_mounted() || until(|| umount().is_ok_and(|output| output.status.success()));
        assert!(unmounted || std::thread::panicking());
    }
}
