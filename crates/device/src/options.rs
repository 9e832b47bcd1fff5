//! How a device is opened: mode, place of the volume, page cache, lock, creation.

use std::time::Duration;

use crate::lock_handover::LockHandover;

/// Whether I/O bypasses the operating system's page cache (`O_DIRECT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Direct {
    /// Bypasses the page cache if the file supports that for all of the volume, with sectors of at
    /// most 4096 bytes.
    #[default]
    Auto,
    /// Bypasses the page cache, or fails to open.
    Always,
    /// Uses the page cache.
    Never,
}

/// Options for opening a device, such as by [`FileDevice::open`](crate::FileDevice::open).
///
/// ```
/// use parext4_device::{DeviceOptions, Direct};
/// let options = DeviceOptions::new().offset(1 << 20).direct(Direct::Never);
/// assert!(options.lock && !options.read_only);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// Refuses writes and discards, and locks out only writers.
    pub read_only: bool,
    /// Offset of the volume in the file in bytes, such as the start of a partition.
    pub offset: u64,
    /// Length of the volume in bytes. `None` means up to the end of the file.
    pub len: Option<u64>,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Locks the file: a writer excludes all other openers that lock, a reader excludes writers. On
    /// by default.
    pub lock: bool,
    /// Longest wait for a file that another opener has locked, and for a block device that is in
    /// use. Zero: opening fails at once. Half a second by default, because some uses are short: the
    /// kernel releases the files of an io_uring some time after the process has ended, and udev
    /// locks a device while it probes one that has changed.
    pub lock_wait: Duration,
    /// The handover whose lock a writer takes over, and to which the lock passes back if the file
    /// is closed while the handover exists. Devices other than files ignore it.
    pub handover: Option<LockHandover>,
    /// Creates the file, or truncates it, as a hole of this many bytes. Block devices refuse it. An
    /// image on a network is created if it does not exist; an existing one is opened unchanged if
    /// it has at least this many bytes.
    pub create: Option<u64>,
    /// Breaks the lock of another machine on a device of a network, and fences that machine: the
    /// device refuses its writes before this open returns. Devices that have no such lock ignore
    /// it.
    pub takeover: bool,
    /// With `takeover`, breaks only the lock of the owner of this name, as
    /// [`Device::lock_owner`](crate::Device::lock_owner) returns it. If another owner holds the
    /// lock by then, opening fails with [`ResourceBusy`](std::io::ErrorKind::ResourceBusy). So two
    /// openers that find the same owner dead cannot fence each other. `None` breaks the lock of any
    /// owner.
    pub takeover_from: Option<String>,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            offset: 0,
            len: None,
            direct: Direct::Auto,
            lock: true,
            lock_wait: Duration::from_millis(500),
            handover: None,
            create: None,
            takeover: false,
            takeover_from: None,
        }
    }
}

impl DeviceOptions {
    /// Returns the defaults: the whole file, for reading and writing, locked, direct where
    /// possible.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`read_only`](field@Self::read_only).
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets [`offset`](field@Self::offset), in bytes.
    #[must_use]
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// Sets [`len`](field@Self::len), in bytes.
    #[must_use]
    pub fn len(mut self, len: impl Into<Option<u64>>) -> Self {
        self.len = len.into();
        self
    }

    /// Sets [`direct`](field@Self::direct).
    #[must_use]
    pub fn direct(mut self, direct: Direct) -> Self {
        self.direct = direct;
        self
    }

    /// Sets [`lock`](field@Self::lock).
    #[must_use]
    pub fn lock(mut self, lock: bool) -> Self {
        self.lock = lock;
        self
    }

    /// Sets [`lock_wait`](field@Self::lock_wait).
    #[must_use]
    pub fn lock_wait(mut self, time: Duration) -> Self {
        self.lock_wait = time;
        self
    }

    /// Sets [`handover`](field@Self::handover).
    #[must_use]
    pub fn handover(mut self, handover: impl Into<Option<LockHandover>>) -> Self {
        self.handover = handover.into();
        self
    }

    /// Sets [`create`](field@Self::create), the file's size in bytes.
    #[must_use]
    pub fn create(mut self, size: impl Into<Option<u64>>) -> Self {
        self.create = size.into();
        self
    }

    /// Sets [`takeover`](field@Self::takeover).
    #[must_use]
    pub fn takeover(mut self, takeover: bool) -> Self {
        self.takeover = takeover;
        self
    }

    /// Sets [`takeover_from`](field@Self::takeover_from), the name of an owner.
    #[must_use]
    pub fn takeover_from(mut self, owner: impl Into<Option<String>>) -> Self {
        self.takeover_from = owner.into();
        self
    }
}
