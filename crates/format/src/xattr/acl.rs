//! POSIX access control lists, in the formats of the device (version 1) and of system calls
//! (version 2).
//!
//! Sources: `fs/ext4/acl.h`, `linux/posix_acl_xattr.h`, acl(5).

use crate::{FormatError, Result};

/// The tag of the entry of the owner.
pub const USER_OBJ: u16 = 0x01;
/// The tag of an entry of a user by number.
pub const USER: u16 = 0x02;
/// The tag of the entry of the group.
pub const GROUP_OBJ: u16 = 0x04;
/// The tag of an entry of a group by number.
pub const GROUP: u16 = 0x08;
/// The tag of the upper bound of the permissions of `USER`, `GROUP_OBJ` and `GROUP`.
pub const MASK: u16 = 0x10;
/// The tag of the entry of all other users.
pub const OTHER: u16 = 0x20;

/// `EXT4_ACL_VERSION`
const DISK_VERSION: u32 = 1;
/// `POSIX_ACL_XATTR_VERSION`, with which a list in the format of system calls begins.
pub const XATTR_VERSION: u32 = 2;
/// The number in an entry of version 2 that names no user or group.
pub const NO_ID: u32 = u32::MAX;

/// An access control list whose entries are complete and in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    /// 3 bits: read, write, execute.
    perm: u16,
    /// The user or group; [`NO_ID`] except for `USER` and `GROUP`.
    id: u32,
}

impl Acl {
    /// Parses a list in the format of system calls. Returns `None` if it is empty, which means no
    /// list.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn from_xattr(bytes: &[u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(bytes, XATTR_VERSION)?;
        let mut entries = Vec::new();
        while !reader.is_at_end() {
            let mut entry = Entry { tag: reader.u16()?, perm: reader.u16()?, id: reader.u32()? };
            if !entry.is_named() {
                entry.id = NO_ID;
            }
            entries.push(entry);
        }
        if entries.is_empty() { Ok(None) } else { Self::checked(entries).map(Some) }
    }

    /// Parses a list in the format of the device.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn from_disk(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, DISK_VERSION)?;
        let mut entries = Vec::new();
        while !reader.is_at_end() {
            let mut entry = Entry { tag: reader.u16()?, perm: reader.u16()?, id: NO_ID };
            if entry.is_named() {
                entry.id = reader.u32()?;
            }
            entries.push(entry);
        }
        Self::checked(entries)
    }

    /// Returns the list in the format of system calls.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        self.encode(XATTR_VERSION, |_| true)
    }

    /// Returns the list in the format of the device.
    #[must_use]
    pub fn to_disk(&self) -> Vec<u8> {
        self.encode(DISK_VERSION, |entry| entry.is_named())
    }

    /// Returns the nine permission bits that correspond to the list.
    #[must_use]
    pub fn permissions(&self) -> u16 {
        self.entries.iter().fold(0, |mode, entry| match self.shift(entry.tag) {
            Some(shift) => mode | entry.perm << shift,
            None => mode,
        })
    }

    /// Changes the entries that correspond to permission bits.
    pub fn set_permissions(&mut self, permissions: u16) {
        for at in 0..self.entries.len() {
            if let Some(shift) = self.shift(self.entries[at].tag) {
                self.entries[at].perm = permissions >> shift & 7;
            }
        }
    }

    /// Returns true if the permission bits express the whole list.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Returns the shift of the permission bits that correspond to an entry. If there is a mask,
    /// the group's bits correspond to the mask.
    fn shift(&self, tag: u16) -> Option<u32> {
        match tag {
            USER_OBJ => Some(6),
            GROUP_OBJ if self.has(MASK) => None,
            GROUP_OBJ | MASK => Some(3),
            OTHER => Some(0),
            _ => None,
        }
    }

    fn has(&self, tag: u16) -> bool {
        self.entries.iter().any(|entry| entry.tag == tag)
    }

    fn checked(entries: Vec<Entry>) -> Result<Self> {
        for entry in &entries {
            if !matches!(entry.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER) {
                return Err(error("e_tag", format!("is {:#x}", entry.tag)));
            }
            if entry.perm > 7 {
                return Err(error("e_perm", format!("is {:#o}", entry.perm)));
            }
            if entry.is_named() && entry.id == NO_ID {
                return Err(error("e_id", "names no user or group".into()));
            }
        }
        // Entries must be sorted by tag.
        let in_order =
            entries.is_sorted_by(|one, next| one.tag < next.tag || (one.tag == next.tag && one.is_named()));
        if !in_order {
            return Err(error("e_tag", "the entries are not sorted".into()));
        }
        let list = Self { entries };
        let masked = list.has(MASK) || !(list.has(USER) || list.has(GROUP));
        if masked && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| list.has(tag)) {
            return Ok(list);
        }
        Err(error("e_tag", "a required entry is missing".into()))
    }

    fn encode(&self, version: u32, has_id: impl Fn(&Entry) -> bool) -> Vec<u8> {
        let mut bytes = version.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.to_le_bytes());
            bytes.extend(entry.perm.to_le_bytes());
            if has_id(entry) {
                bytes.extend(entry.id.to_le_bytes());
            }
        }
        bytes
    }
}

