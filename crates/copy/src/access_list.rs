//! Access control lists as text, which tar archives have in their records, and in the form of
//! setxattr(2).
//!
//! The text is as acl(5) has it: entries `TAG:QUALIFIER:PERMISSIONS`, separated by commas or line
//! ends, with comments from `#` to the end of the entry. star and libarchive add the number of a
//! user or group as a fourth field.

use crate::error::{Context, Result, bail, ensure};
use nix::unistd::{Group, User};
use parext4_format::xattr::acl::{GROUP, GROUP_OBJ, MASK, NO_ID, OTHER, USER, USER_OBJ, XATTR_VERSION};

/// The attributes that contain lists.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The rights of the group in a mode. For a file with a list, they are the upper bound of the list,
/// which can be more than the group has.
const OF_GROUP: u16 = 0o070;

/// Maximum number of entries of a list: the value of an attribute has at most 65536 bytes.
const MOST_ENTRIES: usize = (65536 - 4) / 8;
/// Maximum length in bytes of a text that an error message quotes.
const SHOWN: usize = 64;

/// An entry of a list, in the order of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tag: u16,
    id: u32,
    permissions: u16,
}

/// Returns the permissions of a file whose access list was left out: the group does not get the
/// rights of the upper bound.
pub fn permissions_without_list(permissions: u16) -> u16 {
    permissions & !OF_GROUP
}

