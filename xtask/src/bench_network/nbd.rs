//! NBD servers: nbdkit with memory, with and without a delay, and qemu-nbd with a file.

use std::path::PathBuf;

use anyhow::Result;

use super::{Server, fio_command};
use crate::command::{Cmd, cmd};
use crate::nbdkit::{is_listening, nbdkit};
use crate::process::Process;
use crate::testbed::TestBed;

/// A server on a Unix socket. Dropping it ends the server.
struct Nbd {
    name: &'static str,
    limits: &'static str,
    socket: PathBuf,
    _process: Process,
}

/// Starts nbdkit with an image in memory.
pub fn memory(bed: &TestBed, size: u64) -> Result<Box<dyn Server>> {
    let socket = bed.path("nbdkit.sock");
    let nbdkit = nbdkit(&socket).args("--threads=16 memory").arg(format!("{size}"));
    let limits = "memory with one lock; the server and both clients share this machine's processors";
    started(bed, nbdkit, "nbdkit, memory", limits, socket)
}

/// Starts nbdkit with an image in memory, each request delayed by 2 milliseconds, as over a network
/// to disks.
pub fn delayed(bed: &TestBed, size: u64) -> Result<Box<dyn Server>> {
    let socket = bed.path("delay.sock");
    let nbdkit = nbdkit(&socket).args("--threads=64 --filter=delay memory").arg(format!("{size}"));
    let nbdkit = nbdkit.args("rdelay=2ms wdelay=2ms");
    let limits = "memory, each request delayed by 2 ms; at most 64 requests of each connection at a time";
    started(bed, nbdkit, "nbdkit, memory, delay", limits, socket)
}

/// Starts qemu-nbd with a file that bypasses the page cache.
pub fn qemu(bed: &TestBed, size: u64) -> Result<Box<dyn Server>> {
    let (socket, image) = (bed.path("qemu.sock"), bed.path("image.raw"));
    cmd("truncate").arg(format!("--size={size}")).arg(&image).run()?;
    let qemu = cmd("qemu-nbd")
        .args("--persistent --format=raw --cache=none --aio=native --shared=16 --socket")
        .arg(&socket)
        .arg(&image);
    let limits = "a file with direct I/O; one thread of the server serves all connections";
    started(bed, qemu, "qemu-nbd, file", limits, socket)
}

/// Starts a server and waits until it listens.
fn started(
    bed: &TestBed,
    command: Cmd,
    name: &'static str,
    limits: &'static str,
    socket: PathBuf,
) -> Result<Box<dyn Server>> {
    let mut process = Process::start(name, command, bed.path("server.log"))?;
    process.wait_until(|| is_listening(&socket))?;
    Ok(Box::new(Nbd { name, limits, socket, _process: process }))
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