impl Entry {
    fn is_named(self) -> bool {
        matches!(self.tag, USER | GROUP)
    }
}

fn error(field: &'static str, problem: String) -> FormatError {
    FormatError::new("access control list", field, problem)
}

/// Reads the entries after the version.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], version: u32) -> Result<Self> {
        let mut reader = Self(bytes);
        match reader.u32()? {
            found if found == version => Ok(reader),
            found => Err(error("a_version", format!("is {found}, not {version}"))),
        }
    }

    fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) =
            self.0.split_first_chunk().ok_or_else(|| error("size", "an entry is truncated".into()))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a list in version 2 of `(tag, permissions, number)`.
    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = XATTR_VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend(tag.to_le_bytes().into_iter().chain(perm.to_le_bytes()).chain(id.to_le_bytes()));
        }
        bytes
    }

    const FULL: [(u16, u16, u32); 6] = [
        (USER_OBJ, 7, NO_ID),
        (USER, 6, 1000),
        (USER, 4, 70_000),
        (GROUP_OBJ, 5, NO_ID),
        (MASK, 4, NO_ID),
        (OTHER, 1, NO_ID),
    ];

    #[test]
    fn both_forms_say_the_same() {
        let bytes = list(&FULL);
        let acl = Acl::from_xattr(&bytes).unwrap().unwrap();
        assert_eq!(acl.to_xattr(), bytes);
        let disk = acl.to_disk();
        assert_eq!(disk.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(Acl::from_disk(&disk).unwrap(), acl);
        assert!(!acl.is_minimal());
        assert_eq!(Acl::from_xattr(&list(&[])), Ok(None));
    }

    #[test]
    fn the_mask_stands_for_the_group() {
        let mut acl = Acl::from_xattr(&list(&FULL)).unwrap().unwrap();
        assert_eq!(acl.permissions(), 0o741);
        acl.set_permissions(0o4626);
        assert_eq!(acl.permissions(), 0o626);
        assert!(acl.entries.contains(&Entry { tag: GROUP_OBJ, perm: 5, id: NO_ID }));
        let minimal = list(&[(USER_OBJ, 6, 0), (GROUP_OBJ, 4, 0), (OTHER, 0, 0)]);
        let mut acl = Acl::from_xattr(&minimal).unwrap().unwrap();
        assert!(acl.is_minimal());
        assert_eq!(acl.permissions(), 0o640);
        acl.set_permissions(0o751);
        assert_eq!(acl.permissions(), 0o751);
    }

    #[test]
    fn an_invalid_list_is_refused() {
        let entry = |tag, perm| (tag, perm, 5);
        let refused = |entries: &[(u16, u16, u32)]| Acl::from_xattr(&list(entries)).unwrap_err().field;
        let [owner, group, other] = [USER_OBJ, GROUP_OBJ, OTHER].map(|tag| entry(tag, 7));
        assert_eq!(refused(&[owner, group]), "e_tag");
        assert_eq!(refused(&[owner, other, group]), "e_tag");
        assert_eq!(refused(&[owner, owner, group, other]), "e_tag");
        assert_eq!(refused(&[owner, entry(USER, 7), group, other]), "e_tag", "there is no mask");
        assert_eq!(refused(&[owner, group, entry(0x40, 0), other]), "e_tag");
        assert_eq!(refused(&[owner, group, entry(OTHER, 8)]), "e_perm");
        assert_eq!(refused(&[owner, (USER, 7, NO_ID), group, entry(MASK, 7), other]), "e_id");
        assert_eq!(Acl::from_xattr(&list(&[owner])[..11]).unwrap_err().field, "size");
        assert_eq!(Acl::from_xattr(&[]).unwrap_err().field, "size");
        assert_eq!(Acl::from_disk(&list(&[])).unwrap_err().field, "a_version");
        assert_eq!(Acl::from_disk(&DISK_VERSION.to_le_bytes()).unwrap_err().field, "e_tag");
    }
}
