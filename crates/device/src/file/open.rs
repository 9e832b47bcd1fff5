//! Opens, locks, creates and measures the file of a volume.
//!
//! Every error names the path. Contents change only under the lock.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, major, minor};
use rustix::io::Errno;

use crate::lock_handover::{LockHandover, LockReturn, retry_while_busy};
use crate::options::DeviceOptions;

/// Permissions of a new file. It will hold files of any permissions, and a user that may read it
/// may also lock it.
const NEW_FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// An open file and the range of the volume in it.
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) is_block_device: bool,
    /// Whether `open` locked the file.
    pub(super) is_locked: bool,
    /// The handover that gets the lock when the file is closed.
    pub(super) lock_return: Option<LockReturn>,
    /// Start of the volume in the file, bytes.
    pub(super) base: u64,
    /// Length of the volume in bytes, not yet rounded down to sectors.
    pub(super) size: u64,
}

/// Opens the file at `path` as `options` say.
pub(super) fn open(path: &Path, options: &DeviceOptions) -> io::Result<Opened> {
    if options.create.is_some() && options.read_only {
        return Err(refuse(path, io::ErrorKind::InvalidInput, "cannot create a file read-only"));
    }
    let is_block_device = is_block_device(path, options)?;
    let file = open_file(path, options, is_block_device)?;
    let kind = file.metadata()?.file_type();
    if kind.is_block_device() != is_block_device || !(kind.is_block_device() || kind.is_file()) {
        return Err(refuse(path, io::ErrorKind::InvalidInput, "changed its type while it was opened"));
    }
    if is_block_device && !options.read_only && is_write_protected(&file)? {
        return Err(refuse(path, io::ErrorKind::ReadOnlyFilesystem, "is write-protected"));
    }
    let lock_return = if options.lock { lock(&file, path, options)? } else { None };
    if let Some(size) = options.create {
        // Truncating to zero first drops the old contents.
        file.set_len(0)?;
        file.set_len(size)?;
        file.sync_all()?;
    }
    // The metadata of a block device has no length, so seek to its end.
    let file_size = (&file).seek(SeekFrom::End(0))?;
    let size = volume_size(path, options, file_size)?;
    Ok(Opened { file, is_block_device, is_locked: options.lock, lock_return, base: options.offset, size })
}

/// Returns whether the path is a block device. This must be known before opening, because the flags
/// depend on it and opening a FIFO would block.
fn is_block_device(path: &Path, options: &DeviceOptions) -> io::Result<bool> {
    let kind = match std::fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.create.is_some() => {
            return Ok(false);
        }
        Err(error) => return Err(name_path(path, error)),
    };
    if kind.is_block_device() && options.create.is_some() {
        return Err(refuse(
            path,
            io::ErrorKind::InvalidInput,
            "is a block device, which cannot be truncated",
        ));
    }
    if !kind.is_block_device() && !kind.is_file() {
        return Err(refuse(
            path,
            io::ErrorKind::InvalidInput,
            "is neither a regular file nor a block device",
        ));
    }
    Ok(kind.is_block_device())
}

/// Opens the file with the flags for its type and mode.
fn open_file(path: &Path, options: &DeviceOptions, is_block_device: bool) -> io::Result<File> {
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if options.create.is_some() {
        flags |= OFlags::CREATE;
    }
    if is_block_device && options.lock && !options.read_only {
        // open(2): on a block device O_EXCL without O_CREAT fails with EBUSY if the device is in
        // use, such as mounted.
        flags |= OFlags::EXCL;
    }
    let open = || rustix::fs::open(path, flags, NEW_FILE_MODE);
    match retry_while_busy(options.lock_wait, open) {
        Ok(fd) => Ok(File::from(fd)),
        Err(Errno::BUSY) => Err(in_use(path)),
        Err(error) => Err(name_path(path, error.into())),
    }
}

/// Returns true if a block device is write-protected: the kernel opens it for writing all the same,
/// and fails each write.
fn is_write_protected(device: &File) -> io::Result<bool> {
    let number = device.metadata()?.rdev();
    let protection = format!("/sys/dev/block/{}:{}/ro", major(number), minor(number));
    Ok(std::fs::read_to_string(protection).is_ok_and(|protected| protected.trim() == "1"))
}

/// Locks the file: shared for a reader, exclusive for a writer. A flock(2) lock belongs to the open
/// file description, so two opens by one process exclude each other too. Returns the handover that
/// gets the lock when the file is closed.
fn lock(file: &File, path: &Path, options: &DeviceOptions) -> io::Result<Option<LockReturn>> {
    let handover = options.handover.as_ref().filter(|_| !options.read_only);
    let attempt = || match handover {
        Some(handover) => handover.pass_to(file),
        None if options.read_only => flock(file, FlockOperation::NonBlockingLockShared),
        None => flock(file, FlockOperation::NonBlockingLockExclusive),
    };
    match retry_while_busy(options.lock_wait, attempt) {
        Ok(()) => Ok(handover.map(LockHandover::downgrade)),
        Err(Errno::WOULDBLOCK) => Err(in_use(path)),
        Err(error) => Err(name_path(path, error.into())),
    }
}

/// Returns the length of the volume in bytes, or `InvalidInput` if it ends past the end of the
/// file.
fn volume_size(path: &Path, options: &DeviceOptions, file_size: u64) -> io::Result<u64> {
    let available = file_size.checked_sub(options.offset);
    match (available, options.len) {
        (Some(available), None) => Ok(available),
        (Some(available), Some(len)) if len <= available => Ok(len),
        _ => {
            let (offset, len) = (options.offset, options.len.unwrap_or(0));
            let message =
                format!("volume at offset {offset} len {len} ends past the file's size {file_size}");
            Err(refuse(path, io::ErrorKind::InvalidInput, &message))
        }
    }
}

/// Returns the error of a file that another opener has locked.
fn in_use(path: &Path) -> io::Error {
    refuse(path, io::ErrorKind::ResourceBusy, "in use by another process (or opened twice by this one)")
}

/// Adds the path to the message of an error.
fn name_path(path: &Path, error: io::Error) -> io::Error {
    refuse(path, error.kind(), &error.to_string())
}

/// Returns an error whose message names the path.
pub(super) fn refuse(path: &Path, kind: io::ErrorKind, why: &str) -> io::Error {
    io::Error::new(kind, format!("{}: {why}", path.display()))
}
