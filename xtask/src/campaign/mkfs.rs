//! Volumes that parext4 makes, in the kernel's hands: mounted, written and verified by fio, checked
//! by e2fsck.

use std::path::Path;

use anyhow::{Context, Result};

use crate::command::{Cmd, cmd};
use crate::image;
use crate::kernel_mount::Mount;
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::{TestBed, inside, remove};
use crate::tree::manifest::Manifest;

/// Runs the campaign.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let bed = TestBed::new()?;
    let sizes: &[&str] = scope.pick(&["64M"], &["16M", "200M", "4G"]);
    for size in sizes {
        for block_size in scope.first(&[4096, 1024, 2048]) {
            for journal in scope.first(&["", "--no-journal"]) {
                let options = format!("--size {size} --block-size {block_size} {journal}");
                report.case(options.trim_end(), || one(&bed, &options, scope));
            }
        }
    }
    Ok(())
}

fn one(bed: &TestBed, options: &str, scope: Scope) -> Result<()> {
    let image = bed.path("image");
    bed.parext4("mkfs").arg(&image).args(options).run()?;
    image::check(&image).context("after mkfs")?;
    let mount = Mount::new(&image, &bed.path("mount"), "rw")?;
    let small = options.contains("--size 16M");
    let size = if small { "2m" } else { scope.pick("8m", "32m") };
    fio(mount.dir(), size).args("--fsync=32 --do_verify=1").run()?;
    std::fs::create_dir_all(mount.dir().join("a/b/c"))?;
    let seen_by_kernel = Manifest::read(mount.dir())?;
    mount.unmount()?;
    image::check(&image).context("after fio")?;
    read_back(bed, &image, size, &seen_by_kernel)?;
    image::check(&image).context("after parext4 read it")?;
    remove(&image)
}

/// parext4 reads what fio wrote: the same tree as the kernel showed, and fio recognises each block
/// of its own.
fn read_back(bed: &TestBed, image: &Path, size: &str, seen_by_kernel: &Manifest) -> Result<()> {
    let got = bed.path("got");
    bed.parext4("get --quiet").arg(inside(image, "/")).arg(&got).run()?;
    let result = Manifest::read(&got)
        .and_then(|found| seen_by_kernel.compare(&found))
        .and_then(|()| fio(&got, size).arg("--verify_only=1").run());
    remove(&got)?;
    result.map(drop)
}

/// Two jobs of random writes with a checksum in each block; a fixed seed, so that a later run can
/// verify.
fn fio(dir: &Path, size: &str) -> Cmd {
    cmd("fio")
        .args("--name=job --numjobs=2 --rw=randwrite --bs=1k-16k --ioengine=psync --fallocate=none")
        .args("--randseed=4711 --allrandrepeat=1 --verify=crc32c --verify_fatal=1 --verify_state_save=0")
        .arg(format!("--size={size}"))
        .arg(format!("--directory={}", dir.display()))
        .dir(dir)
}
