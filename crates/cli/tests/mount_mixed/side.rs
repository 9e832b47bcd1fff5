//! A volume under test: a mount of parext4, or of the kernel's ext4 as the reference.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use crate::watch::Connection;
use testkit::command::{run, text};
use testkit::fuse_mount::{FuseMount, errors, until};
use testkit::kernel_mount::KernelMount;

/// Why the server refuses data that the kernel writes back: a program has stored to a mapping when
/// the volume was full, or after the file became append-only. The files are compared afterwards.
const REFUSALS: [&str; 2] = ["no space left on device", "operation not permitted"];

/// A mounted volume.
pub enum Side {
    Kernel(KernelMount),
    Ours(FuseMount, Connection),
}

/// Mounts the volume for all users.
fn mount(fuse: &FuseMount, options: &str) {
    fuse.mount(&format!("allow_other,suid,noatime,log={},{options}", text(&log(fuse))));
}

/// Returns the path of the server's log file.
fn log(fuse: &FuseMount) -> PathBuf {
    fuse.scratch().path("server.log")
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Self::Ours(fuse, _) = self
            && std::thread::panicking()
        {
            eprint!("{}", std::fs::read_to_string(log(fuse)).unwrap_or_default());
        }
    }
}

/// The file system of a side, and its mount options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Kernel,
    /// parext4 with these mount options.
    Ours(&'static str),
}

impl Side {
    /// Mounts an empty volume of 64 MiB with the given block size in bytes. Returns `None`, and
    /// says so loudly, if it cannot be mounted here.
    pub fn mounted(kind: Kind, block_size: u32) -> Option<Self> {
        let block_size = block_size.to_string();
        let side = match kind {
            Kind::Kernel => Self::Kernel(KernelMount::mounted(&["-b", &block_size], "noatime")?),
            Kind::Ours(options) => {
                let fuse = FuseMount::new(&["--block-size", &block_size])?;
                mount(&fuse, options);
                let connection = Connection::of(fuse.dir());
                Self::Ours(fuse, connection)
            }
        };
        let all_users = Permissions::from_mode(0o755);
        std::fs::set_permissions(side.dir().parent().expect("a folder below another"), all_users).unwrap();
        std::fs::set_permissions(side.dir(), Permissions::from_mode(0o777)).unwrap();
        Some(side)
    }

    /// Returns the directory that the volume is mounted on.
    pub fn dir(&self) -> PathBuf {
        match self {
            Self::Kernel(kernel) => kernel.path(),
            Self::Ours(fuse, _) => fuse.dir().to_owned(),
        }
    }

    /// Returns the connection to the server; `None` for the kernel's ext4.
    pub fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Kernel(_) => None,
            Self::Ours(_, connection) => Some(connection),
        }
    }

    /// Unmounts, runs e2fsck, and mounts again, so that later reads return what is on the device.
    pub fn mount_again(&mut self, kind: Kind) {
        match (self, kind) {
            (Self::Ours(fuse, connection), Kind::Ours(options)) => {
                fuse.umount_after_refusals(&REFUSALS);
                fuse.scratch().fsck();
                mount(fuse, options);
                *connection = Connection::of(fuse.dir());
            }
            (Self::Kernel(kernel), _) => kernel.mount_again(),
            (Self::Ours(..), Kind::Kernel) => unreachable!("a side stays what it is"),
        }
    }

    /// Makes the mount read-only while `check` runs. No file is open for writing.
    pub fn remount(&self, check: impl FnOnce()) {
        // A process that was killed may have files open for a moment.
        let remount = |option| {
            let mut refused = String::new();
            let is_done = until(|| {
                let output = match self {
                    Self::Kernel(kernel) => kernel.remount(option),
                    Self::Ours(fuse, _) => run(&fuse.mount_command(&format!("remount,{option}"))),
                };
                refused = errors(&output);
                output.status.success()
            });
            assert!(is_done, "remount,{option}: {refused}");
        };
        remount("ro");
        let refused = std::fs::File::create(self.dir().join("read-only")).map(drop);
        assert!(refused.is_err_and(|error| error.raw_os_error() == Some(libc::EROFS)));
        check();
        remount("rw");
    }

    /// Unmounts, and checks the volume with e2fsck.
    pub fn finish(self) {
        if let Self::Ours(fuse, _) = &self {
            fuse.umount_after_refusals(&REFUSALS);
            fuse.scratch().fsck();
        }
    }

    /// Fills the volume with a file of root, except for `leave` bytes.
    pub fn fill(&self, leave: u64) {
        let free = || {
            let space = rustix::fs::statvfs(self.dir()).unwrap();
            space.f_bavail * space.f_frsize
        };
        let file = self.dir().join("filler");
        let mut len = std::fs::File::create(&file).unwrap().metadata().unwrap().size();
        while free() > leave {
            len += free() - leave;
            let status = Command::new("fallocate").args(["-l", &len.to_string(), &text(&file)]).status();
            if !status.is_ok_and(|status| status.success()) {
                return;
            }
        }
    }
}
