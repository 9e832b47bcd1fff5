//! A volume under test: a mount of parext4, or of the kernel's ext4 as the reference.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use crate::watch::Connection;
use testkit::command::text;
use testkit::fuse_mount::Bed;
use testkit::kernel_mount::Kernel;

/// A mounted volume.
pub enum Side {
    Kernel(Kernel),
    Ours(Bed, Connection),
}

/// Mounts the volume for all users.
fn mount(bed: &Bed, options: &str) {
    bed.mount(&format!("allow_other,suid,noatime,log={},{options}", text(&log(bed))));
}

/// Returns the path of the server's log file.
fn log(bed: &Bed) -> PathBuf {
    bed.bench().path("server.log")
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Self::Ours(bed, _) = self
            && std::thread::panicking()
        {
            eprint!("{}", std::fs::read_to_string(log(bed)).unwrap_or_default());
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
    /// Mounts an empty volume of 64 MiB with the given block size in bytes. Returns `None`, and says so loudly, if it cannot
    /// be mounted here.
    pub fn mounted(kind: Kind, block_size: u32) -> Option<Self> {
        let block_size = block_size.to_string();
        let side = match kind {
            Kind::Kernel => Self::Kernel(Kernel::mounted(&["-b", &block_size], "noatime")?),
            Kind::Ours(options) => {
                let bed = Bed::new(&["--block-size", &block_size])?;
                mount(&bed, options);
                let connection = Connection::of(bed.dir());
                Self::Ours(bed, connection)
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
            Self::Ours(bed, _) => bed.dir().to_owned(),
        }
    }

    /// Returns the connection to the server; `None` for the kernel's ext4.
    pub fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Kernel(_) => None,
            Self::Ours(_, connection) => Some(connection),
        }
    }

    /// Unmounts, has e2fsck look, and mounts again: what is read then is on the device.
    pub fn mount_again(&mut self, kind: Kind) {
        match (self, kind) {
            (Self::Ours(bed, connection), Kind::Ours(options)) => {
                bed.umount();
                bed.bench().fsck();
                mount(bed, options);
                *connection = Connection::of(bed.dir());
            }
            (Self::Kernel(kernel), _) => kernel.mount_again(),
            (Self::Ours(..), Kind::Kernel) => unreachable!("a side stays what it is"),
        }
    }

    /// Unmounts, and checks the volume with e2fsck.
    pub fn finish(self) {
        if let Self::Ours(bed, _) = &self {
            bed.umount();
            bed.bench().fsck();
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
