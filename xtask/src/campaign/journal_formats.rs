//! Logs of every format, as debugfs writes them: parext4 replays them as e2fsck does, and goes on with the journal.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::journal_diff;
use crate::command::cmd;
use crate::image;
use crate::report::Report;
use crate::testbed::{TestBed, inside, remove};

const IMAGE_SIZE: u64 = 40 << 20;
/// The header of a journal's superblock of version 2, with which its block begins.
const SUPERBLOCK_V2: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
/// The fields that version 1 lacks.
const LATER_FIELDS: std::ops::Range<usize> = 0x24..0x400;

/// A format of a log.
struct Format {
    mke2fs: &'static str,
    /// Options of the debugfs command that opens the journal.
    open: &'static str,
    /// Whether the journal has a superblock of version 1, as in early ext3.
    version_1: bool,
}

const FORMATS: &[Format] = &[
    Format { mke2fs: "-b 1024 -J size=4 -O 64bit", open: "-c -v 2", version_1: false },
    Format { mke2fs: "-b 4096 -J size=7 -O ^64bit", open: "-c -v 2", version_1: false },
    Format { mke2fs: "-b 2048 -J size=5 -O 64bit", open: "-c -v 3", version_1: false },
    Format { mke2fs: "-b 4096 -J size=5 -O 64bit,^metadata_csum", open: "", version_1: false },
    Format { mke2fs: "-b 1024 -J size=3 -O ^64bit,^metadata_csum", open: "", version_1: true },
];

/// Runs the campaign.
pub fn run(bed: &TestBed, report: &mut Report) {
    for format in FORMATS {
        let version = if format.version_1 { " version 1" } else { "" };
        let name = format!("{} debugfs {}{version}", format.mke2fs, format.open);
        report.case(name.trim_end(), || one_format(bed, format));
    }
}

fn one_format(bed: &TestBed, format: &Format) -> Result<()> {
    let image = bed.path("formats");
    image::mke2fs(&image, IMAGE_SIZE, format.mke2fs)?;
    write_log(bed, &image, format.open)?;
    if format.version_1 {
        make_version_1(&image)?;
    }
    ensure!(image::journal_is_dirty(&image)?, "debugfs wrote no log");
    journal_diff::same_as_e2fsck(bed, &image)?;
    bed.parext4("mkdir").arg(inside(&image, "/opened-for-writing")).run()?;
    image::check(&image).context("after opening for writing")?;
    remove(&image)
}

/// Writes three transactions over free blocks: the second one revokes a block of the first, and the third one logs blocks of the
/// first again. The first block of each begins like a log block, so it is escaped.
fn write_log(bed: &TestBed, image: &Path, open: &str) -> Result<()> {
    let (data, script) = (bed.path("data"), bed.path("script"));
    let mut bytes = vec![7; 4 * 4096];
    bytes[..4].copy_from_slice(&SUPERBLOCK_V2[..4]);
    fs::write(&data, bytes)?;
    let data = data.display();
    for write in [format!("-b 9000-9003 {data}"), "-r 9001".into(), format!("-b 9002-9005 {data}")] {
        fs::write(&script, format!("jo {open}\njw {write}\njc\n"))?;
        cmd("debugfs").args("-w -f").arg(&script).arg(image).run()?;
    }
    Ok(())
}

/// Makes the journal's superblock one of version 1.
fn make_version_1(image: &Path) -> Result<()> {
    let mut bytes = fs::read(image)?;
    let at = bytes.chunks(1024).position(|block| block.starts_with(&SUPERBLOCK_V2)).context("no journal")?;
    let superblock = &mut bytes[at * 1024..];
    superblock[7] = 3;
    superblock[LATER_FIELDS].fill(0);
    Ok(fs::write(image, bytes)?)
}
