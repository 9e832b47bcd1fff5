//! The settings of the engine whose effect is measured.

use anyhow::{Result, ensure};
use parext4::{OpenOptions, Policy, SplitAt};

/// How the engine is told to work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    pub policy: Policy,
    pub split_at: SplitAt,
    /// Requests of at least this many blocks allocate all of them in one step.
    pub serialize_from: Option<u32>,
}

impl Engine {
    /// Options that open a volume so.
    pub fn open_options(self) -> Result<OpenOptions> {
        ensure!(self.serialize_from.is_none(), "the engine has no threshold for allocation in one step");
        Ok(OpenOptions { policy: self.policy, split_at: self.split_at, ..OpenOptions::default() })
    }
}