/// Converts a text to the form of setxattr(2). The database of this machine has the numbers of
/// users and groups that the text names without one.
///
/// # Errors
/// Names the entry that is wrong, or the user or group that is not known.
pub fn parse(text: &[u8]) -> Result<Vec<u8>> {
    let text = str::from_utf8(text).context("is not UTF-8")?;
    let entries = text.split([',', '\n']).map(|entry| entry.split('#').next().unwrap_or_default().trim());
    let mut list = Vec::new();
    for entry in entries.filter(|entry| !entry.is_empty()) {
        ensure!(list.len() < MOST_ENTRIES, "more than {MOST_ENTRIES} entries");
        list.push(Entry::parse(entry).with_context(|| shown(entry))?);
    }
    list.sort_unstable();
    let mut bytes = XATTR_VERSION.to_le_bytes().to_vec();
    for Entry { tag, id, permissions } in list {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    Ok(bytes)
}

/// Converts a list in the form of setxattr(2) to a text with numbers. Returns `None` if it is
/// malformed.
pub fn to_text(list: &[u8]) -> Option<String> {
    let entries = list.strip_prefix(&XATTR_VERSION.to_le_bytes())?.chunks(8).map(|entry| {
        let number = |at: usize| Some(u16::from_le_bytes(entry.get(at..at + 2)?.try_into().ok()?));
        let (tag, permissions) = (number(0)?, number(2)?);
        let id = u32::from_le_bytes(entry.get(4..8)?.try_into().ok()?);
        let (name, id) = match tag {
            USER_OBJ => ("user", None),
            USER => ("user", Some(id)),
            GROUP_OBJ => ("group", None),
            GROUP => ("group", Some(id)),
            MASK => ("mask", None),
            OTHER => ("other", None),
            _ => return None,
        };
        let id = id.map_or(String::new(), |id| id.to_string());
        let letters = [(4, 'r'), (2, 'w'), (1, 'x')];
        let letters: String =
            letters.map(|(bit, letter)| if permissions & bit > 0 { letter } else { '-' }).iter().collect();
        Some(format!("{name}:{id}:{letters}"))
    });
    Some(entries.collect::<Option<Vec<_>>>()?.join(","))
}

impl Entry {
    fn parse(entry: &str) -> Result<Self> {
        let fields: Vec<&str> = entry.splitn(5, ':').map(str::trim).collect();
        let (tag, name, permissions, number) = match fields[..] {
            // Solaris and older programs leave the qualifier out where there is none.
            [tag @ ("mask" | "m" | "other" | "o"), permissions] => (tag, "", permissions, None),
            [tag, name, permissions] => (tag, name, permissions, None),
            [tag, name, permissions, number] => (tag, name, permissions, Some(number)),
            _ => bail!("is no entry of an access control list"),
        };
        let (tag, id) = match (tag, name.is_empty()) {
            ("user" | "u", true) => (USER_OBJ, NO_ID),
            ("user" | "u", false) => (USER, id(name, number, user)?),
            ("group" | "g", true) => (GROUP_OBJ, NO_ID),
            ("group" | "g", false) => (GROUP, id(name, number, group)?),
            ("mask" | "m", true) => (MASK, NO_ID),
            ("other" | "o", true) => (OTHER, NO_ID),
            _ => bail!("is no entry of an access control list"),
        };
        Ok(Self { tag, id, permissions: bits(permissions)? })
    }
}

/// Returns the number of a user or group: the fourth field of the entry, or the name if it is a
/// number, or what `find` knows.
fn id(name: &str, number: Option<&str>, find: fn(&str) -> Result<u32>) -> Result<u32> {
    let id = match number.filter(|number| !number.is_empty()) {
        Some(number) => number.parse().context("the number is wrong")?,
        None => name.parse().or_else(|_| find(&unescaped(name)?))?,
    };
    ensure!(id != NO_ID, "{id} is not the number of a user or group");
    Ok(id)
}

/// Returns a name without the escapes of acl_to_text(3), which writes characters that separate
/// fields as `\\NNN`, in octal.
fn unescaped(name: &str) -> Result<String> {
    let (mut bytes, mut rest) = (Vec::new(), name.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(u8::is_ascii_digit));
        let code = digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8(bytes).context("the name is not UTF-8")
}

fn user(name: &str) -> Result<u32> {
    let user = User::from_name(name)?;
    Ok(user.with_context(|| format!("this machine knows no user {}", shown(name)))?.uid.as_raw())
}

fn group(name: &str) -> Result<u32> {
    let group = Group::from_name(name)?;
    Ok(group.with_context(|| format!("this machine knows no group {}", shown(name)))?.gid.as_raw())
}

fn bits(letters: &str) -> Result<u16> {
    const EXPECTED: &str = "permissions: expected 1 to 3 of the letters r, w, x and -";
    ensure!((1..=3).contains(&letters.len()), "{EXPECTED}");
    let bits = letters.chars().map(|letter| match letter {
        'r' => Ok(4),
        'w' => Ok(2),
        'x' => Ok(1),
        '-' => Ok(0),
        _ => bail!("{EXPECTED}"),
    });
    bits.sum()
}

/// Returns the beginning of a text, for messages.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(text: &str, expected: &str) {
        let list = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error:#}"));
        assert_eq!(to_text(&list).unwrap(), expected, "{text}");
    }

    #[test]
    fn texts_of_each_program_give_the_same_list() {
        let list = "user::rw-,user:0:rwx,user:33:rw-,group::r--,group:0:r--,mask::r--,other::---";
        same(list, list);
        // GNU tar.
        let text = "user::rw-\nuser:root:rwx\t#effective:r--\nuser:33:rw-      \t#effective:r--\ngroup::r--\ngroup:root:r--\nmask::r--\nother::---\n";
        same(text, list);
        // bsdtar and star, in another order; a number counts more than a name.
        same(
            "user::rw-,group::r--,other::---,user:no-such-name:rw-:33,user:root:rwx:0,group:daemon:r--:0,mask::r--",
            list,
        );
        same("u::rw,u:33:rw,u:0:rwx,g::r,g:0:r,m:r,o:-", list);
        assert_eq!(parse(b"").unwrap(), XATTR_VERSION.to_le_bytes());
    }

    #[test]
    fn wrong_entries_are_named() {
        for (text, wrong) in [
            ("user::rwx,user:no-such-name:r--", "knows no user no-such-name"),
            ("group:no-such-name:r--", "knows no group no-such-name"),
            ("user:1:rwz", "user:1:rwz: permissions: expected 1 to 3 of the letters"),
            ("user:1:r-r-", "expected 1 to 3 of the letters"),
            ("user:1:", "expected 1 to 3 of the letters"),
            ("user:1:rwx:x", "the number is wrong"),
            ("user:4294967295:rwx", "4294967295 is not the number"),
            ("mask:1:rwx", "is no entry"),
            ("user:rwx", "is no entry"),
            ("owner@:rwx::allow", "is no entry"),
            ("a:b:c:d:e:f", "is no entry"),
        ] {
            let error = format!("{:#}", parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(wrong), "{text}: {error}");
        }
        let many = "user:1:rwx,".repeat(MOST_ENTRIES + 1);
        assert!(parse(many.as_bytes()).unwrap_err().to_string().contains("more than"));
        assert_eq!(to_text(&[2, 0, 0, 0, 1, 0, 7]), None);
        assert_eq!(to_text(b"x"), None);
    }
}
