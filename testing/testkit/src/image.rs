//! Volumes in image files: made by mke2fs, checked by e2fsck, read by debugfs and mounted by the
//! kernel.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use image_kinds::Kind;
use parext4::{DeviceOptions, FileDevice, MemDevice, Volume, VolumeOptions};

use crate::kernel;
use crate::tool::{kernel_umount, text, tool};

/// A volume in a sparse file; removed when dropped.
pub struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    /// Makes a volume of `mib` MiB with `mke2fs -t ext4` and further options, which may name
    /// another type. `None`, after a call of [`skipped`](crate::skipped), if mke2fs is not
    /// installed.
    pub fn mke2fs(mib: u64, options: &[&str]) -> Option<Self> {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::File::create(image.path()).unwrap().set_len(mib << 20).unwrap();
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F"]);
        if !options.contains(&"-t") {
            command.args(["-t", "ext4"]);
        }
        command.args(options).arg(image.path());
        let made = tool(&mut command)?;
        assert!(made.status.success(), "{command:?}: {}", text(&made));
        Some(image)
    }

    /// Makes a volume of a kind, with the files of the directory `tree`. `None` as for
    /// [`mke2fs`](Self::mke2fs).
    ///
    /// # Errors
    /// The message of a program that refuses the kind.
    pub fn of_kind(kind: &Kind, tree: Option<&Path>) -> Option<Result<Self, String>> {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::File::create(image.path()).unwrap().set_len(kind.mib << 20).unwrap();
        let commands = kind.commands(&image.path(), tree);
        let made = image.run(commands)?;
        if let (Ok(image), true) = (&made, tree.is_some() && kind.mke2fs.contains("quota")) {
            // mke2fs counts no usage of the files that it copies.
            tool(Command::new("e2fsck").arg("-fy").arg(image.path()))?;
        }
        Some(made)
    }

    /// Like [`of_kind`](Self::of_kind), on a file full of old bytes, so that tests notice any that
    /// become visible.
    ///
    /// # Errors
    /// The message of a program that refuses the kind.
    pub fn of_kind_on_old_bytes(kind: &Kind) -> Option<Result<Self, String>> {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::write(image.path(), vec![0xa5; usize::try_from(kind.mib << 20).unwrap()]).unwrap();
        let mut commands = kind.commands(&image.path(), None);
        // No discard.
        commands[0].1.insert(0, "-K".to_owned());
        image.run(commands)
    }

    fn run(self, commands: Vec<image_kinds::Command>) -> Option<Result<Self, String>> {
        for (program, arguments) in commands {
            let made = tool(Command::new(program).args(&arguments))?;
            if !made.status.success() {
                return Some(Err(format!("{program} {}: {}", arguments.join(" "), text(&made))));
            }
        }
        Some(Ok(self))
    }

    /// Converts a volume that has files, if its kind asks for it.
    pub fn convert(&self, kind: &Kind) {
        let Some((program, arguments)) = kind.conversion(&self.path()) else { return };
        let repair = || tool(Command::new("e2fsck").args(["-fyD"]).arg(self.path()));
        repair();
        if let Some(output) = tool(Command::new(program).args(&arguments)) {
            assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output));
        }
        repair();
    }

    /// Writes the content of a device to an image.
    pub fn of(device: &MemDevice) -> Self {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        device.save(image.path()).unwrap();
        image
    }

    /// Changes settings. Returns false if tune2fs is not installed.
    pub fn tune2fs(&self, options: &[&str]) -> bool {
        let Some(output) = tool(Command::new("tune2fs").args(options).arg(self.path())) else { return false };
        assert!(output.status.success(), "tune2fs {options:?}: {}", text(&output));
        true
    }

    /// Returns the path of the image.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Opens the volume; only syncs, closing and full transactions commit.
    pub fn open(&self) -> Volume {
        let options = VolumeOptions::new().commit_interval(None);
        Volume::open_device(Arc::new(self.device()), &options).unwrap()
    }

    /// Opens the image. Retries while another test is starting a program: between fork and exec,
    /// the child still holds copies of this process's files, and with them locks that this process
    /// has released.
    fn device(&self) -> FileDevice {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            match FileDevice::open(self.path(), &DeviceOptions::new()) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => return opened.unwrap(),
            }
        }
    }

    /// Asserts that e2fsck finds no error.
    pub fn fsck(&self) {
        let Some(output) = tool(Command::new("e2fsck").arg("-fn").arg(self.path())) else { return };
        assert!(output.status.code() == Some(0), "e2fsck: {}", text(&output));
    }

    /// Returns the output of a debugfs request; empty if debugfs is not installed.
    pub fn debugfs(&self, request: &str) -> String {
        let output = tool(Command::new("debugfs").args(["-R", request]).arg(self.path()));
        output.map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Changes the volume with a debugfs request.
    pub fn debugfs_write(&self, request: &str) {
        tool(Command::new("debugfs").args(["-w", "-R", request]).arg(self.path()));
    }

    /// Returns the volume in memory.
    pub fn load(&self) -> MemDevice {
        MemDevice::from_bytes(std::fs::read(self.path()).unwrap())
    }

    /// Mounts the volume with the kernel and calls `look` with the directory. Returns without doing
    /// so, after a call of [`kernel::not_mounted`], if the kernel does not mount it.
    pub fn with_kernel(&self, look: impl FnOnce(&Path)) {
        let _ = self.with_kernel_options("", look);
    }

    /// Mounts the volume with the kernel and with mount options, and returns the result of `look`
    /// on the directory. `None`, after a call of [`kernel::not_mounted`], if the kernel does not
    /// mount it.
    pub fn with_kernel_options<R>(&self, options: &str, look: impl FnOnce(&Path) -> R) -> Option<R> {
        let mount = Mount::new(&self.path(), &self.dir.path().join("mount"), options)?;
        Some(look(&mount.0))
    }
}

/// A mounted image; unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(image: &Path, at: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let options = format!("loop,{options}");
        let mounted = tool(Command::new("mount").args(["-t", "ext4", "-o", &options]).arg(image).arg(at))?;
        if !mounted.status.success() {
            kernel::not_mounted(image, &text(&mounted));
            return None;
        }
        Some(Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        kernel_umount(&self.0);
    }
}
