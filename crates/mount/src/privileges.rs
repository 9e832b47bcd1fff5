//! What a change of its contents or owner takes away from a file: file capabilities and set-ID bits. The kernel leaves
//! that to the server (`FUSE_HANDLE_KILLPRIV_V2`).
//!
//! For a write, the kernel says whether its sender may keep set-ID bits (`FUSE_WRITE_KILL_SUIDGID`). For truncations,
//! allocations and copies it does not. It never says whether the sender is in the file's group. The server finds that
//! out where it matters, see [`caller`](crate::caller).
//!
//! The kernel keeps the last mode that it was told. So no reply lets it cache a mode with set-ID bits, see
//! [`lifetime`](crate::attr::lifetime).

use parext4::{FileType, Node};

use crate::caller::{CAP_FOWNER, CAP_FSETID, Caller};
use crate::failure::Outcome;
use crate::server::Server;

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

impl Server {
    /// Removes the set-ID bits and file capabilities that a change of the contents by `caller` does not keep. Called
    /// before the change.
    pub fn drop_privileges(&self, node: &Node, caller: Caller) -> Outcome<()> {
        if node.file_type() != FileType::Regular {
            return Ok(());
        }
        // Refused for an append-only file, which keeps its capabilities then.
        if has_set_ids(node) && !caller.has(CAP_FSETID) {
            self.drop_set_ids(node, caller)?;
        }
        node.remove_capabilities()?;
        Ok(())
    }

    /// Clears the set-ID bits that a caller without `CAP_FSETID` may not keep.
    pub fn drop_set_ids(&self, node: &Node, caller: Caller) -> Outcome<()> {
        if has_set_ids(node) {
            let in_group = self.is_in_group_of(node, caller);
            node.clear_set_ids(|permissions| S_ISUID | set_group_id(permissions, in_group))?;
        }
        Ok(())
    }

    /// Clears the set-group-ID bit of an inode that gets another owner or access control list, unless the caller may keep
    /// it. The volume itself clears set-user-ID with every change of the owner.
    pub fn drop_set_group_id(&self, node: &Node, caller: Caller) -> Outcome<()> {
        if has_set_ids(node) && !self.is_in_group_of(node, caller) && !caller.has(CAP_FSETID) {
            node.clear_set_ids(|_| S_ISGID)?;
        }
        Ok(())
    }

    /// Returns the set-ID bits that chown(2) of a caller takes away.
    pub fn set_ids_lost_by_chown(&self, node: &Node, caller: Caller) -> u16 {
        if node.file_type() == FileType::Directory || !has_set_ids(node) {
            return 0;
        }
        let permissions = node.metadata().permissions;
        let keeps_group = self.is_in_group_of(node, caller) || caller.has(CAP_FSETID);
        permissions & (S_ISUID | set_group_id(permissions, keeps_group))
    }

    /// Whether the caller may do what is for an inode's owner.
    pub fn acts_as_owner(&self, node: &Node, caller: Caller) -> bool {
        caller.owns(self.entry(node).attr.uid) || caller.has(CAP_FOWNER)
    }

    /// Whether the caller is in the group that an inode is shown to be of.
    fn is_in_group_of(&self, node: &Node, caller: Caller) -> bool {
        caller.is_in_group(self.entry(node).attr.gid)
    }
}

fn has_set_ids(node: &Node) -> bool {
    node.metadata().permissions & (S_ISUID | S_ISGID) != 0
}

/// The set-group-ID bit, if it goes. Without execution by the group it means something else, and members keep it.
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
