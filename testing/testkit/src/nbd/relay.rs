//! A relay between client and server that ends connections in the middle of requests and answers.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::rng::Rng;

/// Number of bytes of answers that every connection relays, so that each request can succeed.
const SHORTEST: u64 = 80 << 10;

/// Relays connections to a server, and ends each after a random number of bytes.
///
/// When it has ended one connection, it waits until the server has closed its end, and so executes
/// no more of its requests.
pub struct Relay {
    dir: TempDir,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    server: PathBuf,
    rng: Mutex<Rng>,
    /// Largest number of bytes before a connection ends.
    largest: u64,
    ended: AtomicU64,
    /// Held while a connection ends, and to begin one.
    ending: Mutex<()>,
    /// Whether connections may go on.
    calm: AtomicBool,
    /// Whether the relay is dropped.
    over: AtomicBool,
}

impl Relay {
    /// Relays to the server at a socket. Connections end after at least 80 KiB of answers, and
    /// about `largest` bytes at most.
    pub fn start(server: &Path, seed: u64, largest: u64) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let listener = UnixListener::bind(dir.path().join("socket")).expect("a socket");
        let shared = Arc::new(Shared {
            server: server.to_owned(),
            rng: Mutex::new(Rng::new(seed, 0)),
            largest,
            ended: AtomicU64::new(0),
            ending: Mutex::new(()),
            calm: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || theirs.accept(&listener));
        Self { dir, shared, thread: Some(thread) }
    }

    /// Returns the URL of the export, with further options such as `&reconnect=5`.
    pub fn url(&self, options: &str) -> String {
        format!("nbd+unix:///?socket={}/socket{options}", self.dir.path().display())
    }

    /// Returns the number of connections that the relay has ended.
    pub fn ended(&self) -> u64 {
        self.shared.ended.load(SeqCst)
    }

    /// Ends no more connections.
    pub fn calm(&self) {
        self.shared.calm.store(true, SeqCst);
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        for client in listener.incoming().map_while(Result::ok) {
            if self.over.load(SeqCst) {
                return;
            }
            let ending = self.ending.lock();
            let Ok(server) = UnixStream::connect(&self.server) else { return };
            drop(ending);
            let (from, to) = (client.try_clone(), server.try_clone());
            let (Ok(from), Ok(to)) = (from, to) else { return };
            std::thread::spawn(move || copy(from, to, None));
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.answers(server, client));
        }
    }

    /// Relays the answers of one connection until it ends.
    fn answers(&self, server: UnixStream, client: UnixStream) {
        let limit = SHORTEST + self.rng.lock().log_uniform(self.largest);
        let (Ok(mut rest), Ok(back)) = (server.try_clone(), client.try_clone()) else { return };
        copy(server, client, Some((limit, &self.calm)));
        let _ending = self.ending.lock();
        let _ = (back.shutdown(Shutdown::Both), rest.shutdown(Shutdown::Write));
        let mut bytes = [0; 65536];
        while matches!(rest.read(&mut bytes), Ok(len) if len > 0) {}
        self.ended.fetch_add(1, SeqCst);
    }
}

/// Copies bytes until one side ends, or until the limit if there is one and `calm` is not set.
fn copy(mut from: UnixStream, mut to: UnixStream, limit: Option<(u64, &AtomicBool)>) {
    let mut bytes = [0; 65536];
    let mut copied = 0;
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
        copied += len as u64;
        if limit.is_some_and(|(limit, calm)| copied > limit && !calm.load(SeqCst)) {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.over.store(true, SeqCst);
        // Ends the wait for a connection.
        drop(UnixStream::connect(self.dir.path().join("socket")));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
