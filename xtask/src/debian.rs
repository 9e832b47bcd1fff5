//! The external programs that the checks need, and their installation on Debian.

use std::path::Path;

use anyhow::{Result, bail};

use crate::command::{cmd, path};

/// A program and the Debian package that has it.
#[derive(Clone, Copy)]
pub struct Tool {
    pub program: &'static str,
    pub package: &'static str,
}

/// The programs that campaigns with kernel mounts need.
pub const KERNEL_MOUNTS: &[Tool] = &[
    Tool { program: "mke2fs", package: "e2fsprogs" },
    Tool { program: "e2fsck", package: "e2fsprogs" },
    Tool { program: "dumpe2fs", package: "e2fsprogs" },
    Tool { program: "debugfs", package: "e2fsprogs" },
    Tool { program: "fio", package: "fio" },
    Tool { program: "losetup", package: "mount" },
    Tool { program: "mount", package: "mount" },
    Tool { program: "umount", package: "mount" },
    Tool { program: "fsfreeze", package: "util-linux" },
];

/// The programs that tests of parext4's own mounts need in addition.
pub const FUSE_MOUNTS: &[Tool] = &[
    Tool { program: "fusermount3", package: "fuse3" },
    Tool { program: "chattr", package: "e2fsprogs" },
    Tool { program: "getcap", package: "libcap2-bin" },
    Tool { program: "git", package: "git" },
    Tool { program: "python3", package: "python3" },
    Tool { program: "setpriv", package: "util-linux" },
    Tool { program: "sqlite3", package: "sqlite3" },
    Tool { program: "tar", package: "tar" },
];

/// The programs of a Ceph cluster. `ceph-common` also brings librbd.
pub const CEPH: &[Tool] = &[
    Tool { program: "ceph-mon", package: "ceph-mon" },
    Tool { program: "ceph-osd", package: "ceph-osd" },
    Tool { program: "rbd", package: "ceph-common" },
];

/// The NBD servers of tests, their clients, and what makes their certificates.
pub const NBD: &[Tool] = &[
    Tool { program: "nbdkit", package: "nbdkit" },
    Tool { program: "nbdcopy", package: "libnbd-bin" },
    Tool { program: "qemu-img", package: "qemu-utils" },
    Tool { program: "qemu-io", package: "qemu-utils" },
    Tool { program: "qemu-nbd", package: "qemu-utils" },
    Tool { program: "openssl", package: "openssl" },
];

/// The programs that make what `mkfs` must refuse to overwrite.
pub const FORMATTERS: &[Tool] = &[
    Tool { program: "mkfs.btrfs", package: "btrfs-progs" },
    Tool { program: "mkfs.exfat", package: "exfatprogs" },
    Tool { program: "mkfs.f2fs", package: "f2fs-tools" },
    Tool { program: "mkfs.ntfs", package: "ntfs-3g" },
    Tool { program: "mkfs.vfat", package: "dosfstools" },
    Tool { program: "mkfs.xfs", package: "xfsprogs" },
    Tool { program: "mkswap", package: "util-linux" },
    Tool { program: "parted", package: "parted" },
    Tool { program: "sfdisk", package: "fdisk" },
    Tool { program: "sgdisk", package: "gdisk" },
];

/// The programs with which build systems make images.
pub const IMAGE_MAKERS: &[Tool] = &[
    Tool { program: "genext2fs", package: "genext2fs" },
    Tool { program: "img2simg", package: "android-sdk-libsparse-utils" },
];

/// The programs that write and read the archives that `put` and `get` are compared with.
const ARCHIVERS: &[Tool] =
    &[Tool { program: "bsdtar", package: "libarchive-tools" }, Tool { program: "tar", package: "tar" }];

/// The programs that turn counts of instrumented programs into lines.
pub const LLVM: &[Tool] = &[
    Tool { program: "llvm-cov-19", package: "llvm-19" },
    Tool { program: "llvm-profdata-19", package: "llvm-19" },
];

/// The program that computes the digests of files, for comparison.
const VERITY: &[Tool] = &[Tool { program: "fsverity", package: "fsverity" }];

/// The programs that read the manual pages and the completions of shells.
const READERS: &[Tool] = &[
    Tool { program: "fish", package: "fish" },
    Tool { program: "groff", package: "groff" },
    Tool { program: "man", package: "man-db" },
    Tool { program: "mandoc", package: "mandoc" },
    Tool { program: "zsh", package: "zsh" },
];

/// The programs of `cargo xtask test`.
pub const ALL: &[&[Tool]] =
    &[KERNEL_MOUNTS, FUSE_MOUNTS, CEPH, NBD, FORMATTERS, IMAGE_MAKERS, ARCHIVERS, VERITY, READERS];

/// Installs what is missing of `tools`, where that is possible; returns the programs that are
/// missing afterwards.
pub fn install(tools: &[Tool]) -> Vec<&'static str> {
    let packages = missing_packages(tools);
    if !packages.is_empty() {
        println!("missing Debian packages: {}", packages.join(" "));
        if !is_root() || !found("apt-get") {
            println!("cannot install them here; as root: apt-get install {}", packages.join(" "));
        } else if let Err(error) = apt_install(&packages) {
            println!("{error:#}");
        }
    }
    missing(tools)
}

/// Returns true if the effective user is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Fails with the reason if campaigns with kernel mounts cannot run here.
pub fn check_kernel_mounts() -> Result<()> {
    let missing = missing(KERNEL_MOUNTS);
    if !missing.is_empty() {
        bail!("programs are missing: {}", missing.join(" "));
    }
    if !is_root() {
        bail!("mounting needs root");
    }
    if !Path::new("/dev/loop-control").exists() {
        bail!("the kernel has no loop devices here (/dev/loop-control)");
    }
    Ok(())
}

fn missing(tools: &[Tool]) -> Vec<&'static str> {
    tools.iter().map(|tool| tool.program).filter(|program| !found(program)).collect()
}

fn missing_packages(tools: &[Tool]) -> Vec<&'static str> {
    let mut packages: Vec<_> =
        tools.iter().filter(|tool| !found(tool.program)).map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn apt_install(packages: &[&str]) -> Result<()> {
    let install = || {
        cmd("apt-get")
            .args("install --yes --no-install-recommends")
            .args(&packages.join(" "))
            .env("DEBIAN_FRONTEND", "noninteractive")
            .run()
    };
    // The package lists of a fresh machine are empty or old.
    if install().is_err() {
        cmd("apt-get").arg("update").run()?;
        install()?;
    }
    Ok(())
}

fn found(program: &str) -> bool {
    path().split(':').any(|dir| Path::new(dir).join(program).is_file())
}
