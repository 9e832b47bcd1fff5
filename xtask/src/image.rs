//! Images, and e2fsprogs on them.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, bail};
use image_kinds::Kind;

use crate::command::{Cmd, cmd};

/// Makes the image `path` of `size` bytes with `mke2fs`, to which `options` go.
pub fn mke2fs(path: &Path, size: u64, options: &str) -> Result<()> {
    File::create(path)?.set_len(size)?;
    mke2fs_on(path, options)
}

/// Makes the image `path` of a kind.
pub fn of_kind(path: &Path, kind: &Kind) -> Result<()> {
    File::create(path)?.set_len(kind.mib << 20)?;
    for (program, arguments) in kind.commands(path, None) {
        arguments.iter().fold(cmd(program), Cmd::arg).run()?;
    }
    Ok(())
}

/// Makes a volume of all of the image that there is.
pub fn mke2fs_on(path: &Path, options: &str) -> Result<()> {
    cmd("mke2fs").args("-q -F -t ext4").args(options).arg(path).run()?;
    Ok(())
}

/// Checks the image; the first finding of e2fsck is an error.
pub fn check(path: &Path) -> Result<()> {
    check_with(path, None)
}

/// Like [`check`], of a volume whose journal may be in an image of its own.
pub fn check_with(path: &Path, journal: Option<&Path>) -> Result<()> {
    let output = cmd("e2fsck").arg("-fn").option("-j", journal).arg(path).output()?;
    if output.status.code() != Some(0) {
        bail!("e2fsck -fn: {}\n{}", output.status, output.text.trim_end());
    }
    Ok(())
}

/// Replays the journal, which may be in an image of its own, as e2fsck does, and nothing else.
pub fn e2fsck_replay(path: &Path, journal: Option<&Path>) -> Result<()> {
    let replay = cmd("e2fsck").args("-y -E journal_only").option("-j", journal).arg(path);
    // The time that it notes is the same for each run, so that the images of two runs can be
    // compared.
    let output = replay.env("E2FSCK_TIME", "2000000000").output()?;
    // 1: errors corrected, which a replay may count as.
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("e2fsck -E journal_only: {}\n{}", output.status, output.text.trim_end());
    }
    Ok(())
}

/// Whether the journal of a volume, or in an image of its own, holds transactions that the volume's
/// blocks may lack.
pub fn journal_is_dirty(path: &Path) -> Result<bool> {
    let text = cmd("dumpe2fs").arg("-h").arg(path).run()?;
    let start = text.lines().find_map(|line| line.strip_prefix("Journal start:"));
    Ok(start.is_some_and(|start| start.trim() != "0"))
}

/// Whether the superblock says that inodes wait to be deleted or truncated.
pub fn has_orphans(path: &Path) -> Result<bool> {
    let text = cmd("dumpe2fs").arg("-h").arg(path).run()?;
    Ok(text.lines().any(|line| line.starts_with("First orphan inode:") || line.contains(" orphan_present")))
}

/// Copies an image; its holes stay holes.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    cmd("cp").args("--sparse=always --reflink=never").arg(from).arg(to).run()?;
    Ok(())
}
