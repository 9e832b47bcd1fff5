//! Flags of files as text, which bsdtar has in records.

use parext4::InodeFlags;

/// The names of libarchive for the flags that ext4 has.
const NAMES: [(&str, InodeFlags); 18] = [
    ("sappnd", InodeFlags::APPEND),
    ("sappend", InodeFlags::APPEND),
    ("schg", InodeFlags::IMMUTABLE),
    ("schange", InodeFlags::IMMUTABLE),
    ("simmutable", InodeFlags::IMMUTABLE),
    ("nodump", InodeFlags::NODUMP),
    ("undel", InodeFlags::UNRM),
    ("compress", InodeFlags::COMPR),
    ("noatime", InodeFlags::NOATIME),
    ("dirsync", InodeFlags::DIRSYNC),
    ("journal-data", InodeFlags::JOURNAL_DATA),
    ("journal", InodeFlags::JOURNAL_DATA),
    ("secdel", InodeFlags::SECRM),
    ("securedeletion", InodeFlags::SECRM),
    ("sync", InodeFlags::SYNC),
    ("notail", InodeFlags::NOTAIL),
    ("topdir", InodeFlags::TOPDIR),
    ("projinherit", InodeFlags::PROJINHERIT),
];

/// Returns the flags that a text names, and the first name that is not known.
pub fn parse(text: &str) -> (InodeFlags, Option<&str>) {
    let (mut flags, mut unknown) = (InodeFlags::empty(), None);
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, flag)) => flags |= *flag,
            None => unknown = unknown.or(Some(name)),
        }
    }
    (flags, unknown)
}
