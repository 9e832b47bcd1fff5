//! What the server and the kernel agree on when a volume is mounted.

use std::io;

use fuser::{InitFlags, KernelConfig};

use crate::options::Cache;

/// Bytes of one write request at most.
const MAX_WRITE: u32 = 1 << 20;
/// Limit of the kernel's concurrent background requests: read-ahead, write-back and asynchronous direct I/O.
const MAX_BACKGROUND: u16 = 1024;
/// At this number of background requests the kernel stops reading ahead and starting write-back.
const CONGESTED: u16 = 96;
/// What the kernel allows a server without `CAP_SYS_ADMIN`.
const MAX_USER_BACKGROUND: &str = "/sys/module/fuse/parameters/max_user_bgreq";
/// What every kernel allows.
const LEAST_BACKGROUND: u16 = 12;

/// Without these there is no ext4 to be had. All are in Linux 5.12.
const NEEDED: InitFlags = InitFlags::FUSE_ASYNC_DIO
    .union(InitFlags::FUSE_ATOMIC_O_TRUNC)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_DONT_MASK)
    .union(InitFlags::FUSE_DO_READDIRPLUS)
    // A new size alone does not make the kernel drop its pages: the server says when pages are stale.
    .union(InitFlags::FUSE_EXPLICIT_INVAL_DATA)
    .union(InitFlags::FUSE_EXPORT_SUPPORT)
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_POSIX_ACL)
    .union(InitFlags::FUSE_READDIRPLUS_AUTO);

/// Background requests that the kernel sends at a time, at least.
pub(crate) fn background_requests() -> u16 {
    let limit = std::fs::read_to_string(MAX_USER_BACKGROUND).ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<u32>().ok());
    let limit = limit.map_or(LEAST_BACKGROUND, |limit| u16::try_from(limit).unwrap_or(u16::MAX));
    limit.min(MAX_BACKGROUND)
}

/// Allows mounts of the volume to map users and groups. From then on only requests that create an inode carry a user.
/// Since Linux 6.12.
pub(crate) fn allow_idmapped_mounts(config: &mut KernelConfig) -> io::Result<()> {
    require(config, InitFlags::FUSE_ALLOW_IDMAP)
}

fn require(config: &mut KernelConfig, flags: InitFlags) -> io::Result<()> {
    config.add_capabilities(flags).map_err(|missing| {
        io::Error::new(io::ErrorKind::Unsupported, format!("the kernel's FUSE lacks {missing:?}"))
    })
}

/// Agrees on all that the mount needs.
pub(crate) fn negotiate(config: &mut KernelConfig, cache: Cache) -> io::Result<()> {
    let cached = match cache {
        Cache::Writeback => InitFlags::FUSE_WRITEBACK_CACHE,
        Cache::Kernel | Cache::Direct => InitFlags::empty(),
    };
    require(config, NEEDED | cached)?;
    // Since Linux 6.6: shared mappings of files that go past the kernel's cache.
    let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
    let refused = |what, limit: u32| io::Error::other(format!("{what}: the kernel's limit is {limit}"));
    config.set_max_write(MAX_WRITE).map_err(|limit| refused("the size of writes", limit))?;
    config.set_max_background(MAX_BACKGROUND).map_err(|limit| refused("requests at a time", limit.into()))?;
    config.set_congestion_threshold(CONGESTED).map_err(|limit| refused("requests", limit.into()))?;
    Ok(())
}
