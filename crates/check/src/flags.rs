//! `i_flags`: each flag needs a type of inode, a feature, or an attribute.

use parext4_format::extent::{self, ROOT_SIZE};
use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::inode::{FileType, Inode, InodeFlags};
use parext4_format::{FormatError, InodeNo};

use crate::problem::{
    PR_1_CASEFOLD_FEATURE, PR_1_CASEFOLD_NONDIR, PR_1_CLEAR_EXTENT_FOR_INLINE_DATA,
    PR_1_CLEAR_EXTENT_INLINE_DATA_FLAGS, PR_1_CLEAR_EXTENT_INLINE_DATA_INODE,
    PR_1_CLEAR_INLINE_DATA_FOR_EXTENT, PR_1_EXTENT_FEATURE, PR_1_HTREE_NODIR, PR_1_HTREE_SET,
    PR_1_INLINE_DATA_FEATURE, PR_1_NO_BIGALLOC_BLOCKMAP_FILES, PR_1_SET_IMAGIC, PR_1_SET_IMMUTABLE,
    PR_1_SPECIAL_EXTENTS_IDATA, Problem,
};
use crate::special::is_special;
use crate::volume::Volume;

/// Checks the flags of an inode, and passes what is wrong to `report`.
pub(crate) fn check(volume: &Volume<'_>, ino: InodeNo, inode: &Inode, report: &dyn Fn(FormatError, Problem)) {
    let (flags, kind, compat) = (inode.flags, inode.file_type(), volume.sb.compat());
    let fail = |problem: &str, e2fsck| report(FormatError::new("inode", "i_flags", problem), e2fsck);
    if flags.contains(InodeFlags::INDEX) {
        if kind != FileType::Directory {
            fail("an index in a file that is not a directory", PR_1_HTREE_NODIR);
        } else if !compat.contains(Compat::DIR_INDEX) {
            fail("an index without dir_index", PR_1_HTREE_SET);
        }
    }
    if flags.contains(InodeFlags::EXTENTS) && !volume.has(Incompat::EXTENTS) {
        fail("extents without the feature", PR_1_EXTENT_FEATURE);
    }
    if flags.contains(InodeFlags::INLINE_DATA) && !volume.has(Incompat::INLINE_DATA) {
        fail("inline data without the feature", PR_1_INLINE_DATA_FEATURE);
    }
    if flags.contains(InodeFlags::IMAGIC) && !compat.contains(Compat::IMAGIC_INODES) {
        fail("imagic without the feature", PR_1_SET_IMAGIC);
    }
    if flags.contains(InodeFlags::CASEFOLD) {
        if kind != FileType::Directory {
            fail("casefold in a file that is not a directory", PR_1_CASEFOLD_NONDIR);
        } else if !volume.has(Incompat::CASEFOLD) {
            fail("casefold without the feature", PR_1_CASEFOLD_FEATURE);
        }
    }
    if !is_special(inode) {
        if flags.contains(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
            fail("extents and inline data", likely_format(volume, inode));
        }
        let is_of_file = matches!(kind, FileType::Regular | FileType::Directory);
        let is_mapped = !flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
        let has_data = inode.blocks > if inode.file_acl == 0 { 0 } else { volume.block_size as u64 / 512 };
        let is_own = ino.get() < volume.sb.first_inode() && ino != InodeNo::ROOT;
        if volume.sb.ro_compat().contains(RoCompat::BIGALLOC)
            && is_of_file
            && is_mapped
            && has_data
            && !is_own
        {
            fail("no extents in a volume with bigalloc", PR_1_NO_BIGALLOC_BLOCKMAP_FILES);
        }
        return;
    }
    if flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
        fail("extents or inline data in a special file", PR_1_SPECIAL_EXTENTS_IDATA);
    }
    if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        fail("immutable or append-only special file", PR_1_SET_IMMUTABLE);
    }
}

/// Returns the problem of a file with the flags of two formats: that of the format which its
/// contents have.
fn likely_format(volume: &Volume<'_>, inode: &Inode) -> Problem {
    let room = (ROOT_SIZE + inode.xattr_area().len()) as u64;
    let mut words = inode.block.chunks_exact(4);
    if extent::parse_node(&inode.block, None).is_ok() {
        PR_1_CLEAR_INLINE_DATA_FOR_EXTENT
    } else if inode.size < room {
        PR_1_CLEAR_EXTENT_FOR_INLINE_DATA
    } else if words.all(|word| {
        u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])) < volume.sb.blocks_count()
    }) {
        PR_1_CLEAR_EXTENT_INLINE_DATA_FLAGS
    } else {
        PR_1_CLEAR_EXTENT_INLINE_DATA_INODE
    }
}
