//! Servers of network block devices, and the bytes of their images.

mod certificates;
pub mod kinds;
pub mod nbd;
mod proxy;
pub mod rbd;

use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::interrupt;

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

/// A process that is killed when dropped.
pub struct Process {
    name: &'static str,
    child: Child,
}

impl Process {
    /// Guards a process that was started.
    pub fn new(name: &'static str, child: Child) -> Process {
        Process { name, child }
    }

    /// Waits until `is_ready` returns true, while the process runs.
    pub fn wait_until(&mut self, is_ready: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_ready() {
            interrupt::check()?;
            let status = self.child.try_wait()?;
            ensure!(status.is_none(), "{} has ended, {status:?}", self.name);
            ensure!(Instant::now() < deadline, "{} is not ready after 20 s", self.name);
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
