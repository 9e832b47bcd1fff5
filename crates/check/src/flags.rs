//! `i_flags`: each flag needs a type of inode, a feature, or an attribute.

use parext4_format::FormatError;
use parext4_format::features::{Compat, Incompat};
use parext4_format::inode::{FileType, Inode, InodeFlags};

use crate::problem::{
    PR_1_CASEFOLD_FEATURE, PR_1_CASEFOLD_NONDIR, PR_1_EXTENT_FEATURE, PR_1_HTREE_NODIR, PR_1_HTREE_SET,
    PR_1_INLINE_DATA_FEATURE, PR_1_SET_IMAGIC, PR_1_SET_IMMUTABLE, PR_1_SPECIAL_EXTENTS_IDATA, Problem,
};
use crate::volume::Volume;

/// Checks the flags of an inode, and passes what is wrong to `report`.
pub(crate) fn check(volume: &Volume<'_>, inode: &Inode, report: &dyn Fn(FormatError, Problem)) {
    let (flags, kind, compat) = (inode.flags, inode.file_type(), volume.sb.compat());
    let fail = |problem: &str, e2fsck| report(FormatError::new("inode", "i_flags", problem), e2fsck);
    if flags.contains(InodeFlags::INDEX) {
        if kind != FileType::Directory {
            fail("an index in a file that is no directory", PR_1_HTREE_NODIR);
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
            fail("casefold in a file that is no directory", PR_1_CASEFOLD_NONDIR);
        } else if !volume.has(Incompat::CASEFOLD) {
            fail("casefold without the feature", PR_1_CASEFOLD_FEATURE);
        }
    }
    if matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink) {
        return;
    }
    if flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
        fail("extents or inline data in a special file", PR_1_SPECIAL_EXTENTS_IDATA);
    }
    if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        fail("immutable or append-only special file", PR_1_SET_IMMUTABLE);
    }
}
