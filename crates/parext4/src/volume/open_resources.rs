//! Returns what operations hold at the moment, for tests that assert that failed operations release
//! everything.

use super::Volume;
use crate::quota::Quotas;
use crate::sync::atomic::Ordering;

/// Ranges, pages, reservations and handles that operations hold. All are zero on a volume without
/// an operation in progress and without dirty pages. A dirty page keeps its reservations until it
/// is written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenResources {
    /// Number of operations on file data in flight.
    pub operations: u64,
    /// Number of open queues.
    pub queues: u64,
    /// Number of open handles of the journal.
    pub handles: u64,
    /// Number of files with a range that is held or waited for.
    pub ranges: u64,
    /// Number of files whose end an operation has announced or claimed.
    pub ends: u64,
    /// Number of pages that are pinned, filled or written back.
    pub pages: u64,
    /// Number of pages that are dirty or written back.
    pub dirty_pages: u64,
    /// Number of blocks that are reserved for dirty pages.
    pub delayed_blocks: u64,
    /// Number of blocks that are reserved otherwise. Negative if blocks could be reserved twice.
    pub reserved_blocks: i64,
    /// Bytes that are reserved in quotas.
    pub reserved_quota: i64,
    /// Number of inodes that are reserved in quotas.
    pub reserved_quota_inodes: i64,
}

impl Volume {
    /// Implements [`ServerVolume::open_resources`](crate::server::ServerVolume::open_resources).
    #[must_use]
    pub(crate) fn open_resources(&self) -> OpenResources {
        let engine = &self.engine;
        let reserved = engine.quotas().map(Quotas::reserved).unwrap_or_default();
        let mut resources = OpenResources {
            operations: engine.in_flight().count(),
            queues: engine.queues().load(Ordering::SeqCst).into(),
            handles: engine.journal().open_handles(),
            pages: engine.pages().busy_pages(),
            dirty_pages: engine.pages().dirty_pages(),
            delayed_blocks: engine.allocator().delayed_blocks(),
            reserved_blocks: engine.allocator().reserved_blocks(),
            reserved_quota: reserved.space,
            reserved_quota_inodes: reserved.inodes,
            ..OpenResources::default()
        };
        engine.inodes().for_each(|inode| {
            resources.ranges += u64::from(!inode.ranges.is_idle());
            resources.ends += u64::from(!inode.tail.lock().is_idle());
        });
        resources
    }
}
