//! A server in this process, on a Unix socket, whose answers a test chooses.

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::disk::VolatileDisk;
use super::negotiation::{Offer, negotiate};
use super::request::{Kind, Reply, Seen, answer, perform, read, refusal, send};
use crate::sector::SECTOR;

/// Chooses the reply to each request.
pub type Rule = Box<dyn FnMut(&Seen) -> Reply + Send>;

/// A server with a disk whose cache is lost when the server is restarted.
pub struct FakeServer {
    dir: TempDir,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    offer: Mutex<Offer>,
    disk: Mutex<VolatileDisk>,
    rule: Mutex<Rule>,
    log: Mutex<Vec<Seen>>,
    /// Connections of the present run of the server.
    connections: Mutex<Vec<UnixStream>>,
    runs: AtomicU64,
    made: AtomicU64,
    /// Whether the server refuses connections.
    is_down: AtomicBool,
    stop: AtomicBool,
}

impl FakeServer {
    /// Starts a server that answers all requests, with a disk of `size` bytes of zeros.
    pub fn start(size: u64, offer: Offer) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let listener = UnixListener::bind(dir.path().join("socket")).expect("a socket");
        let shared = Arc::new(Shared {
            offer: Mutex::new(offer),
            disk: Mutex::new(VolatileDisk::new(size)),
            rule: Mutex::new(Box::new(|_| Reply::Answer)),
            log: Mutex::default(),
            connections: Mutex::default(),
            runs: AtomicU64::new(0),
            made: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || theirs.accept(&listener));
        Self { dir, shared, thread: Some(thread) }
    }

    /// Returns the URL of the export, with further options such as `&reconnect=5`.
    pub fn url(&self, options: &str) -> String {
        format!("nbd+unix:///x?socket={}/socket{options}", self.dir.path().display())
    }

    /// Sets the rule for all requests that follow.
    pub fn rule(&self, rule: impl FnMut(&Seen) -> Reply + Send + 'static) {
        *self.shared.rule.lock() = Box::new(rule);
    }

    /// Sets what connections that follow are offered.
    pub fn offer(&self, offer: Offer) {
        *self.shared.offer.lock() = offer;
    }

    /// Ends all connections and loses the cache of the disk.
    pub fn restart(&self) {
        self.shared.restart();
    }

    /// Ends all connections, loses the cache, and refuses connections until [`up`](Self::up).
    pub fn down(&self) {
        self.shared.is_down.store(true, SeqCst);
        self.shared.restart();
    }

    /// Accepts connections again.
    pub fn up(&self) {
        self.shared.is_down.store(false, SeqCst);
    }

    /// Returns the requests that the server has seen, oldest first, and forgets them.
    pub fn take_log(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.log.lock())
    }

    /// Calls `look` with the disk.
    pub fn disk<T>(&self, look: impl FnOnce(&mut VolatileDisk) -> T) -> T {
        look(&mut self.shared.disk.lock())
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.stop.load(SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let connection = self.made.fetch_add(1, SeqCst);
            let Ok(copied) = stream.try_clone() else { continue };
            let mut connections = self.connections.lock();
            if self.is_down.load(SeqCst) {
                continue;
            }
            connections.push(copied);
            // Read under the lock, so that a restart ends every connection of an earlier run.
            let run = self.runs.load(SeqCst);
            drop(connections);
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.serve(stream, run, connection));
        }
    }

    fn serve(&self, mut stream: UnixStream, run: u64, connection: u64) {
        let offer = *self.offer.lock();
        let size = self.disk.lock().size();
        let Ok(structured) = negotiate(&mut stream, &offer, size) else { return };
        while let Ok((seen, bytes)) = read(&mut stream, run, connection) {
            if seen.kind == Kind::Disconnect {
                break;
            }
            let reply = (self.rule.lock())(&seen);
            let late = match reply {
                Reply::Late(time) | Reply::LateRefusal(time, _) => time,
                _ => Duration::ZERO,
            };
            let mut disk = self.disk.lock();
            if self.runs.load(SeqCst) != run {
                // The server was restarted since: this run performs nothing more.
                break;
            }
            self.log.lock().push(seen.clone());
            let answered = match reply {
                Reply::Close => break,
                Reply::Restart => {
                    drop(disk);
                    self.restart();
                    break;
                }
                Reply::Bytes(bytes) => bytes,
                Reply::BytesAndClose(bytes) => {
                    let _ = send(&mut stream, &bytes);
                    break;
                }
                Reply::Torn(number) => {
                    if seen.kind == Kind::Write {
                        disk.write(seen.offset, &bytes[..bytes.len() / SECTOR / 2 * SECTOR]);
                    }
                    refusal(&seen, structured, (number, "", None))
                }
                Reply::LateRefusal(_, number) => refusal(&seen, structured, (number, "", None)),
                Reply::Refuse(number, text, at) => refusal(&seen, structured, (number, text, at)),
                Reply::Answer | Reply::Late(_) | Reply::OwnerEvidence => {
                    match perform(&mut disk, &seen, &bytes) {
                        Ok(_) if matches!(reply, Reply::OwnerEvidence) => continue,
                        Ok(data) => answer(&seen, structured, &data),
                        Err(number) => refusal(&seen, structured, (number, "", None)),
                    }
                }
            };
            drop(disk);
            std::thread::sleep(late);
            if send(&mut stream, &answered).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
    }

    fn restart(&self) {
        let mut connections = self.connections.lock();
        let mut disk = self.disk.lock();
        self.runs.fetch_add(1, SeqCst);
        disk.lose_power();
        for stream in connections.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.restart();
        // Ends the wait for a connection.
        drop(UnixStream::connect(self.dir.path().join("socket")));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
