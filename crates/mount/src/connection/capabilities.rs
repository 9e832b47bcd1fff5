//! Negotiates the capabilities of the connection when a volume is mounted.

use std::io;

use fuser::{InitFlags, KernelConfig};

use crate::options::Cache;

/// Limit of one write request, in bytes.
const MAX_WRITE: u32 = 1 << 20;
/// Limit of the kernel's concurrent background requests: read-ahead, write-back and asynchronous
/// direct I/O.
const MAX_BACKGROUND: u16 = 1024;
/// At this number of background requests the kernel stops reading ahead and starting write-back.
const CONGESTION_THRESHOLD: u16 = 96;
/// The file with the kernel's limit of background requests for a server without `CAP_SYS_ADMIN`.
const MAX_USER_BACKGROUND: &str = "/sys/module/fuse/parameters/max_user_bgreq";
/// The limit of background requests that every kernel allows.
const MIN_BACKGROUND: u16 = 12;

/// Capabilities without which a mount cannot behave as ext4. Linux 5.12 has all of them.
///
/// `FUSE_ATOMIC_O_TRUNC` is not among them: the server would truncate within the request that opens
/// the file, which the kernel does not order with writes or appends of other handles.
const REQUIRED: InitFlags = InitFlags::FUSE_ASYNC_DIO
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_DONT_MASK)
    .union(InitFlags::FUSE_DO_READDIRPLUS)
    // The kernel does not drop pages because of a new size alone: the server notifies it of stale
    // pages.
    .union(InitFlags::FUSE_EXPLICIT_INVAL_DATA)
    .union(InitFlags::FUSE_EXPORT_SUPPORT)
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_POSIX_ACL)
    .union(InitFlags::FUSE_READDIRPLUS_AUTO);

/// Returns the number of background requests that the kernel sends at a time, at least.
pub(crate) fn background_requests() -> u16 {
    let limit = std::fs::read_to_string(MAX_USER_BACKGROUND).ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<u32>().ok());
    let limit = limit.map_or(MIN_BACKGROUND, |limit| u16::try_from(limit).unwrap_or(u16::MAX));
    limit.min(MAX_BACKGROUND)
}

/// Allows idmapped mounts of the volume. From then on only requests that create an inode carry a
/// user.
///
/// # Errors
/// `Unsupported` before Linux 6.12.
pub(crate) fn allow_idmapped_mounts(config: &mut KernelConfig) -> io::Result<()> {
    require(config, InitFlags::FUSE_ALLOW_IDMAP)
}

fn require(config: &mut KernelConfig, flags: InitFlags) -> io::Result<()> {
    config.add_capabilities(flags).map_err(|missing| {
        io::Error::new(io::ErrorKind::Unsupported, format!("the kernel's FUSE does not support {missing:?}"))
    })
}

/// Requests the capabilities and sets the limits of a mount. Returns true if files that bypass the
/// kernel's page cache (`FOPEN_DIRECT_IO`) are coherent with mappings: since Linux 6.6 they can be
/// mapped, and the kernel writes back and drops the pages of a range before it passes on a request.
///
/// # Errors
/// If the kernel lacks a required capability or refuses a limit.
pub(crate) fn negotiate(config: &mut KernelConfig, cache: Cache) -> io::Result<bool> {
    let cached = match cache {
        Cache::Writeback => InitFlags::FUSE_WRITEBACK_CACHE,
        Cache::Kernel | Cache::Direct => InitFlags::empty(),
    };
    require(config, REQUIRED | cached)?;
    let is_coherent = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
    let refused =
        |what, limit: u32| io::Error::other(format!("the kernel refuses {what}: its limit is {limit}"));
    config.set_max_write(MAX_WRITE).map_err(|limit| refused("the size of write requests", limit))?;
    config
        .set_max_background(MAX_BACKGROUND)
        .map_err(|limit| refused("the number of background requests", limit.into()))?;
    config
        .set_congestion_threshold(CONGESTION_THRESHOLD)
        .map_err(|limit| refused("the congestion threshold", limit.into()))?;
    Ok(is_coherent)
}
