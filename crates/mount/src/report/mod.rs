//! The report of a mount: its counters, its volume and its options.
//!
//! The server answers a read of one extended attribute of the root directory with the report as
//! JSON. Every process that may read that directory may read it. The attribute appears in no list
//! and cannot be set.

mod query;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use query::sync_and_report;
pub use query::{ReportError, report};

/// The name of the attribute of the root directory. Its value is a [`Report`] as JSON.
pub const ATTRIBUTE: &str = "user.parext4.stats";

/// The name of an attribute of every file and directory, for callers that administer the mount.
/// Before the server answers, it makes all changes durable. The value is the [`Report`] after that.
///
/// Unlike an fsync(2) of the root, reading the attribute acquires no lock of an inode. A program
/// could hold such a lock, for example by a listing into memory that another FUSE server never
/// fills. A bind mount of any part of the volume has the attribute, too.
pub(crate) const SYNC_ATTRIBUTE: &str = "user.parext4.sync";

/// Returns the destination of a server's log, and the last lines of the log.
pub type RecentLog = fn() -> (String, Vec<String>);

/// The report of a mount. Counters start at 0 when the volume is mounted. They are read one after
/// another, not at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The server and its options.
    pub mount: MountFacts,
    /// The mounted volume.
    pub volume: VolumeFacts,
    /// Requests of the kernel.
    pub requests: Requests,
    /// Operations on the data of files.
    pub operations: Operations,
    /// The volume's own page cache. Except with `cache=direct`, the kernel's page cache serves most
    /// reads instead.
    pub cache: CacheFacts,
    /// Inodes, directories and other metadata in memory.
    pub metadata: MetadataFacts,
    /// Counters that the device reports about itself, by name; most devices report none.
    #[serde(default)]
    pub device: BTreeMap<String, u64>,
    /// Transactions that became durable.
    pub journal_commits: u64,
    /// The data that the kernel has sent to be written back, and that the server has refused.
    #[serde(default)]
    pub refused: RefusedWriteBack,
    /// Descriptions of the requests that have been in flight for more than a minute, with what each
    /// waits for.
    pub slow_requests: Vec<String>,
    /// Descriptions of why operations waited for each other, in order of the total time. Empty
    /// without the option `explain`.
    pub waits: Vec<String>,
    /// The last lines of the server's log; none for a caller that does not administer the mount.
    #[serde(default)]
    pub log: Vec<String>,
}

/// Write-back that the server has refused: data that programs have stored to mappings, or that the
/// kernel has accepted before it sent it. The kernel marks the pages clean, so their data is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RefusedWriteBack {
    /// Number of requests.
    pub requests: u64,
    /// Size of the refused data, in bytes.
    pub bytes: u64,
    /// Files that have lost data and still exist.
    pub files: u64,
    /// The first of these files; none for a caller that does not administer the mount.
    pub first: Vec<LostData>,
}

/// A file that has lost data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LostData {
    /// Path of the file in the volume, or the number of its inode.
    pub file: String,
    /// Why the data was refused.
    pub error: String,
}

/// The server of a mount, and its options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MountFacts {
    /// The version of parext4.
    pub version: String,
    /// The process id of the server.
    pub pid: u32,
    /// Time since the volume was mounted, in milliseconds.
    pub mounted_for_ms: u64,
    /// The path of the image file or block device.
    pub image: String,
    /// The options in effect.
    pub options: String,
    /// The policy of admission to one file.
    pub policy: String,
    /// True if the policy locks whole files.
    pub locks_whole_file: bool,
    /// True if corruption found by a request stops the volume for changes.
    pub stops_on_corruption: bool,
    /// Why the volume has stopped, if it has.
    pub stopped: Option<String>,
    /// True if a program has stopped the volume (`EXT4_IOC_SHUTDOWN`), before any error had.
    #[serde(default)]
    pub shut_down: bool,
    /// The destination of the server's log.
    #[serde(default)]
    pub log: String,
}

/// The mounted volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VolumeFacts {
    /// The label.
    pub label: String,
    /// Size of a block, in bytes.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that are not reserved.
    pub available_blocks: u64,
    /// All inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
}

/// Counters of the kernel's requests: all so far, and the requests in flight by what executes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Requests {
    /// Requests that the server has read so far.
    pub received: u64,
    /// Requests that request threads execute themselves.
    pub in_threads: u64,
    /// Requests that worker threads execute, or that wait for a worker.
    pub in_workers: u64,
    /// Requests in the queues of the device.
    pub in_queues: u64,
    /// Requests that wait for the kernel to write back or drop pages.
    pub in_kernel: u64,
}

impl Requests {
    /// Returns the number of requests in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.in_threads + self.in_workers + self.in_queues + self.in_kernel
    }
}

/// Counters of the operations on the data of files, see [`parext4::Stats`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Operations {
    /// Admitted operations, by the reason for what they held.
    pub admissions: Vec<AdmissionsFor>,
    /// Operations for which the kernel's ext4 would have waited for all I/O on the file.
    pub drains: u64,
    /// Number of times that an operation waited for another.
    pub waits: u64,
    /// Total time of these waits, in nanoseconds.
    pub waited_ns: u64,
    /// The longest wait, in nanoseconds.
    pub longest_wait_ns: u64,
    /// Zeros written around data, in bytes.
    pub bytes_zeroed: u64,
    /// Writes that converted unwritten blocks to written ones.
    pub conversions: u64,
    /// Conversions that shared one change of the extent map with other conversions.
    pub conversions_merged: u64,
    /// Blocks that were converted.
    pub blocks_converted: u64,
    /// Number of times that blocks were zeroed because the extent map had no space for a
    /// conversion.
    pub zero_outs: u64,
}

/// Admitted operations with the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AdmissionsFor {
    /// The reason, as a clause: "it ...".
    pub reason: String,
    /// Operations that held their range shared.
    pub shared: u64,
    /// Operations that held their range exclusively.
    pub exclusive: u64,
}

/// The volume's own page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CacheFacts {
    /// Limit of the cache's memory, in bytes.
    pub budget: u64,
    /// Memory that the cache's pages use at present, in bytes.
    pub memory: u64,
    /// Size of the cached data, in bytes.
    pub bytes: u64,
    /// Size of the dirty data, in bytes.
    pub dirty_bytes: u64,
    /// Look-ups that found a page.
    pub hits: u64,
    /// Look-ups that found no page.
    pub misses: u64,
    /// Evicted pages.
    pub evicted: u64,
}

/// Inodes, directories and other metadata in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MetadataFacts {
    /// The budget, in bytes. Only metadata in use may exceed it.
    pub budget: u64,
    /// Estimated size of the metadata in memory, in bytes.
    pub bytes: u64,
    /// Inodes in memory.
    pub inodes: u64,
    /// Metadata blocks in memory.
    pub blocks: u64,
    /// Inodes that the kernel knows. Each uses about 64 bytes outside of the budget.
    pub known_inodes: u64,
}
