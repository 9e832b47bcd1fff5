//! Servers and networks that are slow or stop.

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use testkit::nbd::{Kind, Reply};

/// A relay from TCP to the server. It can stop to relay the requests of the first connection.
struct Relay {
    port: u16,
    stops: Arc<AtomicBool>,
    /// Bytes of requests that the first connection has relayed.
    relayed: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Relay {
    /// Relays the first `served` connections, and accepts the others without an answer.
    fn start(server: &FakeServer, served: usize) -> Self {
        let socket: PathBuf = server.url("").split_once("socket=").unwrap().1.into();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // A small buffer, so that the client's machine holds most bytes that the relay has not
        // read.
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 16 << 10).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stops, relayed, ended) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let relay = Self { port, stops, relayed, ended };
        let (stops, relayed, ended) =
            (Arc::clone(&relay.stops), Arc::clone(&relay.relayed), Arc::clone(&relay.ended));
        spawn(move || {
            let mut silent = Vec::new();
            for (nth, client) in listener.incoming().map_while(Result::ok).enumerate() {
                if nth >= served {
                    silent.push(client);
                    continue;
                }
                let Ok(server) = UnixStream::connect(&socket) else { return };
                let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                spawn(move || {
                    let _ = std::io::copy(&mut answers, &mut back);
                    let _ = back.shutdown(std::net::Shutdown::Both);
                });
                let (stops, relayed, ended) = (Arc::clone(&stops), Arc::clone(&relayed), Arc::clone(&ended));
                spawn(move || {
                    if nth > 0 {
                        return requests(client, server, &AtomicBool::new(false), &AtomicU64::new(0));
                    }
                    requests(client, server, &stops, &relayed);
                    ended.store(true, SeqCst);
                });
            }
        });
        relay
    }

    fn url(&self, options: &str) -> String {
        format!("nbd://127.0.0.1:{}/x?{options}", self.port)
    }
}

fn requests(mut client: TcpStream, mut server: UnixStream, stops: &AtomicBool, relayed: &AtomicU64) {
    let mut bytes = [0; 4096];
    loop {
        while stops.load(SeqCst) {
            sleep(Duration::from_millis(5));
        }
        let Ok(len @ 1..) = client.read(&mut bytes) else { break };
        relayed.fetch_add(len as u64, SeqCst);
        if server.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
}

/// This machine would deliver them later otherwise, over what was written meanwhile.
#[test]
fn the_untransmitted_writes_of_a_lost_connection_are_dropped() {
    let server = FakeServer::start(SIZE, Offer::default());
    let relay = Relay::start(&server, usize::MAX);
    let device = open_url(&relay.url("connections=1&timeout=1&reconnect=30")).unwrap();
    relay.stops.store(true, SeqCst);
    write(&*device, 0, 1, SIZE as usize).unwrap();
    let before = relay.relayed.swap(0, SeqCst);
    relay.stops.store(false, SeqCst);
    assert!(testkit::poll::until(|| relay.ended.load(SeqCst)));
    let late = relay.relayed.load(SeqCst);
    assert!(late < 300 << 10, "{late} bytes of {SIZE} arrived late, {before} before");
}

#[test]
fn further_connections_that_are_not_answered_do_not_delay_the_open() {
    let server = FakeServer::start(SIZE, Offer::default());
    let relay = Relay::start(&server, 1);
    let start = Instant::now();
    let device = open_url(&relay.url("connections=4")).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    read(&*device, 0, 4096).unwrap();
}

/// Writes `count` times `len` bytes, and restarts the server, which then needs `each` for a write.
/// The client waits `reconnect` seconds for it.
fn restarted(count: usize, len: usize, each: Duration, reconnect: u64) -> (FakeServer, Arc<dyn Device>) {
    let server = FakeServer::start((count * len) as u64, Offer::default());
    let device = open_url(&server.url(&format!("&reconnect={reconnect}"))).unwrap();
    for nth in 0..count {
        write(&*device, (nth * len) as u64, 1, len).unwrap();
    }
    server.rule(move |seen| if seen.kind == Kind::Write { Reply::Late(each) } else { Reply::Answer });
    server.restart();
    (server, device)
}

#[test]
fn a_server_that_takes_retained_writes_slowly_does_not_hold_requests_for_ever() {
    let (_server, device) = restarted(100, 4096, Duration::from_millis(100), 1);
    let start = Instant::now();
    let error = read(&*device, 0, 512).unwrap_err();
    assert!(error.to_string().contains("too slow"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_flush_of_retained_writes_gives_the_server_more_time() {
    let (_server, device) = restarted(20, 1 << 20, Duration::from_millis(300), 5);
    let start = Instant::now();
    assert_eq!(read(&*device, 0, 512).unwrap(), [1; 512]);
    assert!(start.elapsed() > Duration::from_millis(5500), "{:?}", start.elapsed());
}
