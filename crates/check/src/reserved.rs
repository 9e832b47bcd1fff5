//! Reserved inodes whose features the volume does not have: nothing may be in them.

use parext4_format::features::RoCompat;
use parext4_format::{FormatError, InodeNo};

use crate::problem::{PR_1_JOURNAL_INODE_NOT_CLEAR, PR_1_QUOTA_INODE_NOT_CLEAR};
use crate::volume::Volume;

/// `EXT4_USR_QUOTA_INO`
const USER_QUOTA: u32 = 3;
/// `EXT4_GRP_QUOTA_INO`
const GROUP_QUOTA: u32 = 4;
/// `EXT4_JOURNAL_INO`
const JOURNAL: u32 = 8;

/// Checks that the inode is empty if it is for a journal or a quota file that the volume does not have.
pub(crate) fn check(volume: &Volume<'_>, ino: InodeNo, bytes: &[u8]) {
    let (sb, raw) = (&volume.sb, volume.sb.raw());
    let (is_in_use, problem) = match ino.get() {
        number @ (USER_QUOTA | GROUP_QUOTA) => {
            let files = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
            let is_file = files.iter().any(|file| file.get() == number);
            (sb.ro_compat().contains(RoCompat::QUOTA) && is_file, PR_1_QUOTA_INODE_NOT_CLEAR)
        }
        // A journal without the feature is another problem.
        JOURNAL => (raw.s_journal_inum.get() == JOURNAL, PR_1_JOURNAL_INODE_NOT_CLEAR),
        _ => return,
    };
    // `i_links_count`, `i_blocks_lo`, and the first word of `i_block`.
    let has_contents = [26..28, 28..32, 40..44].into_iter().flatten().any(|at| bytes[at] != 0);
    if has_contents && !is_in_use {
        let error =
            FormatError::new("inode", "i_block", "has contents, but the volume does not use the inode");
        volume.report(error.of_inode(ino), problem);
    }
}
