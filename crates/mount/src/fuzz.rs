//! Sends requests, made of the bytes of a fuzzer, to the server of a volume. A socket replaces
//! `/dev/fuse`, so that the server parses, dispatches, executes and answers them like requests of
//! the kernel.
//!
//! An input is a byte with the options of the mount, and then messages: operation, node, user,
//! length, and the bytes after the header. The harness adds the rest of the header, and waits for
//! each reply before it sends the next request.

mod message;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::{Config, InitFlags, Session, SessionACL};
use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};

use crate::dispatch::Dispatcher;
use crate::options::{Cache, MountOptions};
use crate::server::Server;
use message::{Message, Nodes, Reply};

/// Limit of requests of an input.
const MOST: usize = 200;
/// Time after which a request without a reply counts as lost.
const PATIENCE: Duration = Duration::from_mins(1);

/// Serves a volume to the requests that `bytes` encode. Returns the device when the volume is
/// closed.
///
/// # Panics
/// If the server panics or does not answer a request, or the volume cannot be closed.
pub fn serve(bytes: &[u8]) -> MemDevice {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let device = Arc::new(empty());
    let options = VolumeOptions::new().cache_bytes(1 << 20).commit_interval(None);
    let options = options.read_only(first & 1 != 0);
    let volume = Volume::open_device(Arc::clone(&device) as _, &options).expect("the volume opens");
    let mut connection =
        Connection::new(&volume, &mount_options(*first), InitFlags::from_bits_retain(u64::MAX))
            .expect("the server starts");
    let mut nodes = Nodes::default();
    let mut input = rest;
    for _ in 0..MOST {
        let message = Message::decode(&mut input, &nodes).filter(|message| !message.is_last());
        let Some(message) = message else { break };
        if let Some(reply) = connection.call(&message) {
            nodes.learn(&message, &reply);
        }
    }
    connection.end();
    volume.close().expect("the volume is closed");
    device.fork()
}

/// Returns an empty volume.
fn empty() -> MemDevice {
    static EMPTY: OnceLock<MemDevice> = OnceLock::new();
    let make = || {
        let device = MemDevice::new(8 << 20);
        let options = MkfsOptions::new().block_size(1024).device_is_zero(true);
        mkfs(&device, &options).expect("mkfs");
        device
    };
    EMPTY.get_or_init(make).fork()
}

/// Returns the options of a mount that the bits of a byte choose.
fn mount_options(bits: u8) -> MountOptions {
    let cache = [Cache::Kernel, Cache::Writeback, Cache::Direct, Cache::Kernel][usize::from(bits >> 1 & 3)];
    let mut options = MountOptions::new().cache(cache).threads(1).read_only(bits & 1 != 0);
    options.sync = bits & 8 != 0;
    options.dirsync = bits & 16 != 0;
    options.uid = (bits & 32 != 0).then_some(7);
    options.idmap = bits & 64 != 0;
    options.group_of_directory = (bits & 128 != 0).then_some(true);
    options
}

/// A server, and the socket that replaces the kernel's side.
struct Connection {
    kernel: UnixDatagram,
    server: std::thread::JoinHandle<io::Result<()>>,
    reader: std::thread::JoinHandle<()>,
    replies: Receiver<Reply>,
    /// Replies that arrived before they were awaited.
    early: BTreeMap<u64, Reply>,
    sent: u64,
}

impl Connection {
    /// Starts a server that serves a kernel with these capabilities.
    fn new(volume: &Volume, options: &MountOptions, capabilities: InitFlags) -> io::Result<Self> {
        let (kernel, device) = UnixDatagram::pair()?;
        // The session reads this message when it is created.
        kernel.send(&message::init(capabilities))?;
        let server = Arc::new(
            Server::new(volume.clone(), Path::new("image"), options.clone()).map_err(io::Error::other)?,
        );
        let dispatcher = Dispatcher::new(Arc::clone(&server))?;
        let request_threads = dispatcher.request_threads();
        let mut config = Config::default();
        config.n_threads = Some(1);
        let socket = OwnedFd::from(device.try_clone()?);
        let session = Session::from_fd(dispatcher, device.into(), SessionACL::All, config)?;
        request_threads.set_device(socket);
        let _ = server.notifier.set(session.notifier());
        let (sender, replies) = channel();
        let incoming = kernel.try_clone()?;
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 18];
            while let Ok(len @ 1..) = incoming.recv(&mut bytes) {
                let reply = Reply::parse(&bytes[..len]);
                // Notifications need no answer.
                if reply.unique != 0 && sender.send(reply).is_err() {
                    break;
                }
            }
        });
        let server = std::thread::spawn(move || session.run());
        let mut connection = Self { kernel, server, reader, replies, early: BTreeMap::new(), sent: 0 };
        connection.reply(0);
        Ok(connection)
    }

    /// Sends a request and waits for its reply, if it has one.
    fn call(&mut self, message: &Message) -> Option<Reply> {
        self.sent += 1;
        self.kernel.send(&message.encode(message::FIRST + self.sent)).expect("a short request");
        message.has_reply().then(|| self.reply(self.sent))
    }

    fn reply(&mut self, nth: u64) -> Reply {
        let unique = message::FIRST + nth;
        loop {
            if let Some(reply) = self.early.remove(&unique) {
                return reply;
            }
            let reply =
                self.replies.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("request {nth} has no reply"));
            self.early.insert(reply.unique, reply);
        }
    }

    /// Ends the connection as an unmount does.
    fn end(mut self) {
        self.call(&Message::destroy());
        self.server.join().expect("the server does not panic").expect("the session ends");
        self.kernel.shutdown(std::net::Shutdown::Both).expect("a socket");
        self.reader.join().expect("the reader does not panic");
    }
}

#[cfg(test)]
mod tests;
