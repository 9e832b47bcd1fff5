//! What a running copy tells its caller, and what the caller decides.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// Follows a copy: its progress, and the errors after which it can go on.
///
/// A copy calls the methods from several threads at once, and waits until they return.
pub trait Observer: Sync {
    /// The copy has found a file of `bytes` bytes, holes included, which it will copy.
    fn expect(&self, bytes: u64) {
        let _ = bytes;
    }

    /// The copy has copied `bytes` further bytes of data.
    fn copied(&self, bytes: u64) {
        let _ = bytes;
    }

    /// A file is complete. `files` is the number of complete files, in no certain order of calls.
    fn file_done(&self, files: u64) {
        let _ = files;
    }

    /// Something in the source is not as expected, or has no place in the copy. Nothing is left out
    /// by mistake.
    fn warn(&self, text: &str) {
        let _ = text;
    }

    /// Decides after the error of one file, or of one of its attributes.
    ///
    /// # Errors
    /// An error ends the copy with it. `Ok` has the copy go on without the file or the attribute.
    fn failed(&self, error: Error) -> Result<()> {
        Err(error)
    }

    /// The files at `paths` of the volume are durable. Called only by a copy that
    /// [`report_durable`](crate::Put::report_durable) asked for it.
    ///
    /// # Errors
    /// An error is one of the file that was completed last.
    fn durable(&self, paths: &[PathBuf]) -> Result<()> {
        let _ = paths;
        Ok(())
    }
}

/// An observer that sees nothing, and ends the copy at the first error.
pub(crate) struct Nobody;

impl Observer for Nobody {}

/// What a copy has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Names that were made, without directories.
    pub files: u64,
    /// Bytes of data that were copied, without holes.
    pub bytes: u64,
    /// Calls of [`Observer::warn`].
    pub warnings: u64,
    /// Calls of [`Observer::failed`].
    pub errors: u64,
}
