//! Access control lists, in the form of setxattr(2).

/// The tag of the owner.
pub const OWNER: u16 = 1;
/// The tag of a user by number.
pub const USER: u16 = 2;
/// The tag of the group.
pub const GROUP: u16 = 4;
/// The tag of the upper bound of all but the owner and [`OTHER`].
pub const MASK: u16 = 0x10;
/// The tag of all other users.
pub const OTHER: u16 = 0x20;

/// Returns a list of `(tag, permissions)`, in which each [`USER`] is `user`.
pub fn access_list(user: u32, entries: &[(u16, u16)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for &(tag, permissions) in entries {
        let id = if tag == USER { user } else { u32::MAX };
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Returns a list of `user` that the permissions cannot express.
pub fn full_access_list(user: u32) -> Vec<u8> {
    access_list(user, &[(OWNER, 6), (USER, 6), (GROUP, 4), (MASK, 6), (OTHER, 0)])
}
