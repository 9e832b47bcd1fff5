//! What the server and the kernel agree on when a volume is mounted.

use std::io;

use fuser::{InitFlags, KernelConfig};

use crate::options::Cache;

/// Bytes of one write request at most.
const MAX_WRITE: u32 = 1 << 20;
/// Requests of the kernel's own, as reads ahead and write-back, at a time.
const MAX_BACKGROUND: u16 = 128;

/// Without these there is no ext4 to be had. All are in Linux 5.12.
const NEEDED: InitFlags = InitFlags::FUSE_ASYNC_DIO
    .union(InitFlags::FUSE_ATOMIC_O_TRUNC)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_DONT_MASK)
    .union(InitFlags::FUSE_DO_READDIRPLUS)
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_POSIX_ACL)
    .union(InitFlags::FUSE_READDIRPLUS_AUTO);

/// Agrees on all that the mount needs.
pub(crate) fn negotiate(config: &mut KernelConfig, cache: Cache) -> io::Result<()> {
    let cached = match cache {
        Cache::Kernel => InitFlags::FUSE_WRITEBACK_CACHE,
        Cache::Direct => InitFlags::empty(),
    };
    config.add_capabilities(NEEDED | cached).map_err(|missing| {
        io::Error::new(io::ErrorKind::Unsupported, format!("the kernel's FUSE lacks {missing:?}"))
    })?;
    // Since Linux 6.6: shared mappings of files that go past the kernel's cache.
    let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
    let refused = |what, limit: u32| io::Error::other(format!("{what}: the kernel's limit is {limit}"));
    config.set_max_write(MAX_WRITE).map_err(|limit| refused("the size of writes", limit))?;
    config.set_max_background(MAX_BACKGROUND).map_err(|limit| refused("requests at a time", limit.into()))?;
    Ok(())
}
