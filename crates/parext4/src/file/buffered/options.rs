//! How a file is opened for buffered I/O.

/// How a file is opened for buffered I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferedOptions {
    /// What one read sees of one write.
    pub atomicity: Atomicity,
    /// What is durable when a write returns.
    pub sync: SyncMode,
    /// Every write goes to the end of the file, whatever its offset (`O_APPEND`).
    pub append: bool,
}

/// What one read sees of one write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atomicity {
    /// All or nothing.
    #[default]
    Whole,
    /// All or nothing within each page of 4096 bytes. A read holds one page at a time, so it waits for less; the
    /// kernel's ext4 promises as much.
    Page,
}

/// What is durable when a write returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// Nothing yet.
    #[default]
    None,
    /// The data, and what is needed to read it back (`O_DSYNC`).
    Data,
    /// All attributes too (`O_SYNC`).
    All,
}
