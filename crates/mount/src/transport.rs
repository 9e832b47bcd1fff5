//! Serves any FUSE file system with the capabilities, threads and read-ahead of a mounted volume.
//! The benchmark measures with it the cost of the protocol alone.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use fuser::{Config, Filesystem, KernelConfig, MountOption, Session};

use crate::connection::{extend_read_ahead, negotiate};
use crate::options::{Cache, MountOptions};
use crate::threads::RequestThreads;

/// The part of a mount below its file system. Clones share their state.
#[derive(Clone, Debug)]
pub struct Transport {
    cache: Cache,
    threads: usize,
    request_threads: Arc<RequestThreads>,
}

impl Transport {
    /// Returns a transport with the cache mode and the number of threads of `options`.
    pub fn new(options: &MountOptions) -> Self {
        let request_threads = Arc::new(RequestThreads::new(options.threads));
        Self { cache: options.cache, threads: options.threads, request_threads }
    }

    /// Requests capabilities and sets limits. The file system's `init` calls this.
    ///
    /// # Errors
    /// If the kernel lacks a required capability or refuses a limit.
    pub fn negotiate(&self, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(config, self.cache).map(drop)
    }

    /// Counts a request that the calling thread has read. Each operation of the file system calls
    /// this first, and drops the result after its reply.
    #[must_use]
    pub fn begin_request(&self) -> impl Drop + '_ {
        self.request_threads.begin_request()
    }

    /// Mounts `file_system` on `dir` with the name `name`, and serves it until it is unmounted.
    ///
    /// # Errors
    /// An error of FUSE.
    pub fn serve(&self, file_system: impl Filesystem, dir: &Path, name: &str) -> io::Result<()> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(name.to_owned())];
        config.n_threads = Some(self.threads);
        config.clone_fd = true;
        let dir = dir.canonicalize()?;
        let session = Session::new(file_system, &dir, &config)?;
        self.request_threads.set_device(session.as_fd().try_clone_to_owned()?);
        extend_read_ahead(&dir);
        session.run()
    }
}
