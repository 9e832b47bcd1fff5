//! Reserved inodes whose features the volume does not have: they must be empty.

use std::ops::Range;

use parext4_format::features::{Compat, RoCompat};
use parext4_format::{FormatError, InodeNo};

use crate::problem::{
    PR_0_CLEAR_RESIZE_INODE, PR_1_INVALID_BAD_INODE, PR_1_JOURNAL_INODE_NOT_CLEAR,
    PR_1_ORPHAN_FILE_NOT_CLEAR, PR_1_QUOTA_INODE_NOT_CLEAR,
};
use crate::scan::BAD_BLOCKS;
use crate::volume::Volume;

/// `EXT4_USR_QUOTA_INO`
const USER_QUOTA: u32 = 3;
/// `EXT4_GRP_QUOTA_INO`
const GROUP_QUOTA: u32 = 4;
/// `EXT4_RESIZE_INO`
const RESIZE: u32 = 7;
/// Bytes of `i_block`.
const I_BLOCK: Range<usize> = 40..100;
/// `EXT4_JOURNAL_INO`
const JOURNAL: u32 = 8;

/// Checks that the inode is empty if it is for something that the volume does not have: a journal,
/// a quota file, room for more descriptors, or an orphan file. In the inode of bad blocks, only the
/// fields for its blocks may be set.
pub(crate) fn check(volume: &Volume<'_>, ino: InodeNo, bytes: &[u8]) {
    let (sb, raw) = (&volume.sb, volume.sb.raw());
    let is_zero = |places: &[Range<usize>]| {
        places.iter().all(|place| bytes[place.clone()].iter().all(|&byte| byte == 0))
    };
    // `i_links_count`, `i_blocks_lo`, and the first word of `i_block`.
    let is_empty = is_zero(&[26..28, 28..32, 40..44]);
    let fail = |field, text: &str, problem| {
        volume.report(FormatError::new("inode", field, text).of_inode(ino), problem);
    };
    let unused = |problem| fail("i_block", "has contents, but the volume does not use the inode", problem);
    match ino.get() {
        // `i_mode`, `i_uid`, `i_gid` and `i_links_count`, `i_file_acl`.
        BAD_BLOCKS if !is_zero(&[0..4, 24..28, 104..108]) => {
            fail(
                "i_mode",
                "the inode of bad blocks has an owner, a type, links or attributes",
                PR_1_INVALID_BAD_INODE,
            );
        }
        number @ (USER_QUOTA | GROUP_QUOTA) if !is_empty => {
            let files = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
            let is_file = files.iter().any(|file| file.get() == number);
            if !(sb.ro_compat().contains(RoCompat::QUOTA) && is_file) {
                unused(PR_1_QUOTA_INODE_NOT_CLEAR);
            }
        }
        RESIZE
            if bytes[I_BLOCK].iter().any(|&byte| byte != 0)
                && !sb.compat().contains(Compat::RESIZE_INODE) =>
        {
            unused(PR_0_CLEAR_RESIZE_INODE);
        }
        // A journal without the feature is another problem.
        JOURNAL if !is_empty && raw.s_journal_inum.get() != JOURNAL => unused(PR_1_JOURNAL_INODE_NOT_CLEAR),
        number
            if number == sb.orphan_file_inode()
                && !is_empty
                && !sb.compat().contains(Compat::ORPHAN_FILE) =>
        {
            unused(PR_1_ORPHAN_FILE_NOT_CLEAR);
        }
        _ => {}
    }
}
