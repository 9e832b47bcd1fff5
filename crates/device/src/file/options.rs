//! How a [`FileDevice`](super::FileDevice) is opened.

/// Whether the page cache of the operating system is bypassed (`O_DIRECT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where the file allows it for all of the volume, with sectors of 4096 bytes or less.
    #[default]
    Auto,
    /// Or fail to open.
    Always,
    /// Go through the page cache.
    Never,
}

/// How a [`FileDevice`](super::FileDevice) is opened.
///
/// ```
/// use parext4_device::{Direct, FileOptions};
/// let options = FileOptions::new().offset(1 << 20).direct(Direct::Never);
/// assert!(options.lock && !options.read_only);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Refuse writes, and lock against writers only.
    pub read_only: bool,
    /// Byte offset of the volume in the file (a partition's start, say).
    pub offset: u64,
    /// Length of the volume in bytes; `None`: up to the end of the file.
    pub len: Option<u64>,
    /// Whether to use `O_DIRECT`.
    pub direct: Direct,
    /// Fail to open what another opener uses: writers exclude everybody, readers exclude writers. On by default.
    pub lock: bool,
    /// Create the file, or truncate it, as a hole of this many bytes. Refused for block devices.
    pub create: Option<u64>,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { read_only: false, offset: 0, len: None, direct: Direct::Auto, lock: true, create: None }
    }
}

impl FileOptions {
    /// The defaults: the whole file, for reading and writing, locked, direct where possible.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`read_only`](field@Self::read_only).
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets [`offset`](field@Self::offset), in bytes.
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// Sets [`len`](field@Self::len), in bytes.
    pub fn len(mut self, len: u64) -> Self {
        self.len = Some(len);
        self
    }

    /// Sets [`direct`](field@Self::direct).
    pub fn direct(mut self, direct: Direct) -> Self {
        self.direct = direct;
        self
    }

    /// Sets [`lock`](field@Self::lock).
    pub fn lock(mut self, lock: bool) -> Self {
        self.lock = lock;
        self
    }

    /// Sets [`create`](field@Self::create), the file's size in bytes.
    pub fn create(mut self, size: u64) -> Self {
        self.create = Some(size);
        self
    }
}
