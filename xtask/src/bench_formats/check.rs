//! Checking an image of 20 GiB: `parext4 check` and `e2fsck -fn`, with the image in the page cache
//! and not.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rustix::fs::{FallocateFlags, fallocate};

use super::{Args, compare, timed};
use crate::command::cmd;
use crate::image;
use crate::interrupt;
use crate::kernel_mount::Mount;
use crate::testbed::{TestBed, remove};

/// Files of a directory.
const PER_DIRECTORY: usize = 500;
/// Bytes that are preallocated for each file, which takes no space of the image.
const PREALLOCATED: u64 = 64 << 10;

pub fn run(bed: &TestBed, args: &Args) -> Result<()> {
    let (gib, inodes) = if args.quick { (1, 5_000) } else { (20, 200_000) };
    let image = bed.path("large");
    image::mke2fs(&image, gib << 30, "-b 4096")?;
    let mount = Mount::new(&image, &bed.path("mount"), "rw")?;
    populate(mount.dir(), inodes)?;
    mount.unmount()?;
    for is_cold in [true, false] {
        let prepare = || -> Result<()> {
            if is_cold {
                cmd("sync").run()?;
                fs::write("/proc/sys/vm/drop_caches", "3")?;
            }
            // The programs themselves are in the page cache.
            cmd("e2fsck").arg("-V").run()?;
            bed.parext4("--version").run().map(drop)
        };
        let parext4 = || -> Result<Duration> {
            prepare()?;
            timed(vec![bed.parext4("check").arg(&image)])
        };
        let e2fsck = || -> Result<Duration> {
            prepare()?;
            timed(vec![cmd("e2fsck").arg("-fn").arg(&image)])
        };
        if !is_cold {
            e2fsck()?;
        }
        let what = format!("check of {gib} GiB, {inodes} inodes, {}", if is_cold { "cold" } else { "warm" });
        compare(&what, args.runs, &[("parext4 check", Box::new(parext4)), ("e2fsck -fn", Box::new(e2fsck))])?;
    }
    remove(&image)
}

/// Makes files that are preallocated, and one in eight with data and a hole.
fn populate(root: &Path, inodes: usize) -> Result<()> {
    for number in 0..inodes {
        let dir = root.join(format!("d{}", number / PER_DIRECTORY));
        if number % PER_DIRECTORY == 0 {
            interrupt::check()?;
            fs::create_dir_all(&dir)?;
        }
        let file = File::create(dir.join(number.to_string()))?;
        fallocate(&file, FallocateFlags::empty(), 0, PREALLOCATED)?;
        if number % 8 == 0 {
            std::os::unix::fs::FileExt::write_all_at(&file, b"data", 1 << 20)?;
        }
    }
    Ok(())
}
