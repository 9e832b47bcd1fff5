//! The volumes of the tests.

use std::process::Command;

use testkit::{Image, tool};

/// A volume: its size and the options of mke2fs.
pub struct Geometry {
    pub name: &'static str,
    pub mib: u64,
    pub options: &'static [&'static str],
    /// How the image is changed after mke2fs made it.
    pub then: Then,
}

/// A change of an image that mke2fs cannot make.
#[derive(Clone, Copy)]
pub enum Then {
    Nothing,
    /// A request for debugfs.
    Debugfs(&'static str),
    /// Meta groups begin after the first block of descriptors, and resize2fs grows the volume to this many MiB.
    Grow(u64),
}

const fn geometry(name: &'static str, mib: u64, options: &'static [&'static str]) -> Geometry {
    Geometry { name, mib, options, then: Then::Nothing }
}

pub const VOLUMES: &[Geometry] = &[
    geometry(
        "nothing but extents",
        12,
        &["-b", "1024", "-I", "128", "-O", "none,extent", "-E", "lazy_itable_init=0"],
    ),
    geometry(
        "no types, hash trees, a journal, crc16",
        16,
        &["-b", "1024", "-I", "128", "-O", "^filetype,^metadata_csum,uninit_bg,^64bit,^flex_bg"],
    ),
    geometry("no types, crc32c", 16, &["-b", "2048", "-O", "^filetype,^large_file,^huge_file,^extra_isize"]),
    geometry("backups in all groups", 20, &["-b", "1024", "-g", "2048", "-O", "^sparse_super,^resize_inode"]),
    geometry("two backups", 20, &["-b", "1024", "-g", "1024", "-O", "sparse_super2,^resize_inode"]),
    geometry("odd groups", 24, &["-b", "4096", "-g", "1000", "-N", "1736", "-I", "512", "-G", "2"]),
    geometry("a tiny last group", 25, &["-b", "1024", "-i", "3000", "-I", "1024", "-O", "^flex_bg"]),
    geometry("meta groups", 24, &["-b", "1024", "-g", "512", "-O", "meta_bg,^resize_inode"]),
    geometry(
        "meta groups of 32 descriptors, backups in all groups, no checksums",
        24,
        &[
            "-b",
            "1024",
            "-g",
            "256",
            "-O",
            "meta_bg,^resize_inode,^64bit,^metadata_csum,^uninit_bg,^sparse_super,^flex_bg,^filetype",
        ],
    ),
    Geometry {
        name: "meta groups after a table",
        mib: 6,
        options: &["-b", "1024", "-g", "512", "-O", "^resize_inode", "-J", "size=1"],
        then: Then::Grow(20),
    },
    Geometry {
        name: "made by the Hurd, hashes without a sign",
        mib: 8,
        options: &[
            "-b",
            "1024",
            "-o",
            "hurd",
            "-I",
            "128",
            "-O",
            "^64bit,^metadata_csum,^huge_file,^dir_nlink",
        ],
        then: Then::Debugfs("ssv flags 2"),
    },
];

/// Makes a volume, or returns `None` after a call of [`skipped`](testkit::skipped).
pub fn make(volume: &Geometry) -> Option<Image> {
    eprintln!("{}", volume.name);
    let image = Image::mke2fs(volume.mib, volume.options)?;
    match volume.then {
        Then::Nothing => {}
        Then::Debugfs(request) => image.debugfs_write(request),
        Then::Grow(mib) => grow(&image, mib),
    }
    image.fsck();
    Some(image)
}

/// Has meta groups begin after the table of descriptors, and then grows the volume.
fn grow(image: &Image, mib: u64) {
    image.debugfs_write("feature meta_bg");
    image.debugfs_write("ssv first_meta_bg 1");
    let size = format!("{mib}M");
    let Some(output) = tool(Command::new("resize2fs").arg("-f").arg(image.path()).arg(size)) else { return };
    assert!(output.status.success(), "{output:?}");
}
