//! Filling a new image with a tree: `parext4 mkfs` and `put`, `mke2fs -d`, and `mke2fs` and
//! `debugfs`. Each program syncs the image, so a slow disk takes most of the time of all of them,
//! and none of it for an image in memory.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;

use anyhow::Result;

use super::{Args, compare, places, timed};
use crate::command::cmd;
use crate::testbed::{TestBed, inside};

/// Files of a directory of the tree.
const PER_DIRECTORY: usize = 200;
/// Bytes of a file: 0 to 7 times this number.
const STEP: usize = 1500;

pub fn run(bed: &TestBed, args: &Args) -> Result<()> {
    let files = if args.quick { 1_000 } else { 20_000 };
    let (tree, script) = (bed.path("tree"), bed.path("script"));
    fs::write(&script, generate(&tree, files)?)?;
    for (place, folder) in places(bed) {
        let what = format!("a new image with {files} files, {place}");
        fill(bed, args, &what, &tree, &script, &folder)?;
    }
    Ok(())
}

/// Compares the programs on an image in a folder.
fn fill(bed: &TestBed, args: &Args, what: &str, tree: &Path, script: &Path, folder: &Path) -> Result<()> {
    let image = tempfile::NamedTempFile::new_in(folder)?.into_temp_path();
    let fresh = || -> Result<()> { Ok(File::create(&image)?.set_len(1 << 30)?) };
    let mke2fs = || cmd("mke2fs").args("-q -F -t ext4 -b 4096");
    let parext4 = || {
        fresh()?;
        let put = bed.parext4("put --quiet").arg(tree).arg(inside(&image, "/tree"));
        timed(vec![bed.parext4("mkfs --block-size 4096").arg(&image), put])
    };
    let directory = || {
        fresh()?;
        timed(vec![mke2fs().arg("-d").arg(tree).arg(&image)])
    };
    let debugfs = || {
        fresh()?;
        timed(vec![mke2fs().arg(&image), cmd("debugfs").args("-w -f").arg(script).arg(&image)])
    };
    compare(
        what,
        args.runs,
        &[
            ("parext4 mkfs, put", Box::new(parext4)),
            ("mke2fs -d", Box::new(directory)),
            ("mke2fs, debugfs -w", Box::new(debugfs)),
        ],
    )
}

/// Makes a tree, and returns the requests with which debugfs makes the same.
fn generate(tree: &Path, files: usize) -> Result<String> {
    let mut requests = String::new();
    for number in 0..files {
        let name = format!("d{}", number / PER_DIRECTORY);
        let dir = tree.join(&name);
        if number % PER_DIRECTORY == 0 {
            fs::create_dir_all(&dir)?;
            writeln!(requests, "mkdir /{name}")?;
        }
        let path = dir.join(number.to_string());
        fs::write(&path, vec![b'x'; number % 8 * STEP])?;
        writeln!(requests, "write {} /{name}/{number}", path.display())?;
    }
    Ok(requests)
}
