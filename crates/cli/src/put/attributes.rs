//! Attributes of files outside, as the volume takes them.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use parext4::{NewInode, SetAttributes, Special, Timestamp};

fn permissions(metadata: &Metadata) -> u16 {
    // 12 bits.
    (metadata.mode() & 0o7777).try_into().unwrap_or(0)
}

fn time(seconds: i64, nanoseconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: nanoseconds.try_into().unwrap_or(0) }
}

/// For making the inode.
pub fn new_inode(metadata: &Metadata) -> NewInode {
    NewInode {
        permissions: permissions(metadata),
        uid: metadata.uid(),
        gid: metadata.gid(),
        ..NewInode::default()
    }
}

/// For the end, when nothing touches the inode any more. Mode and owner again, as a set-group-ID parent may have
/// had its say and existing directories have their own.
pub fn all(metadata: &Metadata) -> SetAttributes {
    SetAttributes {
        permissions: Some(permissions(metadata)),
        uid: Some(metadata.uid()),
        gid: Some(metadata.gid()),
        atime: Some(time(metadata.atime(), metadata.atime_nsec())),
        mtime: Some(time(metadata.mtime(), metadata.mtime_nsec())),
        ctime: None,
    }
}

/// For a symbolic link, whose permissions mean nothing and stay as they were made.
pub fn of_symlink(metadata: &Metadata) -> SetAttributes {
    SetAttributes { permissions: None, ..all(metadata) }
}

/// What kind of special file it is, if it is one.
pub fn special(metadata: &Metadata) -> Option<Special> {
    let kind = metadata.file_type();
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    if kind.is_char_device() {
        Some(Special::CharDevice { major, minor })
    } else if kind.is_block_device() {
        Some(Special::BlockDevice { major, minor })
    } else if kind.is_fifo() {
        Some(Special::Fifo)
    } else {
        kind.is_socket().then_some(Special::Socket)
    }
}
