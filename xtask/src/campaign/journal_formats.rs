//! Logs of every format, in the volume or on a device of its own, as debugfs writes them: parext4
//! replays them as e2fsck does, and goes on with the journal.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::journal_diff;
use crate::command::cmd;
use crate::image;
use crate::kernel_mount::mke2fs_with_journal;
use crate::report::Report;
use crate::scope::Scope;
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
    place: JournalLocation,
}

/// Where a journal is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JournalLocation {
    Inside,
    /// In the volume, with a superblock of version 1, as in early ext3.
    InsideVersion1,
    /// On a device of its own, with blocks of this many bytes.
    Device(u32),
}

const FORMATS: &[Format] = &[
    Format { mke2fs: "-b 1024 -J size=4 -O 64bit", open: "-c -v 2", place: JournalLocation::Inside },
    Format { mke2fs: "-b 4096 -J size=7 -O ^64bit", open: "-c -v 2", place: JournalLocation::Inside },
    Format { mke2fs: "-b 2048 -J size=5 -O 64bit", open: "-c -v 3", place: JournalLocation::Inside },
    Format { mke2fs: "-b 4096 -J size=5 -O 64bit,^metadata_csum", open: "", place: JournalLocation::Inside },
    Format {
        mke2fs: "-b 1024 -J size=3 -O ^64bit,^metadata_csum",
        open: "",
        place: JournalLocation::InsideVersion1,
    },
    Format { mke2fs: "-O ^64bit,^metadata_csum", open: "", place: JournalLocation::Device(1024) },
    Format { mke2fs: "-O 64bit", open: "-c -v 2", place: JournalLocation::Device(2048) },
    Format { mke2fs: "-O 64bit", open: "-c -v 3", place: JournalLocation::Device(4096) },
];

/// Runs the campaign.
pub fn run(bed: &TestBed, scope: Scope, report: &mut Report) {
    for format in scope.first(FORMATS) {
        let place = match format.place {
            JournalLocation::Inside => "",
            JournalLocation::InsideVersion1 => "version 1",
            JournalLocation::Device(_) => "on a device of its own",
        };
        let words =
            [format.mke2fs, "debugfs", format.open, place].into_iter().filter(|word| !word.is_empty());
        let name = words.collect::<Vec<_>>().join(" ");
        report.case(&name, || one_format(bed, format));
    }
}

fn one_format(bed: &TestBed, format: &Format) -> Result<()> {
    let image = bed.path("formats");
    let journal = match format.place {
        JournalLocation::Device(block_size) => {
            let journal = bed.path("journal");
            mke2fs_with_journal(&image, IMAGE_SIZE, format.mke2fs, &journal, block_size)?;
            Some(journal)
        }
        JournalLocation::Inside | JournalLocation::InsideVersion1 => {
            image::mke2fs(&image, IMAGE_SIZE, format.mke2fs)?;
            None
        }
    };
    let journal = journal.as_deref();
    write_log(bed, &image, journal, format.open)?;
    if format.place == JournalLocation::InsideVersion1 {
        make_version_1(&image)?;
    }
    ensure!(image::journal_is_dirty(journal.unwrap_or(&image))?, "debugfs wrote no log");
    journal_diff::same_as_e2fsck(bed, &image, journal)?;
    let made = bed.parext4("mkdir").option("--journal", journal);
    made.arg(inside(&image, "/opened-for-writing")).run()?;
    image::check_with(&image, journal).context("after opening for writing")?;
    [Some(&*image), journal].into_iter().flatten().try_for_each(remove)
}

/// Writes three transactions over free blocks: the second one revokes a block of the first, and the
/// third one logs blocks of the first again. The first block of each begins like a log block, so it
/// is escaped.
fn write_log(bed: &TestBed, image: &Path, journal: Option<&Path>, open: &str) -> Result<()> {
    let (data, script) = (bed.path("data"), bed.path("script"));
    let mut bytes = vec![7; 4 * 4096];
    bytes[..4].copy_from_slice(&SUPERBLOCK_V2[..4]);
    fs::write(&data, bytes)?;
    let data = data.display();
    let device = journal.map(|journal| format!("-f {}", journal.display())).unwrap_or_default();
    for write in [format!("-b 9000-9003 {data}"), "-r 9001".into(), format!("-b 9002-9005 {data}")] {
        fs::write(&script, format!("jo {device} {open}\njw {write}\njc\n"))?;
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
