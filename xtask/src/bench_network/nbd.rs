//! NBD servers: nbdkit with memory, qemu-nbd with a file.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Server, fio_command};
use crate::command::{Cmd, cmd};
use crate::testbed::TestBed;

/// A server on a Unix socket. Dropping it ends the server.
struct Nbd {
    name: &'static str,
    limits: &'static str,
    socket: PathBuf,
    process: Child,
}

/// Starts nbdkit with an image in memory.
pub fn memory(bed: &TestBed, size: u64) -> Result<Box<dyn Server>> {
    let socket = bed.path("nbdkit.sock");
    let process = cmd("nbdkit")
        .args("--foreground --exit-with-parent --threads=16 --unix")
        .arg(&socket)
        .arg("memory")
        .arg(format!("{size}"))
        .start()?;
    let limits = "memory with one lock; the server and both clients share this machine's processors";
    started(Nbd { name: "nbdkit, memory", limits, socket, process })
}

/// Starts qemu-nbd with a file that bypasses the page cache.
pub fn qemu(bed: &TestBed, size: u64) -> Result<Box<dyn Server>> {
    let (socket, image) = (bed.path("qemu.sock"), bed.path("image.raw"));
    cmd("truncate").arg(format!("--size={size}")).arg(&image).run()?;
    let process = cmd("qemu-nbd")
        .args("--persistent --format=raw --cache=none --aio=native --shared=16 --socket")
        .arg(&socket)
        .arg(&image)
        .start()?;
    let limits = "a file with direct I/O; one thread of the server serves all connections";
    started(Nbd { name: "qemu-nbd, file", limits, socket, process })
}

/// Waits until the server listens.
fn started(mut server: Nbd) -> Result<Box<dyn Server>> {
    let until = Instant::now() + Duration::from_secs(10);
    while !server.socket.exists() {
        ensure!(server.process.try_wait()?.is_none(), "{} has ended", server.name);
        ensure!(Instant::now() < until, "{} does not listen", server.name);
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Box::new(server))
}

impl Server for Nbd {
    fn name(&self) -> &str {
        self.name
    }

    fn url(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    fn fio(&self) -> Cmd {
        fio_command().arg("--ioengine=nbd").arg(format!("--uri={}", self.url()))
    }

    fn limits(&self) -> &str {
        self.limits
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
