//! A proxy between clients and a server that cuts each connection after a random number of bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use crate::testbed::remove;

/// Bytes after which a connection is cut, in both directions together. The lower limit leaves room
/// for what a client with `retain=1000000` must send again before anything else.
const CUT_AFTER: std::ops::Range<u64> = 3_000_000..8_000_000;
/// The time between two checks whether the proxy must end.
const POLL: Duration = Duration::from_millis(20);

/// The proxy. Drop closes its connections and ends its threads.
pub struct Proxy {
    socket: PathBuf,
    ends: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on `socket`, and connects each client to `server`.
    pub fn new(socket: &Path, server: &Path, seed: u64) -> Result<Proxy> {
        remove(socket)?;
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        let ends = Arc::new(AtomicBool::new(false));
        let (server, ended) = (server.to_owned(), Arc::clone(&ends));
        let acceptor = thread::spawn(move || accept(&listener, &server, &ended, Rng::with_seed(seed)));
        Ok(Proxy { socket: socket.to_owned(), ends, acceptor: Some(acceptor) })
    }

    /// Returns the socket for clients.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Relaxed: the flag publishes nothing but itself.
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.acceptor.take().map(JoinHandle::join);
        let _ = remove(&self.socket);
    }
}

fn accept(listener: &UnixListener, server: &Path, ends: &Arc<AtomicBool>, mut rng: Rng) {
    let mut copiers = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let Ok((client, _)) = listener.accept() else {
            thread::sleep(POLL);
            continue;
        };
        // A client whose server is gone loses its connection at once.
        let Ok(server) = UnixStream::connect(server) else { continue };
        let left = Arc::new(AtomicU64::new(rng.u64(CUT_AFTER)));
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
            let (left, ends) = (Arc::clone(&left), Arc::clone(ends));
            copiers.push(thread::spawn(move || copy(&from, &to, &left, &ends)));
        }
    }
    copiers.into_iter().for_each(|copier| drop(copier.join()));
}

/// Copies until either side closes, or the bytes that are left have passed; then closes both sides.
fn copy(mut from: &UnixStream, mut to: &UnixStream, left: &AtomicU64, ends: &AtomicBool) {
    let mut bytes = vec![0; 256 << 10];
    let _ = from.set_nonblocking(false);
    let _ = from.set_read_timeout(Some(POLL));
    while !ends.load(Ordering::Relaxed) {
        let count = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count as u64,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(_) => break,
        };
        let allowed =
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(count)));
        let passed = count.min(allowed.unwrap_or(0));
        if to.write_all(&bytes[..usize::try_from(passed).unwrap_or(0)]).is_err() || passed < count {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
