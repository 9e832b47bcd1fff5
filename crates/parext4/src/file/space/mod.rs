//! Changes of a file's blocks and size that carry no data: allocation, holes, ranges of zeros,
//! collapse and insertion of ranges, and the size itself.

mod allocate;
mod punch;
mod resize;
mod shift;
mod zero;

/// What an allocation past the end of a file does to the size of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSize {
    /// The file grows to the end of the allocated range.
    Extend,
    /// The size stays, and the blocks past it wait for later writes (`FALLOC_FL_KEEP_SIZE`).
    Keep,
}

impl FileSize {
    /// Returns [`Keep`](Self::Keep) if `keeps`, as for a flag of fallocate(2), and otherwise
    /// [`Extend`](Self::Extend).
    ///
    /// ```
    /// use parext4::FileSize;
    ///
    /// assert_eq!([false, true].map(FileSize::kept_if), [FileSize::Extend, FileSize::Keep]);
    /// ```
    #[must_use]
    pub const fn kept_if(keeps: bool) -> Self {
        if keeps { Self::Keep } else { Self::Extend }
    }
}
