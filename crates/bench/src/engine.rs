//! The settings of the engine whose effect is measured.

use parext4::{OpenOptions, Policy, SplitAt};

/// How the engine is told to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Which operations on one file exclude each other.
    pub policy: Policy,
    /// When unwritten extents are split.
    pub split_at: SplitAt,
    /// Requests of at least this many blocks allocate all of them in one step; `None`: no request does.
    pub serialize_from: Option<u32>,
    /// Bytes of the page cache.
    pub cache_size: u64,
    /// Whether waits are explained in the end.
    pub explain: bool,
}

impl Engine {
    /// As the library works if it is told nothing, but with a cache that holds the files of most jobs, as the kernel's
    /// does.
    pub const DEFAULT: Self = Self {
        policy: Policy::Range,
        split_at: SplitAt::Completion,
        serialize_from: Some(0),
        cache_size: 2 << 30,
        explain: false,
    };

    /// Options that open a volume so.
    pub fn open_options(self) -> OpenOptions {
        OpenOptions {
            policy: self.policy,
            split_at: self.split_at,
            serialize_allocation_from: self.serialize_from,
            cache_size: self.cache_size,
            explain: self.explain,
            ..OpenOptions::default()
        }
    }
}
