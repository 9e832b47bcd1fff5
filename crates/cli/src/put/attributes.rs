//! Converts attributes of files outside for the volume.

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

/// Returns the attributes to make the inode with.
pub fn new_inode(metadata: &Metadata) -> NewInode {
    NewInode::new().permissions(permissions(metadata)).uid(metadata.uid()).gid(metadata.gid())
}

/// Returns the attributes to set after the last change of the inode. Sets mode and owner again, because a set-group-ID
/// parent changes them in a new inode, and existing directories have their own.
pub fn all(metadata: &Metadata) -> SetAttributes {
    SetAttributes::new()
        .permissions(permissions(metadata))
        .uid(metadata.uid())
        .gid(metadata.gid())
        .atime(time(metadata.atime(), metadata.atime_nsec()))
        .mtime(time(metadata.mtime(), metadata.mtime_nsec()))
}

/// Returns the attributes of a symbolic link to set; its permissions have no effect and stay as they are.
pub fn of_symlink(metadata: &Metadata) -> SetAttributes {
    all(metadata).permissions(None)
}

/// Returns the kind of a special file, `None` for other files.
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
