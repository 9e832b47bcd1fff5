//! nbdkit, as campaigns and benchmarks start it.

use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::command::{Cmd, cmd};

/// Option: one thread serves each connection, one request after the other. nbdkit 1.32 with more
/// threads aborts ("Assertion `sock >= 0' failed") when a client goes while several of its requests
/// are under way. So clients that are killed or cut off need this option.
pub const ONE_THREAD: &str = "--threads=1";

/// Returns the command of a server on a Unix socket. It ends with this process.
pub fn nbdkit(socket: &Path) -> Cmd {
    cmd("nbdkit").args("--foreground --exit-with-parent --unix").arg(socket)
}

/// Returns whether a server accepts connections on a Unix socket.
pub fn is_listening(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}
