//! Sockets to a server: connecting, and transfers that end by a deadline.
//!
//! All sockets are non-blocking. [`Timed`] blocks on one for the negotiation; afterwards a
//! [`Connection`](crate::connection::Connection) polls it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::url::Server;

/// Time between two attempts to connect to a Unix socket whose server has no room for another connection.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Connects to a server before the deadline.
///
/// # Errors
/// The error of the last address that was tried.
pub(crate) fn connect(server: &Server, until: Instant) -> io::Result<OwnedFd> {
    match server {
        Server::Unix(path) => connect_unix(path, until),
        Server::Tcp { host, port } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, format!("host {host} has no address"));
            for address in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, remaining(until)?) {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        stream.set_nonblocking(true)?;
                        return Ok(stream.into());
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

fn connect_unix(path: &Path, until: Instant) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::AGAIN) => sleep(remaining(until)?.min(RETRY_AFTER)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the time up to the deadline, or `TimedOut`.
pub(crate) fn remaining(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time"));
    }
    Ok(left)
}

/// Blocks until one of the descriptors is ready or the time is over. May return early.
///
/// # Errors
/// Errors of poll(2), except an interruption by a signal.
pub(crate) fn poll_for(fds: &mut [PollFd<'_>], time: Option<Duration>) -> io::Result<()> {
    let time = time.map(|time| Timespec::try_from(time).expect("timeouts are limited to days"));
    match poll(fds, time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A non-blocking socket as a stream that blocks up to a deadline.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    pub(crate) socket: &'a OwnedFd,
    pub(crate) until: Instant,
}

impl Timed<'_> {
    /// Repeats a call until it does not have to wait.
    fn retry<T>(
        &self,
        wanted: PollFlags,
        mut call: impl FnMut(&OwnedFd) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        loop {
            // The deadline counts also for a peer that sends single bytes for ever.
            let left = remaining(self.until)?;
            match call(self.socket) {
                Ok(result) => return Ok(result),
                Err(Errno::AGAIN) => poll_for(&mut [PollFd::new(self.socket, wanted)], Some(left))?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.retry(PollFlags::IN, |socket| rustix::io::read(socket, &mut *out))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(PollFlags::OUT, |socket| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
