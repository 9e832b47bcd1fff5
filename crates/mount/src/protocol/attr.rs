//! Converts attributes, times and types of inodes to the values of the protocol.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType as Kind, INodeNo};
use parext4::{FileType, InodeRef, Metadata, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// Time for which the kernel may cache names and attributes: practically for ever, because only
/// this server changes the volume.
const CACHE_FOREVER: Duration = Duration::from_secs(1 << 30);

/// The set-user-ID and set-group-ID bits.
const SET_IDS: u16 = 0o6000;

/// The attributes and generation of an inode in a reply to a look-up.
#[derive(Debug)]
pub(crate) struct Entry {
    pub attr: FileAttr,
    pub generation: u64,
    /// True if the number of blocks changes only by requests, or the kernel is notified of a change
    /// by write-back.
    pub blocks_are_final: bool,
    /// True if the kernel may cache the name. False in a directory where one entry has several
    /// spellings: the kernel does not know that they are one entry, and would keep one spelling
    /// after the entry was removed by another.
    pub keeps_name: bool,
}

impl Entry {
    pub fn new(node: &InodeRef, block_size: u32) -> Self {
        let metadata = node.metadata();
        let (attr, generation) = (attr(&metadata, block_size), metadata.generation.into());
        Self { attr, generation, blocks_are_final: metadata.sectors_are_final, keeps_name: true }
    }

    /// Returns the entry for a name that does not exist, which the kernel caches.
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
        Self { attr, generation: 0, blocks_are_final: true, keeps_name: true }
    }

    /// Makes the kernel keep the attributes even if write-back may change the number of blocks,
    /// because the kernel is notified of such a change
    /// ([`ChangedBlocks`](crate::kernel_cache::ChangedBlocks)).
    ///
    /// This is only for a reply to a request for attributes: the kernel drops such a reply if it
    /// was notified of a change after it sent the request. Attributes in other replies may be older
    /// than the change.
    pub fn with_watched_blocks(self) -> Self {
        Self { blocks_are_final: true, ..self }
    }

    /// Returns the time for which the kernel may cache the name.
    pub fn name_timeout(&self) -> Duration {
        if self.keeps_name { CACHE_FOREVER } else { Duration::ZERO }
    }

    /// Returns the time for which the kernel may cache the attributes. It is zero in three cases:
    ///
    /// * A regular file has set-ID bits. The server clears them when the contents change, which the
    ///   kernel does not expect. A notification after the change does not suffice, because the
    ///   kernel may not have processed an older reply yet.
    /// * The file has data to write back, which changes its number of blocks without a request, and
    ///   the reply may be older than the notification of that change.
    /// * The attributes in an entry are the root's. They carry the kernel's number of the root
    ///   instead of its inode number.
    pub fn attr_timeout(&self) -> Duration {
        let has_set_ids = self.attr.kind == Kind::RegularFile && self.attr.perm & SET_IDS != 0;
        let changes = has_set_ids || !self.blocks_are_final || self.attr.ino == INodeNo::ROOT;
        if changes { Duration::ZERO } else { CACHE_FOREVER }
    }

    /// Returns the time for which the kernel may cache name and attributes, for a reply that has
    /// one time for both.
    pub fn timeout(&self) -> Duration {
        self.name_timeout().min(self.attr_timeout())
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

/// Encodes a device number like the kernel's `new_encode_dev`.
fn encode_device(major: u32, minor: u32) -> u32 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Returns the major and minor number, like the kernel's `new_decode_dev`.
pub(crate) fn decode_device(device: u32) -> (u32, u32) {
    ((device & 0xf_ff00) >> 8, device & 0xff | device >> 12 & 0xf_ff00)
}

fn time(timestamp: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(timestamp.seconds.unsigned_abs());
    let whole = if timestamp.seconds < 0 { UNIX_EPOCH - seconds } else { UNIX_EPOCH + seconds };
    whole + Duration::from_nanos(timestamp.nanoseconds.into())
}

/// Converts a time from a request. Before 1970, fuser 0.18 subtracts the nanoseconds instead of
/// adding them (`system_time_from_time`); this function corrects that.
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

/// Returns the current time, from the same clock as the engine.
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
        // fuser's value for 0.8 s after second -2.
        assert_eq!(timestamp(UNIX_EPOCH - Duration::new(2, 800_000_000)), at(-2, 800_000_000));
    }

    #[test]
    fn device_numbers_survive_a_round_trip() {
        for device in [(0, 0), (1, 3), (8, 255), (4095, 0xf_ffff), (259, 300)] {
            assert_eq!(decode_device(encode_device(device.0, device.1)), device);
        }
    }
}
