//! The quota files of a new volume, which count its first directories. This module does no I/O.

use parext4_format::features::RoCompat;
use parext4_format::inode::{Inode, InodeFlags};
use parext4_format::quota::QuotaKind;
use parext4_format::quota::QuotaKinds;
use parext4_format::quota::entry::QuotaEntry;
use parext4_format::quota::tree::QuotaFile;
use parext4_format::{BlockRange, InodeNo};

use crate::MkfsOptions;
use crate::error::{MkfsError, Result};
use crate::file_blocks::FileBlocks;
use crate::geometry::{Geometry, lost_found_blocks};
use crate::pointers::BlockImage;

/// A quota file before its blocks are allocated.
#[derive(Clone, Debug)]
pub(crate) struct NewQuotaFile {
    pub kind: QuotaKind,
    contents: QuotaFile,
}

/// A quota file with its inode and its blocks.
#[derive(Clone, Debug)]
pub(crate) struct PlacedQuotaFile {
    pub ino: InodeNo,
    pub blocks: FileBlocks,
    pub file: NewQuotaFile,
}

/// Returns the quota files that the options ask for: with the feature `quota` by default users and
/// groups, and with the feature `project` also projects, as mke2fs makes them.
///
/// # Errors
/// [`MkfsError::Invalid`] for projects in inodes that have no room for them.
pub(crate) fn files(geometry: &Geometry, options: &MkfsOptions) -> Result<Vec<NewQuotaFile>> {
    let features = geometry.features.ro_compat;
    if features.contains(RoCompat::PROJECT) && geometry.inode_size < 256 {
        let size = geometry.inode_size;
        return Err(MkfsError::invalid(format_args!("inode size {size}: project needs at least 256")));
    }
    if !features.contains(RoCompat::QUOTA) {
        return Ok(Vec::new());
    }
    let mut kinds = options.quotas.unwrap_or(QuotaKinds { user: true, group: true, project: false });
    kinds.project |= features.contains(RoCompat::PROJECT) && options.quotas.is_none();
    if kinds.project && !features.contains(RoCompat::PROJECT) {
        return Err(MkfsError::invalid("quotas of projects need the feature project"));
    }
    let wanted = QuotaKind::ALL.into_iter().filter(|&kind| kinds.contains(kind));
    wanted.map(|kind| NewQuotaFile::new(kind, geometry, options)).collect()
}

impl NewQuotaFile {
    fn new(kind: QuotaKind, geometry: &Geometry, options: &MkfsOptions) -> Result<Self> {
        let owner = match kind {
            QuotaKind::User => options.owner.0,
            QuotaKind::Group => options.owner.1,
            QuotaKind::Project => 0,
        };
        let bytes = |blocks: u64| geometry.round_to_clusters(blocks) * u64::from(geometry.block_size);
        // The root directory, and `lost+found`, which belongs to root.
        let mut entries = vec![QuotaEntry { id: owner, space: bytes(1), inodes: 1, ..QuotaEntry::default() }];
        let space = bytes(lost_found_blocks(geometry.block_size));
        match entries.iter_mut().find(|entry| entry.id == 0) {
            Some(entry) => (entry.space, entry.inodes) = (entry.space + space, 2),
            None => entries.push(QuotaEntry { space, inodes: 1, ..QuotaEntry::default() }),
        }
        Ok(Self { kind, contents: QuotaFile::new(kind, &entries)? })
    }

    /// Returns the length of the file in blocks.
    pub(crate) fn blocks(&self, block_size: u32) -> u32 {
        let len = self.contents.bytes().len().div_ceil(block_size as usize);
        BlockRange::clamped(0, len as u64).count()
    }
}

impl PlacedQuotaFile {
    /// Returns the number of bytes in the file.
    pub(crate) fn size(&self) -> u64 {
        self.file.contents.bytes().len() as u64
    }

    /// Returns the blocks of the file.
    pub(crate) fn images(&self, block_size: u32) -> Vec<BlockImage> {
        let numbers = self.blocks.runs.iter().cloned().flatten();
        let image = |(number, bytes): (u64, &[u8])| {
            let mut block = bytes.to_vec();
            block.resize(block_size as usize, 0);
            (number, block)
        };
        numbers.zip(self.file.contents.bytes().chunks(block_size as usize)).map(image).collect()
    }

    /// Sets the size and the flags of the inode of a quota file.
    pub(crate) fn finish(&self, inode: &mut Inode) {
        inode.size = self.size();
        inode.flags |= InodeFlags::IMMUTABLE;
    }
}
