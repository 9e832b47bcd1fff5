//! Servers of network block devices, and the bytes of their images.

pub mod certificates;
pub mod kinds;
pub mod nbd;
mod proxy;
pub mod rbd;

use std::path::PathBuf;

use anyhow::Result;

/// A server with one image. Drop ends its processes, by their own ids.
pub trait Server {
    /// Returns the URL of the image, with options such as `reconnect=2`, separated by `&`.
    fn url(&self, options: &str) -> String;

    /// Starts the server, which must not run.
    fn start(&mut self) -> Result<()>;

    /// Kills the server with SIGKILL, which loses the contents of its memory.
    fn kill(&mut self) -> Result<()>;

    /// Returns a file with the bytes of the image. No client may have the image open.
    fn bytes(&self) -> Result<PathBuf>;

    /// Makes the storage forget a client that was killed.
    fn release(&self) -> Result<()> {
        Ok(())
    }
}
