//! Attributes, times and kinds of inodes, as the protocol has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType as Kind, INodeNo};
use parext4::{FileType, Metadata, Node, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// How long the kernel may go by what it was told: nobody else changes the volume.
pub(crate) const TTL: Duration = Duration::from_secs(1 << 30);

/// Returns how long the kernel may cache these attributes. Zero
///
/// * if a regular file has set-ID bits: the server clears them when the contents change, and the kernel does not expect
///   that. A notification after the change would not suffice, because an older reply may still be on its way;
/// * if they are of the root in an entry: there the kernel's number for it stands in place of its inode number.
pub(crate) fn lifetime(attr: &FileAttr) -> Duration {
    let has_set_ids = attr.kind == Kind::RegularFile && attr.perm & SET_IDS != 0;
    if has_set_ids || attr.ino == INodeNo::ROOT { Duration::ZERO } else { TTL }
}

/// Set-user-ID and set-group-ID.
const SET_IDS: u16 = 0o6000;

/// An inode, as the kernel learns of it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub attr: FileAttr,
    pub generation: u64,
}

impl Entry {
    pub fn new(node: &Node, block_size: u32) -> Self {
        let metadata = node.metadata();
        Self { attr: attr(&metadata, block_size), generation: metadata.generation.into() }
    }

    /// No inode: the kernel may remember that the name is free.
    pub fn negative() -> Self {
        let attr = FileAttr {
            ino: INodeNo(0),
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: Kind::RegularFile,
            perm: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 0,
            flags: 0,
        };
        Self { attr, generation: 0 }
    }
}

pub(crate) fn attr(metadata: &Metadata, block_size: u32) -> FileAttr {
    FileAttr {
        ino: INodeNo(metadata.ino.get().into()),
        size: metadata.size,
        blocks: metadata.sectors,
        atime: time(metadata.atime),
        mtime: time(metadata.mtime),
        ctime: time(metadata.ctime),
        crtime: time(metadata.crtime),
        kind: kind(metadata.file_type),
        perm: metadata.permissions,
        nlink: metadata.links.into(),
        uid: metadata.uid,
        gid: metadata.gid,
        rdev: metadata.rdev.map_or(0, |(major, minor)| encode_device(major, minor)),
        blksize: block_size,
        flags: 0,
    }
}

pub(crate) fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::Fifo => Kind::NamedPipe,
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Directory => Kind::Directory,
        FileType::Regular => Kind::RegularFile,
        FileType::Symlink => Kind::Symlink,
        FileType::Socket => Kind::Socket,
    }
}

/// `new_encode_dev` of the kernel.
fn encode_device(major: u32, minor: u32) -> u32 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// `new_decode_dev` of the kernel: major and minor.
pub(crate) fn decode_device(device: u32) -> (u32, u32) {
    ((device & 0xf_ff00) >> 8, device & 0xff | device >> 12 & 0xf_ff00)
}

fn time(timestamp: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(timestamp.seconds.unsigned_abs());
    let whole = if timestamp.seconds < 0 { UNIX_EPOCH - seconds } else { UNIX_EPOCH + seconds };
    whole + Duration::from_nanos(timestamp.nanoseconds.into())
}

/// A time that a request sets. Before 1970 fuser 0.18 takes the nanoseconds off instead of adding them
/// (`system_time_from_time`), which this undoes.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let (seconds, part) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since),
        Err(before) => {
            let before = before.duration();
            (i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds), before)
        }
    };
    Timestamp { seconds, nanoseconds: part.subsec_nanos() }
}

/// The time now, from the clock that the volume's own times come from.
pub(crate) fn now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert_eq!(time(at(-2, 800_000_000)), UNIX_EPOCH - Duration::from_millis(1200));
        assert_eq!(time(at(1 << 33, 7)), UNIX_EPOCH + Duration::new(1 << 33, 7));
        assert_eq!(timestamp(UNIX_EPOCH + Duration::new(1 << 33, 7)), at(1 << 33, 7));
        // What fuser makes of 0.8 s behind the second -2.
        assert_eq!(timestamp(UNIX_EPOCH - Duration::new(2, 800_000_000)), at(-2, 800_000_000));
    }

    #[test]
    fn device_numbers_go_both_ways() {
        for device in [(0, 0), (1, 3), (8, 255), (4095, 0xf_ffff), (259, 300)] {
            assert_eq!(decode_device(encode_device(device.0, device.1)), device);
        }
    }
}
