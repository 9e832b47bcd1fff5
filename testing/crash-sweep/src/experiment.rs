//! Recordings with their oracles: which trees a crash in the middle may leave.

use testkit::cut::Cut;
use testkit::ops::Tree;

use crate::record::Recording;

/// A recording with an oracle.
pub trait Experiment {
    /// Returns the recording.
    fn recording(&self) -> &Recording;

    /// Returns the event at which the part begins that differs from other recordings over the same
    /// volume.
    fn first(&self) -> usize;

    /// Checks the tree that was found after a crash.
    ///
    /// # Errors
    /// What is missing, or should not be there.
    fn check(&self, cut: &Cut, tree: &Tree) -> Result<(), String>;

    /// Returns true if a crash may leave no volume.
    fn may_be_refused(&self, _cut: &Cut) -> bool {
        false
    }

    /// Returns what was recorded, for messages.
    fn describe(&self) -> String;
}
