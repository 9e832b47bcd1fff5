//! The settings of the engine that benchmarks compare.

use parext4::{Policy, ResearchOptions, SplitAt, VolumeOptions};

/// Settings of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Which operations on one file exclude each other.
    pub policy: Policy,
    /// When unwritten extents are split.
    pub split_at: SplitAt,
    /// Requests of at least this many blocks allocate all their blocks in one step. `None`: no
    /// request does.
    pub serialize_from: Option<u32>,
    /// Bytes of the page cache.
    pub cache_size: u64,
    /// Prints counters and waits at the end of a run.
    pub explain: bool,
}

impl Engine {
    /// The defaults of the library, but with a page cache that holds the files of most jobs, as
    /// that of the kernel does.
    pub const DEFAULT: Self = Self {
        policy: Policy::Range,
        split_at: SplitAt::Completion,
        serialize_from: Some(0),
        cache_size: 2 << 30,
        explain: false,
    };

    /// Returns the options to open a volume with these settings.
    pub fn open_options(self) -> VolumeOptions {
        VolumeOptions::new().cache_bytes(self.cache_size).explain(self.explain).research(
            ResearchOptions::new()
                .policy(self.policy)
                .split_at(self.split_at)
                .serialize_allocation_from(self.serialize_from),
        )
    }
}
