//! The options to open a file with: access, creation, and the guarantees of its reads and writes.

use crate::error::{Error, Result};

/// How a file is opened, by [`Volume::open_file`](crate::Volume::open_file) or
/// [`Volume::open_direct`](crate::Volume::open_direct). Works as [`std::fs::OpenOptions`] does.
///
/// ```
/// use parext4::{MkfsOptions, MemDevice, OpenOptions, Volume, VolumeOptions, mkfs};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), parext4::Error> {
/// # let device = Arc::new(MemDevice::new(16 << 20));
/// # mkfs(&*device, &MkfsOptions::new())?;
/// # let volume = Volume::open_device(device, &VolumeOptions::new())?;
/// let options = OpenOptions::new().read(true).append(true).create(true).mode(0o600);
/// let log = volume.open_file("/log", &options)?;
/// log.append(b"started\n")?;
/// assert_eq!(volume.read("/log")?, b"started\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The file can be read.
    pub read: bool,
    /// The file can be changed.
    pub write: bool,
    /// The file can be changed, and every write goes to its end, whatever its offset (`O_APPEND`).
    /// For buffered files only: [`DirectFile::append`](crate::DirectFile::append) needs no option.
    pub append: bool,
    /// The file is truncated to zero bytes when it is opened.
    pub truncate: bool,
    /// The file is created if it does not exist.
    pub create: bool,
    /// The file is created, and must not exist. Then `create` and `truncate` have no effect.
    pub create_new: bool,
    /// The permission bits of a file that is created, `0o7777` at most. There is no umask. `0o644`
    /// by default.
    pub mode: u16,
    /// The guarantee for a buffered read that overlaps a buffered write.
    pub atomicity: Atomicity,
    /// The data and attributes that are durable when a buffered write returns.
    pub sync: SyncMode,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Returns options that neither read nor write.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o644,
            atomicity: Atomicity::Whole,
            sync: SyncMode::None,
        }
    }

    /// Returns options to read a file that exists: `new().read(true)`.
    #[must_use]
    pub const fn read_only() -> Self {
        Self::new().read(true)
    }

    /// Returns options to read and write a file that exists: `new().read(true).write(true)`.
    #[must_use]
    pub const fn read_write() -> Self {
        Self::new().read(true).write(true)
    }

    /// Sets [`read`](field@Self::read).
    #[must_use]
    pub const fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// Sets [`write`](field@Self::write).
    #[must_use]
    pub const fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Sets [`append`](field@Self::append).
    #[must_use]
    pub const fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Sets [`truncate`](field@Self::truncate).
    #[must_use]
    pub const fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Sets [`create`](field@Self::create).
    #[must_use]
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets [`create_new`](field@Self::create_new).
    #[must_use]
    pub const fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Sets [`mode`](field@Self::mode).
    #[must_use]
    pub const fn mode(mut self, permissions: u16) -> Self {
        self.mode = permissions;
        self
    }

    /// Sets [`atomicity`](field@Self::atomicity).
    #[must_use]
    pub const fn atomicity(mut self, atomicity: Atomicity) -> Self {
        self.atomicity = atomicity;
        self
    }

    /// Sets [`sync`](field@Self::sync).
    #[must_use]
    pub const fn sync(mut self, sync: SyncMode) -> Self {
        self.sync = sync;
        self
    }

    /// Returns what a handle with these options may do.
    pub(crate) fn access(&self) -> Access {
        Access { read: self.read, write: self.write || self.append }
    }

    /// Checks the combination of options, as the standard library does.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options neither read nor write, or create or truncate a file that
    /// they do not write.
    pub(crate) fn check(&self) -> Result<()> {
        let access = self.access();
        if !access.read && !access.write {
            return Err(Error::invalid("options that neither read nor write a file"));
        }
        let changes = self.truncate || self.create || self.create_new;
        if changes && !access.write {
            return Err(Error::invalid("options that create or truncate a file, but do not write it"));
        }
        if self.truncate && self.append && !self.create_new {
            return Err(Error::invalid("options that truncate a file and append to it"));
        }
        Ok(())
    }

    /// Checks the options of a file for direct I/O.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check); [`Error::Invalid`] for an option of buffered files.
    pub(crate) fn check_direct(&self) -> Result<()> {
        self.check()?;
        let buffered = self.append || self.atomicity != Atomicity::Whole || self.sync != SyncMode::None;
        if buffered {
            return Err(Error::invalid("the options append, atomicity and sync are of buffered files only"));
        }
        Ok(())
    }
}

/// The access that a handle has to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub read: bool,
    pub write: bool,
}

impl Access {
    /// Both.
    pub(crate) const READ_WRITE: Self = Self { read: true, write: true };

    /// # Errors
    /// [`Error::NotOpenFor`] unless the handle may read.
    pub(crate) fn check_read(self) -> Result<()> {
        if self.read { Ok(()) } else { Err(Error::NotOpenFor("reading")) }
    }

    /// # Errors
    /// [`Error::NotOpenFor`] unless the handle may change the file.
    pub(crate) fn check_write(self) -> Result<()> {
        if self.write { Ok(()) } else { Err(Error::NotOpenFor("writing")) }
    }
}

/// The guarantee for a buffered read that overlaps a buffered write.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// use parext4::{Atomicity, OpenOptions};
///
/// // As the kernel's ext4: a long read may see a part of a concurrent write, but whole pages of it.
/// let options = OpenOptions::read_write().create(true).atomicity(Atomicity::Page);
/// volume.open_file("/file", &options)?.append(b"text")?;
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Atomicity {
    /// All or nothing.
    #[default]
    Whole,
    /// All or nothing within each page: 4096 bytes, or one block if blocks are larger. A read holds
    /// one page at a time, so it waits for less; the kernel's ext4 promises as much.
    Page,
}

/// The data and attributes that are durable when a buffered write returns.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// use parext4::{OpenOptions, SyncMode};
///
/// let log = volume.open_file("/log", &OpenOptions::new().append(true).create(true).sync(SyncMode::Data))?;
/// log.append(b"durable when this call returns")?;
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncMode {
    /// Nothing yet.
    #[default]
    None,
    /// The data, and what is needed to read it back (`O_DSYNC`).
    Data,
    /// All attributes too (`O_SYNC`).
    All,
}
