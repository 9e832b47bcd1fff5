//! Names of attributes: in system calls, and on the device, where a number replaces the first part.

use super::Xattr;

/// `user.`
pub const USER: u8 = 1;
/// `system.posix_acl_access`, the whole name.
pub const ACL_ACCESS: u8 = 2;
/// `system.posix_acl_default`, the whole name.
pub const ACL_DEFAULT: u8 = 3;
/// `trusted.`
pub const TRUSTED: u8 = 4;
/// `security.`
const SECURITY: u8 = 6;
/// `system.`, whose attributes are invisible to programs.
pub(super) const SYSTEM: u8 = 7;

/// The first part of a name for each number. Numbers that are not listed are invisible to programs.
const PREFIXES: [(u8, &[u8]); 5] = [
    (USER, b"user."),
    (ACL_ACCESS, b"system.posix_acl_access"),
    (ACL_DEFAULT, b"system.posix_acl_default"),
    (TRUSTED, b"trusted."),
    (SECURITY, b"security."),
];

/// Returns the name in system calls, for example `user.comment`; `None` if the attribute is
/// invisible to programs.
#[must_use]
pub fn full_name(xattr: &Xattr) -> Option<Vec<u8>> {
    let (_, prefix) = PREFIXES.iter().find(|(index, _)| *index == xattr.name_index)?;
    (is_whole(prefix) == xattr.name.is_empty()).then(|| [prefix, &xattr.name[..]].concat())
}

/// Splits a full name into the number of its first part and the rest, which may be empty. Returns
/// `None` if the first part is unknown.
#[must_use]
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(index, prefix)| {
        let rest = full.strip_prefix(*prefix)?;
        (!is_whole(prefix) || rest.is_empty()).then_some((*index, rest))
    })
}

/// Returns true if the prefix is a whole name.
fn is_whole(prefix: &[u8]) -> bool {
    !prefix.ends_with(b".")
}
