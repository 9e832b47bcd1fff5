//! Removes file capabilities and set-ID bits from a file when its contents or owner change. The
//! kernel leaves that to the server (`FUSE_HANDLE_KILLPRIV_V2`).
//!
//! For a write, the kernel tells whether its sender may keep set-ID bits
//! (`FUSE_WRITE_KILL_SUIDGID`). For truncations, allocations and copies it does not tell that. It
//! never tells whether the sender is in the file's group. The server reads that from `/proc` where
//! it matters, see [`Caller`].
//!
//! The kernel caches the last mode that it was told. So no reply lets it cache a mode with set-ID
//! bits, see [`Entry::attr_timeout`](crate::protocol::attr::Entry::attr_timeout).

use parext4::server::ServerInode;
use parext4::{FileType, InodeRef, Metadata};

use super::Server;
use crate::protocol::{CAP_FOWNER, CAP_FSETID, Caller, Outcome};

const S_ISUID: u16 = 0o4000;
pub(super) const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

impl Server {
    /// Returns the set-ID bits that a new file with this owner and group loses: its creator could
    /// act as another user or group by these bits. The stored ids can differ from the creator's
    /// with `uid`, `gid` and `grpid`, and in a set-group-ID directory. Linux checks only the last
    /// case, and only from 6.0 on.
    pub fn set_ids_lost_by_creation(&self, permissions: u16, (uid, gid): (u32, u32), caller: Caller) -> u16 {
        if permissions & (S_ISUID | S_ISGID) == 0 || caller.has(CAP_FSETID) {
            return 0;
        }
        let loses_user = !caller.owns(uid);
        let loses_group = permissions & S_IXGRP != 0 && !caller.is_in_group(gid);
        set_ids(loses_user, loses_group)
    }

    /// Returns the set-ID bits that an inode with this stored owner and group does not show. With
    /// these bits, the kernel would execute the file as the owner or the group that it shows, not
    /// as the stored one.
    pub fn hidden_set_ids(&self, is_dir: bool, (uid, gid): (u32, u32)) -> u16 {
        let shown = self.owner(uid, gid);
        set_ids(!is_dir && shown.0 != uid, !is_dir && shown.1 != gid)
    }

    /// Returns the permissions to store for a chmod(2) to `permissions`, without the set-ID bits
    /// that the inode does not show.
    pub fn permissions_to_store(&self, node: &InodeRef, permissions: u16) -> u16 {
        permissions & !self.hidden_set_ids_of(node)
    }

    /// Returns true if the file has set-ID bits that it does not show.
    pub fn has_hidden_set_ids(&self, node: &InodeRef) -> bool {
        self.has_shown_ids() && node.metadata().permissions & self.hidden_set_ids_of(node) != 0
    }

    /// Removes the set-ID bits that a file does not show. This is for changes for which the kernel
    /// does not say whether the caller may keep such bits: it caches writes, and stores through
    /// mappings, to a file that shows no set-ID bits.
    pub fn drop_hidden_set_ids(&self, node: &InodeRef) -> Outcome<()> {
        if self.has_hidden_set_ids(node) {
            let hidden = self.hidden_set_ids_of(node);
            node.clear_set_ids(|_| hidden)?;
        }
        Ok(())
    }

    fn hidden_set_ids_of(&self, node: &InodeRef) -> u16 {
        let Metadata { file_type, uid, gid, .. } = node.metadata();
        self.hidden_set_ids(file_type == FileType::Directory, (uid, gid))
    }

    /// Removes the set-ID bits and file capabilities that a file loses if `caller` changes its
    /// contents. The caller calls this before the change.
    pub fn drop_privileges(&self, node: &InodeRef, caller: Caller) -> Outcome<()> {
        if node.file_type() != FileType::Regular {
            return Ok(());
        }
        // This fails for an append-only file, which then keeps its capabilities.
        if has_set_ids(node) && !caller.has(CAP_FSETID) {
            self.drop_set_ids(node, caller)?;
        }
        node.remove_capabilities()?;
        Ok(())
    }

    /// Clears the set-ID bits that a caller without `CAP_FSETID` may not keep.
    pub fn drop_set_ids(&self, node: &InodeRef, caller: Caller) -> Outcome<()> {
        if has_set_ids(node) {
            let in_group = self.is_in_group_of(node, caller);
            node.clear_set_ids(|permissions| S_ISUID | set_group_id(permissions, in_group))?;
        }
        Ok(())
    }

    /// Clears the set-group-ID bit of an inode whose owner or access control list changes, unless
    /// the caller may keep it. The volume itself clears set-user-ID with every change of the owner.
    pub fn drop_set_group_id(&self, node: &InodeRef, caller: Caller) -> Outcome<()> {
        if has_set_ids(node) && !self.is_in_group_of(node, caller) && !caller.has(CAP_FSETID) {
            node.clear_set_ids(|_| S_ISGID)?;
        }
        Ok(())
    }

    /// Returns the set-ID bits that an inode loses by a chown(2) of the caller.
    pub fn set_ids_lost_by_chown(&self, node: &InodeRef, caller: Caller) -> u16 {
        if node.file_type() == FileType::Directory || !has_set_ids(node) {
            return 0;
        }
        let permissions = node.metadata().permissions;
        let keeps_group = self.is_in_group_of(node, caller) || caller.has(CAP_FSETID);
        permissions & (S_ISUID | set_group_id(permissions, keeps_group))
    }

    /// Returns true if the caller has the rights of the owner of an inode.
    pub fn acts_as_owner(&self, node: &InodeRef, caller: Caller) -> bool {
        caller.owns(self.entry(node).attr.uid) || caller.has(CAP_FOWNER)
    }

    /// Returns true if the caller is in the group that an inode shows.
    fn is_in_group_of(&self, node: &InodeRef, caller: Caller) -> bool {
        caller.is_in_group(self.entry(node).attr.gid)
    }
}

/// Returns the set-user-ID bit, the set-group-ID bit, or both.
fn set_ids(user: bool, group: bool) -> u16 {
    (if user { S_ISUID } else { 0 }) | (if group { S_ISGID } else { 0 })
}

fn has_set_ids(node: &InodeRef) -> bool {
    node.metadata().permissions & (S_ISUID | S_ISGID) != 0
}

/// Returns the set-group-ID bit if the inode loses it, else 0. If the group cannot execute the
/// file, the bit has another meaning, and members of the group keep it.
fn set_group_id(permissions: u16, in_group: bool) -> u16 {
    if in_group && permissions & S_IXGRP == 0 { 0 } else { S_ISGID }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_set_group_id_without_execution() {
        assert_eq!([0o2755, 0o2745, 0o2644].map(|bits| set_group_id(bits, true)), [S_ISGID, 0, 0]);
        assert_eq!([0o2755, 0o2745, 0o2644].map(|bits| set_group_id(bits, false)), [S_ISGID; 3]);
    }
}
