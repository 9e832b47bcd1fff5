//! What a server tells of itself: its counters and what it has mounted. Whoever may read the root directory reads it
//! there as an extended attribute, which is in no list and cannot be set.

mod ask;
mod make;

use serde::{Deserialize, Serialize};

pub use ask::{ReportError, report};

/// The attribute of the root directory; its value is a [`Report`] in JSON.
pub const ATTRIBUTE: &str = "user.parext4.stats";

/// What a server tells of itself. Counters count from the moment of mounting; each is as of some moment of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Who serves what, and how.
    pub mount: MountFacts,
    /// What was mounted.
    pub volume: VolumeFacts,
    /// Requests of the kernel.
    pub requests: Requests,
    /// Operations on the data of files.
    pub operations: Operations,
    /// The volume's own page cache. Unless with `cache=direct`, most of what is read is in the kernel's instead.
    pub cache: CacheFacts,
    /// Inodes, directories and other metadata in memory.
    pub metadata: MetadataFacts,
    /// Transactions that became durable.
    pub journal_commits: u64,
    /// Requests that have been under way for more than a minute, and what each waits for, in words.
    pub long_requests: Vec<String>,
    /// Why operations waited for each other, in words, first what took the most time; only with the option `explain`.
    pub waits: Vec<String>,
}

/// Who serves what, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFacts {
    /// The version of parext4.
    pub version: String,
    /// The server's process.
    pub pid: u32,
    /// For how long it is mounted, in milliseconds.
    pub mounted_for_ms: u64,
    /// The image file or block device.
    pub image: String,
    /// The options in effect.
    pub options: String,
    /// What operations on one file hold.
    pub policy: String,
    /// Whether that is the whole file.
    pub locks_whole_file: bool,
    /// Whether nothing is changed any more once the volume turns out to be corrupt.
    pub stops_on_corruption: bool,
    /// Why nothing is changed any more, if so.
    pub stopped: Option<String>,
}

/// What was mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// The label.
    pub label: String,
    /// Bytes in a block, the unit of the following.
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

/// Requests of the kernel. Those under way are somewhere below; together they are the depth of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// All that were taken so far.
    pub taken: u64,
    /// Carried out by the threads that took them.
    pub in_threads: u64,
    /// Handed to workers.
    pub in_workers: u64,
    /// Handed to the queues of the device.
    pub in_lanes: u64,
    /// Waiting for the kernel to write back or drop pages.
    pub in_kernel: u64,
}

impl Requests {
    /// Those under way.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.in_threads + self.in_workers + self.in_lanes + self.in_kernel
    }
}

/// Operations on the data of files, see [`parext4::Stats`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// Those that were let through, by what they do.
    pub admissions: Vec<AdmissionsFor>,
    /// Operations that would have waited, in the kernel's ext4, for all I/O on the file.
    pub drains: u64,
    /// How often one waited for others.
    pub waits: u64,
    /// The time that they waited, all together, in nanoseconds.
    pub waited_ns: u64,
    /// The longest wait, in nanoseconds.
    pub longest_wait_ns: u64,
    /// Zeros written around data, in bytes.
    pub bytes_zeroed: u64,
    /// Writes that made unwritten blocks written.
    pub conversions: u64,
    /// How many of those shared one change of the map with others.
    pub conversions_merged: u64,
    /// Blocks that became written.
    pub blocks_converted: u64,
    /// How often blocks were zeroed for want of space in the map.
    pub zero_outs: u64,
}

/// Operations that do one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionsFor {
    /// What they do, in words: "it ...".
    pub what: String,
    /// How many others could share it with.
    pub shared: u64,
    /// How many had it alone.
    pub alone: u64,
}

/// The volume's own page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFacts {
    /// The most memory that it takes, in bytes.
    pub budget: u64,
    /// What its pages take of that at present, in bytes.
    pub memory: u64,
    /// What it holds, in bytes.
    pub bytes: u64,
    /// What of that is not on the device yet, in bytes.
    pub dirty_bytes: u64,
    /// Look-ups that found a page.
    pub hits: u64,
    /// Pages that had to be brought in or made.
    pub misses: u64,
    /// Pages that made room for others.
    pub evicted: u64,
}

/// Inodes, directories and other metadata in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataFacts {
    /// The budget, in bytes. Only what is in use goes beyond it.
    pub budget: u64,
    /// What is in memory, in bytes, by estimate.
    pub bytes: u64,
    /// Inodes in memory.
    pub inodes: u64,
    /// Metadata blocks in memory.
    pub blocks: u64,
    /// Inodes that the kernel knows, each of which takes about 64 bytes beside the budget.
    pub known_inodes: u64,
}
