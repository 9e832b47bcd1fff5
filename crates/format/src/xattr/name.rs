//! Names as programs see them, and the numbers that stand for their first part.

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

/// What each number stands for. There are more, which programs do not see.
const PREFIXES: [(u8, &[u8]); 5] = [
    (USER, b"user."),
    (ACL_ACCESS, b"system.posix_acl_access"),
    (ACL_DEFAULT, b"system.posix_acl_default"),
    (TRUSTED, b"trusted."),
    (SECURITY, b"security."),
];

/// The name as programs see it, `user.comment` for instance; `None` if they do not.
#[must_use]
pub fn full_name(xattr: &Xattr) -> Option<Vec<u8>> {
    let (_, prefix) = PREFIXES.iter().find(|(index, _)| *index == xattr.name_index)?;
    (is_whole(prefix) == xattr.name.is_empty()).then(|| [prefix, &xattr.name[..]].concat())
}

/// A full name as it is stored: the number of its first part, and the rest, which may be empty. `None` if its
/// first part is unknown.
#[must_use]
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(index, prefix)| {
        let rest = full.strip_prefix(*prefix)?;
        (!is_whole(prefix) || rest.is_empty()).then_some((*index, rest))
    })
}

/// Whether nothing follows the prefix in a name.
fn is_whole(prefix: &[u8]) -> bool {
    !prefix.ends_with(b".")
}
