//! A client of network block devices (NBD) as a [`Device`](parext4_device::Device).
//!
//! [`NbdUrl`] names an export, [`NbdDevice`] opens it. The client negotiates in the fixed newstyle,
//! with block sizes, structured replies and TLS 1.3. It sends flushes, trims, write-zeroes for long
//! zeros, and FUA to servers that cache writes and have no flush.
//!
//! # Threads
//! Requests need no threads of their own: a caller writes its requests to the socket itself, and
//! one of the threads that wait for a connection receives for all (`role`). If the server declares
//! its connections coherent (`CAN_MULTI_CONN`), the client opens several, and spreads queues and
//! threads over them. A session has one thread for flushes that wait (`flush`), and one that makes
//! new connections (`recover`). A connection with TLS has one that encrypts (`tls`).
//!
//! # A lost connection
//! A request is *answered* when the server has replied to it, and *covered* when the server has
//! replied to a flush that was sent after the answer. A server that restarts may lose answered
//! writes that are not covered. So the client keeps a copy of these writes (`retained`), in at most
//! 64 MiB of memory unless the URL sets another limit. At half the limit the client flushes by
//! itself; at the limit, writes wait.
//!
//! When one connection is lost, the client resets all connections and connects again with growing
//! pauses (`recover`). It sends the retained writes first, waits for their answers, and then sends
//! again the requests without an answer. Callers only see a delay. After the time of the URL's
//! option `reconnect` the client gives up: all requests fail with a message that says so, and no
//! later request succeeds.
//!
//! A new connection must find the export with the same size, flags and block sizes.
//!
//! Limits of this:
//! - A server that is alive may still execute requests that it has received by the lost connection,
//!   after the client has sent them again on the new one. If the client has written the same range
//!   again meanwhile, an old write may replace the newer one. The window is the time that the
//!   server needs for requests that it has received. Bytes that this machine had not transmitted
//!   are dropped, because the connection is reset. A server that was restarted executes no old
//!   request.
//! - Two writes that overlap in time and in range have no order. If the server has applied them in
//!   another order than it answered them, a restart can reverse the order: the copies have the
//!   order of the answers.
//! - The server does not keep other clients from writing to the export:
//!   [`Sharing::Unfenced`](parext4_device::Sharing::Unfenced). A
//!   [`WriteGuard`](parext4_device::WriteGuard) keeps this client from writing (`guard`), up to
//!   each system call that sends bytes to the server.
//!
//! # Hostile servers
//! Whatever a server sends, the client does not panic, uses a bounded amount of memory, and ends by
//! its timeouts: 10 seconds for connecting and negotiating, `timeout` for a request, `reconnect`
//! for a lost connection. A reply against the protocol counts as a lost connection.
#![forbid(unsafe_code)]

mod buffer;
mod caller;
mod command;
mod connect;
mod connection;
mod device;
mod error;
mod event;
mod export;
mod fault;
mod flush;
mod flush_turn;
mod guard;
mod in_flight;
mod incoming;
mod mailbox;
#[cfg(shuttle)]
pub mod models;
mod negotiate;
mod outgoing;
mod percent;
mod pieces;
mod protocol;
mod queue;
mod received;
mod recover;
mod retained;
mod role;
mod session;
mod socket;
mod tls;
mod url;

pub use device::NbdDevice;
pub use url::NbdUrl;
