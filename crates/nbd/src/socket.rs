//! Sockets to a server: connecting, and transfers that end by a deadline.
//!
//! All sockets are non-blocking. [`Timed`] blocks on one for the negotiation; afterwards a
//! [`Connection`](crate::connection::Connection) polls it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use crate::url::Server;

/// Time between two attempts to connect to a Unix socket whose server has no room for another
/// connection.
const RETRY_AFTER: Duration = Duration::from_millis(10);
/// Shortest time for an attempt to connect.
const SHORTEST: Duration = Duration::from_millis(1);

/// Connects to a server before the deadline.
///
/// # Errors
/// The error of the last address that was tried.
pub(crate) fn connect(server: &Server, until: Instant) -> io::Result<OwnedFd> {
    match server {
        Server::Unix(path) => connect_unix(path, until),
        Server::Tcp { host, port } => {
            let addresses = resolve(host, *port, until)?;
            if addresses.is_empty() {
                let why = format!("host {host} has no address");
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            }
            connect_tcp(&addresses, until)
        }
    }
}

/// Returns the addresses of a host before the deadline.
fn resolve(host: &str, port: u16, until: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    // The system's call has limits of its own, which may be longer. So a thread makes the call, and
    // ends with it.
    let found = Arc::new((Mutex::new(None), Condvar::new()));
    let (name, theirs) = ((host.to_owned(), port), Arc::clone(&found));
    std::thread::Builder::new().name("nbd-resolve".into()).spawn(move || {
        let addresses = name.to_socket_addrs().map(Vec::from_iter);
        *theirs.0.lock() = Some(addresses);
        theirs.1.notify_one();
    })?;
    let mut addresses = found.0.lock();
    found.1.wait_while_for(&mut addresses, |addresses| addresses.is_none(), remaining(until)?);
    addresses.take().unwrap_or_else(|| {
        let why = format!("the address of host {host} was not found in time");
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

/// Connects to one of the addresses. Each gets an equal part of the time that is left, so that an
/// address that does not answer leaves time for the others.
fn connect_tcp(addresses: &[SocketAddr], until: Instant) -> io::Result<OwnedFd> {
    let mut last = io::ErrorKind::NotFound.into();
    for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let part = remaining(until)?.div_f64(left as f64).max(SHORTEST);
        match TcpStream::connect_timeout(address, part) {
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

/// Ends a connection at once. For TCP, this drops the bytes that this machine has not transmitted,
/// and tells the server that the connection was reset. After a shutdown the system would still
/// deliver these bytes.
///
/// For a Unix socket, the server has all bytes that the socket has accepted.
pub(crate) fn reset(socket: &OwnedFd) {
    // Only TCP supports this call, and a socket that is closed already needs none.
    let _ = rustix::net::connect_unspec(socket);
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Returns the time until the deadline, or `TimedOut`.
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
    /// Repeats a call until it does not return `WouldBlock`, or the deadline has passed.
    fn retry<T>(
        &self,
        wanted: PollFlags,
        mut call: impl FnMut(&OwnedFd) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        loop {
            // The deadline also applies to a peer that sends single bytes for ever.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, getsockname, ipproto, listen, sockopt};
    use std::net::{Ipv4Addr, TcpListener};

    /// Returns an address that does not answer: the queue of its listener is full.
    fn silent() -> (SocketAddr, Vec<OwnedFd>) {
        let new = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))
                .unwrap()
        };
        let listener = new();
        sockopt::set_socket_reuseaddr(&listener, true).unwrap();
        bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        listen(&listener, 0).unwrap();
        let address = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
        let mut sockets: Vec<_> = (0..4).map(|_| new()).collect();
        for socket in &sockets {
            let _ = rustix::net::connect(socket, &address);
        }
        sockets.push(listener);
        (address, sockets)
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_others() {
        let (silent, _sockets) = silent();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let alive = listener.local_addr().unwrap();
        let connect = |addresses: &[SocketAddr], time| connect_tcp(addresses, Instant::now() + time);
        let short = Duration::from_millis(600);
        assert_eq!(connect(&[silent], short).unwrap_err().kind(), io::ErrorKind::TimedOut);
        // On a busy machine a part of a short time may pass before its address is tried.
        let connects = |addresses: &[SocketAddr]| {
            [short, 10 * short, 100 * short].into_iter().any(|time| connect(addresses, time).is_ok())
        };
        assert!(connects(&[silent, alive]));
        assert!(connects(&[silent, silent, alive]));
    }

    #[test]
    fn names_and_addresses_are_resolved() {
        let until = Instant::now() + Duration::from_secs(5);
        assert_eq!(resolve("10.1.2.3", 7, until).unwrap(), ["10.1.2.3:7".parse().unwrap()]);
        assert!(resolve("localhost", 7, until).unwrap().iter().all(|address| address.ip().is_loopback()));
        assert_eq!(resolve("localhost", 7, Instant::now()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
