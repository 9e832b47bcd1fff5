//! Options that copies in both directions have.

use std::num::NonZero;
use std::sync::atomic::AtomicBool;

use crate::observer::{Nobody, Observer};
use crate::volume_files::VolumeFiles;
use crate::volume_name::VolumeName;

/// How to copy, in either direction: threads, observer, cancellation, and the volume's name in
/// messages.
#[derive(Clone)]
pub struct CopyOptions<'a> {
    pub(crate) threads: Option<NonZero<usize>>,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) cancel: Option<&'a AtomicBool>,
    pub(crate) name: VolumeName,
    pub(crate) volume_files: VolumeFiles,
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        let (threads, cancel, name, volume_files) = Default::default();
        Self { threads, observer: &Nobody, cancel, name, volume_files }
    }
}

impl<'a> CopyOptions<'a> {
    /// Returns the defaults: a thread for each core, and the first error ends the copy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of threads; one for each core if `None`. Archives are read and written by
    /// one thread.
    #[must_use]
    pub fn threads(mut self, threads: impl Into<Option<NonZero<usize>>>) -> Self {
        self.threads = threads.into();
        self
    }

    /// Sets the observer, which follows the copy and decides after errors. Without one, the first
    /// error ends the copy.
    #[must_use]
    pub fn observer(mut self, observer: &'a dyn Observer) -> Self {
        self.observer = observer;
        self
    }

    /// Ends the copy soon after the flag becomes true. The copy then fails, and names the files
    /// that it has begun and not completed by [`Observer::failed`]. It does not change the flag.
    #[must_use]
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Sets what messages call the volume. They then call the file `/f` of a volume `disk.img`
    /// `disk.img:/f`, and otherwise `/f`.
    #[must_use]
    pub fn volume_name(mut self, name: impl Into<String>) -> Self {
        self.name = VolumeName::new(name.into());
        self
    }

    /// Sets the files that hold the volume. Copies of trees neither read nor replace them.
    #[must_use]
    pub fn volume_files(mut self, files: VolumeFiles) -> Self {
        self.volume_files = files;
        self
    }

    pub(crate) fn thread_count(&self) -> usize {
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok());
        threads.map_or(1, NonZero::get)
    }
}
