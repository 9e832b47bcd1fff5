//! Access control lists of copies.

/// The attribute that contains an access list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";

/// The rights of the group in a mode. For a file with a list, they are the upper bound of the list, which can be more than the group has.
const OF_GROUP: u16 = 0o070;

/// Returns the permissions of a file whose access list was left out: the group does not get the rights of the upper bound.
pub fn permissions_without_list(permissions: u16) -> u16 {
    permissions & !OF_GROUP
}
