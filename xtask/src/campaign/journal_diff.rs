//! Two replays of one journal, ours and e2fsck's, compared byte for byte over the whole image.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::image;
use crate::testbed::{TestBed, remove};

const SUPERBLOCK: u64 = 1024;
const CHUNK: usize = 1 << 20;

/// The bytes that the two may leave different: the superblock says when and how much its writer
/// wrote (Documentation/filesystems/ext4/super.rst).
const ALLOWED: &[Range<u64>] = &[
    SUPERBLOCK + 0x30..SUPERBLOCK + 0x34,   // s_wtime
    SUPERBLOCK + 0x178..SUPERBLOCK + 0x180, // s_kbytes_written
    SUPERBLOCK + 0x3fc..SUPERBLOCK + 0x400, // s_checksum, which covers them
];

/// Replays the journal of `image`, or the journal in an image of its own, with e2fsck and with
/// parext4, each on a copy; the copies of `image` must be equal.
pub fn same_as_e2fsck(bed: &TestBed, image: &Path, journal: Option<&Path>) -> Result<()> {
    let (theirs, ours) = (bed.path("replayed-e2fsck"), bed.path("replayed-parext4"));
    image::copy(image, &theirs)?;
    image::copy(image, &ours)?;
    let log = bed.path("replayed-journal");
    let copy_of_log = || journal.map(|journal| image::copy(journal, &log).map(|()| &*log)).transpose();
    image::e2fsck_replay(&theirs, copy_of_log()?)?;
    let log = copy_of_log()?;
    bed.parext4("recover --journal-only").option("--journal", log).arg(&ours).run()?;
    if image::has_orphans(&ours)? {
        // Before it stops, e2fsck also releases orphans, which no option turns off. It finds no
        // journal to replay here, so that this is all it adds.
        image::e2fsck_replay(&ours, log)?;
    }
    compare(&theirs, &ours)
        .context("after the replay of the journal by e2fsck (wanted) and parext4 (found)")?;
    [Some(&*theirs), Some(&*ours), log].into_iter().flatten().try_for_each(remove)
}

fn compare(wanted: &Path, found: &Path) -> Result<()> {
    let different = differences(wanted, found)?;
    if different.is_empty() {
        return Ok(());
    }
    let mut text = format!("the images differ in {} bytes", different.len());
    for (offset, wanted, found) in different.iter().take(24) {
        text += &format!("\n    byte {offset:#x}: wanted {wanted:#04x}, found {found:#04x}");
    }
    bail!(text)
}

type Difference = (u64, u8, u8);

fn differences(wanted: &Path, found: &Path) -> Result<Vec<Difference>> {
    let (mut wanted, mut found) = (File::open(wanted)?, File::open(found)?);
    let size = wanted.seek(SeekFrom::End(0))?;
    if found.seek(SeekFrom::End(0))? != size {
        bail!("the images differ in size");
    }
    wanted.rewind()?;
    found.rewind()?;
    let mut different = Vec::new();
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut offset = 0;
    while offset < size {
        let len = CHUNK.min(usize::try_from(size - offset)?);
        wanted.read_exact(&mut left[..len])?;
        found.read_exact(&mut right[..len])?;
        if left[..len] != right[..len] {
            let bytes = left[..len].iter().zip(&right[..len]).zip(offset..);
            different.extend(
                bytes
                    .filter(|((l, r), at)| l != r && !ALLOWED.iter().any(|range| range.contains(at)))
                    .map(|((l, r), at)| (at, *l, *r)),
            );
        }
        offset += len as u64;
    }
    Ok(different)
}
