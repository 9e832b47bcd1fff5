//! Another machine that reaches the volume of an image: the kernel, and e2fsprogs, through a loop
//! device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::kernel_umount;
use testkit::skipped;
use testkit::tool::{text, tool};

/// Options of `mkfs` for a volume whose waits are the shortest that the kernel permits.
pub const PROTECTED: &[&str] = &["-O", "mmp", "-E", "mmp_update_interval=1"];
/// One of the two waits of the kernel for such a volume.
pub const KERNEL_WAIT: Duration = Duration::from_secs(11);

/// A loop device on an image, and a directory to mount it on. Dropping it unmounts and detaches it.
pub struct OtherMachine {
    device: PathBuf,
    dir: tempfile::TempDir,
}

impl OtherMachine {
    /// Returns `None`, after a call of [`skipped`], if the kernel does not mount images here.
    pub fn probe() -> Option<()> {
        let scratch = testkit::command::ScratchImage::new(&[]);
        let other = Self::attach(&scratch.image());
        let mounts = other.as_ref().is_some_and(|other| other.mount().is_ok());
        if !mounts {
            skipped("the kernel does not mount images here");
        }
        mounts.then_some(())
    }

    fn attach(image: &Path) -> Option<Self> {
        let attached = tool(Command::new("losetup").args(["--find", "--show"]).arg(image))?;
        let device = String::from_utf8(attached.stdout).ok()?;
        let dir = tempfile::tempdir().unwrap();
        attached.status.success().then(|| Self { device: device.trim().into(), dir })
    }

    /// Attaches a loop device to an image.
    pub fn with(image: &Path) -> Self {
        Self::attach(image).expect("the probe has attached one")
    }

    /// Returns the path of the device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Returns the kernel's name of the device.
    pub fn device_name(&self) -> String {
        self.device.file_name().unwrap().display().to_string()
    }

    /// Has the loop device forget what it has read. It does so by itself when its last user closes
    /// it. But mount(8) and losetup(8) of another test may have it open for a moment, and it then
    /// shows old blocks of an image that has changed.
    fn forget(&self) {
        tool(Command::new("blockdev").arg("--flushbufs").arg(&self.device)).expect("util-linux");
    }

    /// Mounts the volume with the kernel. Returns the message if it refuses.
    pub fn mount(&self) -> Result<(), String> {
        self.forget();
        let mut mount = Command::new("mount");
        let output = tool(mount.args(["-t", "ext4"]).arg(&self.device).arg(self.dir.path())).unwrap();
        if output.status.success() { Ok(()) } else { Err(text(&output)) }
    }

    /// Unmounts the volume. A mount namespace that another test has made meanwhile has a copy of
    /// the mount, with which the kernel goes on until that namespace ends.
    pub fn umount(&self) {
        kernel_umount(self.dir.path());
        let active = Path::new("/sys/fs/ext4").join(self.device_name());
        assert!(testkit::poll::until(|| !active.exists()), "the kernel goes on with {}", active.display());
    }

    /// Returns the contents of a file of the mounted volume.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    /// Writes a file of the mounted volume, and makes it durable.
    pub fn write(&self, name: &str, contents: &str) {
        let path = self.dir.path().join(name);
        fs::write(&path, contents).unwrap();
        fs::File::open(path).unwrap().sync_all().unwrap();
    }

    /// Runs a program of e2fsprogs on the device, and returns what it prints.
    pub fn tool(&self, program: &str, arguments: &[&str]) -> String {
        self.forget();
        text(&tool(Command::new(program).args(arguments).arg(&self.device)).expect("e2fsprogs"))
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(1) == self.dir.path().to_str())
    }
}

impl Drop for OtherMachine {
    fn drop(&mut self) {
        if self.is_mounted() {
            kernel_umount(self.dir.path());
        }
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}
