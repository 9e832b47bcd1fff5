//! Compares the usage in quota files with what the pass over the inodes has counted, as e2fsck does
//! after pass 5.

use std::fmt::Display;

use parext4_device::AlignedBuf;
use parext4_format::quota::entry::QuotaEntry;
use parext4_format::quota::tree::{self, QuotaBlocks};
use parext4_format::quota::{QUOTA_BLOCK, QuotaHeader, QuotaKind};
use parext4_format::{FormatError, FsBlock, InodeNo};

use crate::contents::Contents;
use crate::problem::{PR_0_INVALID_QUOTA_INO, PR_6_UPDATE_QUOTAS};
use crate::scan;
use crate::usage::{Ids, MOST_IDS, Used};
use crate::volume::Volume;

/// Reports inode numbers in the superblock that no quota file can have, whether or not the volume
/// has the feature.
pub(crate) fn check_numbers(volume: &Volume<'_>) {
    /// Reserved numbers of other inodes: bad blocks, the root, the boot loader, undeletion,
    /// resizing, the journal, exclusion, replicas.
    const OF_OTHERS: [u32; 8] = [1, 2, 5, 6, 7, 8, 9, 10];
    let (raw, most) = (volume.sb.raw(), volume.sb.inodes_count());
    for (field, number) in [
        ("s_usr_quota_inum", raw.s_usr_quota_inum.get()),
        ("s_grp_quota_inum", raw.s_grp_quota_inum.get()),
        ("s_prj_quota_inum", raw.s_prj_quota_inum.get()),
    ] {
        if OF_OTHERS.contains(&number) || number > most {
            let error = FormatError::new("superblock", field, format_args!("{number} is not a quota file"));
            volume.report(error, PR_0_INVALID_QUOTA_INO);
        }
    }
}

/// Compares all quota files.
pub(crate) fn check(volume: &Volume<'_>) {
    let Some(usage) = &volume.usage else { return };
    let Some(counts) = usage.take() else {
        let note = format!("quota: more than {MOST_IDS} users, groups and projects, which were not compared");
        return volume.findings.note(note);
    };
    for ((kind, file), ids) in QuotaKind::ALL.into_iter().zip(&usage.files).zip(counts.ids) {
        let compared = match file {
            Ok(None) => continue,
            Ok(Some(ino)) => file_of(volume, kind, *ino, ids),
            Err(error) => Err(error.clone()),
        };
        if let Err(error) = compared {
            volume.report(error, PR_6_UPDATE_QUOTAS);
        }
    }
}

/// Compares one file with the usage of all ids.
///
/// # Errors
/// Corruption of the file, also if a block of it cannot be read.
fn file_of(volume: &Volume<'_>, kind: QuotaKind, ino: InodeNo, ids: Ids) -> Result<(), FormatError> {
    let mut buf = volume.buffer(1);
    let bytes = volume.inode_bytes(ino.get(), &mut buf);
    let inode = bytes.and_then(|bytes| scan::parse(volume, ino, &bytes));
    let inode = inode.ok_or_else(|| wrong("inode", "is not in use").of_inode(ino))?;
    let Some(contents) = Contents::new(volume, ino, &inode) else {
        volume
            .findings
            .note(format!("the quota file of inode {ino} has too many extents, and was not compared"));
        return Ok(());
    };
    let mut file = QuotaFile { volume, contents: &contents, buf, loaded: None };
    let mut comparison = Comparison { volume, kind, ino, ids };
    let compared = file.read(0, |bytes| QuotaHeader::parse(bytes, kind, inode.size)).flatten();
    compared
        .and_then(|header| {
            tree::walk(&mut file, &header, |place, entry| {
                let logical = u64::from(place.block) * QUOTA_BLOCK as u64 / volume.block_size as u64;
                comparison.entry(entry, contents.block(logical));
            })
        })
        .map_err(|error| error.of_inode(ino))?;
    comparison.missing();
    Ok(())
}

fn wrong(field: &'static str, problem: impl Display) -> FormatError {
    FormatError::new("quota file", field, problem)
}

struct Comparison<'a, 'v> {
    volume: &'a Volume<'v>,
    kind: QuotaKind,
    /// The quota file.
    ino: InodeNo,
    /// The usage of ids whose entries were not compared yet.
    ids: Ids,
}

impl Comparison<'_, '_> {
    /// Compares an entry, which lies in `block` of the volume.
    fn entry(&mut self, entry: &QuotaEntry, block: Option<u64>) {
        let used = self.ids.remove(&entry.id).unwrap_or_default();
        let space = self.space(used);
        if (entry.space, entry.inodes) == (space, used.inodes) {
            return;
        }
        let field = if entry.space == space { "dqb_curinodes" } else { "dqb_curspace" };
        let problem = format_args!(
            "{} {}: {} bytes and {} inodes, but {space} bytes and {} inodes are in use",
            self.kind.name(),
            entry.id,
            entry.space,
            entry.inodes,
            used.inodes
        );
        let error = wrong(field, problem).of_inode(self.ino);
        let error = match block {
            Some(block) => error.in_block(FsBlock(block)),
            None => error,
        };
        self.volume.report(error, PR_6_UPDATE_QUOTAS);
    }

    /// Reports the ids that have no entry.
    fn missing(mut self) {
        let mut rest: Vec<(u32, Used)> = self.ids.drain().collect();
        rest.sort_unstable_by_key(|(id, _)| *id);
        for (id, used) in rest {
            let (kind, space, inodes) = (self.kind.name(), self.space(used), used.inodes);
            let problem =
                format_args!("{kind} {id} has no entry, but {space} bytes and {inodes} inodes are in use");
            self.volume.report(wrong("dqb_id", problem).of_inode(self.ino), PR_6_UPDATE_QUOTAS);
        }
    }

    fn space(&self, used: Used) -> u64 {
        used.blocks.saturating_mul(self.volume.block_size as u64)
    }
}

/// The quota blocks of a file.
struct QuotaFile<'a, 'v> {
    volume: &'a Volume<'v>,
    contents: &'a Contents,
    buf: AlignedBuf,
    /// The block of the volume that is in `buf`.
    loaded: Option<u64>,
}

impl QuotaBlocks for QuotaFile<'_, '_> {
    type Error = FormatError;

    fn read<R>(&mut self, block: u32, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R, FormatError> {
        let unit = self.volume.block_size as u64;
        let at = u64::from(block) * QUOTA_BLOCK as u64;
        let found = self.contents.block(at / unit);
        let found = found.ok_or_else(|| wrong("reference", format_args!("block {block} is missing")))?;
        if self.loaded != Some(found) {
            self.loaded = None;
            let read = self.volume.try_read(found, &mut self.buf);
            read.map_err(|error| wrong("block", error).in_block(FsBlock(found)))?;
            self.loaded = Some(found);
        }
        let offset = (at % unit) as usize;
        Ok(use_bytes(&self.buf[offset..offset + QUOTA_BLOCK]))
    }

    /// Does nothing, because a check changes no blocks.
    fn change(&mut self, block: u32, _: impl FnOnce(&mut [u8])) -> Result<(), FormatError> {
        Err(wrong("reference", format_args!("block {block} is read-only")))
    }
}
