//! TLS, with certificates that openssl makes for the test.

use super::*;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use parext4_device::{ReadNow, WriteGuard};
use tempfile::TempDir;
use testkit::nbd::{Nbdkit, Running, Server};
use testkit::{skipped, tool};

/// Runs openssl in a directory. `None` if it is not installed.
fn openssl(dir: &Path, arguments: &str) -> Option<()> {
    let output = tool(Command::new("openssl").args(arguments.split_whitespace()).current_dir(dir))?;
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// Makes the certificates that nbdkit expects, an authority of its own for the client, and a
/// stranger's.
fn certificates() -> Option<TempDir> {
    let dir = TempDir::new().unwrap();
    let path = dir.path();
    for (name, subject) in [("ca", "/CN=authority"), ("stranger", "/CN=stranger")] {
        let ca = "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=keyCertSign";
        openssl(
            path,
            &format!(
                "req -x509 -newkey ed25519 -nodes -days 2 -keyout {name}-key.pem -out {name}-cert.pem -subj {subject} {ca}"
            ),
        )?;
    }
    std::fs::write(path.join("server.ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    std::fs::write(path.join("client.ext"), "extendedKeyUsage=clientAuth\n").unwrap();
    for name in ["server", "client"] {
        openssl(
            path,
            &format!("req -newkey ed25519 -nodes -keyout {name}-key.pem -out {name}.csr -subj /CN={name}"),
        )?;
        openssl(
            path,
            &format!(
                "x509 -req -in {name}.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile {name}.ext -out {name}-cert.pem"
            ),
        )?;
    }
    Some(dir)
}

fn nbdkit(dir: &Path, more: &str) -> Option<Running<Nbdkit>> {
    let directory = dir.display();
    Nbdkit::new(&format!("--tls=require --tls-certificates={directory} {more} memory 4M")).start(dir)
}

/// Returns the URL of a server with TLS and the given options.
fn url(server: &Running<Nbdkit>, options: &str) -> String {
    server.url(options).replace("nbd+unix", "nbds+unix")
}

#[test]
fn bytes_are_encrypted_and_the_server_is_known() {
    let Some(dir) = certificates() else { return };
    let Some(server) = nbdkit(dir.path(), "") else { return };
    let file = |name: &str| dir.path().join(name).display().to_string();
    let known = format!("&tls-hostname=localhost&ca={}", file("ca-cert.pem"));
    let device = open_url(&url(&server, &format!("{known}&connections=2"))).unwrap();
    let bytes: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    device.write_at(4096, &[IoSlice::new(&bytes)]).unwrap();
    device.flush().unwrap();
    assert!(read(&*device, 4096, bytes.len()).unwrap() == bytes);
    let mut queue = open_queue(&device, 16);
    (0..64).for_each(|token| queue.submit(read_request(token, 4096 + token * 4096, 4096)));
    for done in finish(&mut *queue) {
        let Op::Read { buf, .. } = &done.op else { panic!() };
        assert!(done.result.is_ok() && buf[..] == bytes[done.token as usize * 4096..][..4096]);
    }
    for (options, message) in [
        (known.replace("localhost", "other.example"), "TLS"),
        (format!("&tls-hostname=localhost&ca={}", file("stranger-cert.pem")), "TLS"),
        (format!("&tls-hostname=localhost&ca={}", file("absent.pem")), "absent.pem"),
        (format!("&tls-hostname=localhost&ca={}", file("ca-key.pem")), "no certificate"),
        (known.replace("localhost", "a%20b"), "is no name"),
    ] {
        let error = open_url(&url(&server, &options)).unwrap_err();
        assert!(error.to_string().contains(message), "{options}: {error}");
    }
    let error = open_url(&server.url("")).unwrap_err();
    assert!(error.to_string().contains("use nbds://"), "{error}");
}

#[test]
fn a_client_shows_its_certificate() {
    let Some(dir) = certificates() else { return };
    let Some(mut server) = nbdkit(dir.path(), "--tls-verify-peer") else { return };
    let file = |name: &str| dir.path().join(name).display().to_string();
    let known = format!("&tls-hostname=127.0.0.1&reconnect=30&ca={}", file("ca-cert.pem"));
    open_url(&url(&server, &known)).unwrap_err();
    let own = format!("{known}&cert={}&key={}", file("client-cert.pem"), file("client-key.pem"));
    let device = open_url(&url(&server, &own)).unwrap();
    write(&*device, 0, 1, 4096).unwrap();
    // The memory of the server is lost, so the bytes must be sent again over new connections.
    server.restart();
    assert_eq!(read(&*device, 0, 4096).unwrap(), vec![1; 4096]);
}

#[test]
fn a_server_without_tls_is_refused() {
    let dir = TempDir::new().unwrap();
    let Some(server) = Nbdkit::new("--tls=off memory 4M").start(dir.path()) else {
        return skipped("no nbdkit");
    };
    let error = open_url(&url(&server, "&tls-hostname=localhost")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("the server has no TLS"), "{error}");
}

/// A guard that permits writes to the threads of the volume, and to the thread that encrypts only
/// as long as it is told.
#[derive(Debug)]
struct Owner {
    may_encrypt: AtomicBool,
    questions: AtomicU32,
}

impl WriteGuard for Owner {
    fn may_write(&self) -> bool {
        if std::thread::current().name() != Some("nbd-tls") {
            return true;
        }
        self.questions.fetch_add(1, SeqCst);
        self.may_encrypt.load(SeqCst)
    }

    fn may_resend(&self, read: &mut ReadNow<'_>) -> io::Result<()> {
        read(0, &mut [0; 4096])?;
        Err(io::Error::new(ErrorKind::PermissionDenied, "another machine has the volume"))
    }
}

/// A machine may be stopped when the thread that encrypts has writes.
#[test]
fn the_thread_that_encrypts_asks_before_it_sends_writes() {
    let Some(dir) = certificates() else { return };
    let Some(server) = nbdkit(dir.path(), "") else { return };
    let ca = dir.path().join("ca-cert.pem").display().to_string();
    let url = url(&server, &format!("&tls-hostname=localhost&ca={ca}"));
    let device = open_url(&url).unwrap();
    let owner = Arc::new(Owner { may_encrypt: AtomicBool::new(true), questions: AtomicU32::new(0) });
    device.guard_writes(Arc::clone(&owner) as Arc<dyn WriteGuard>);
    write(&*device, 0, 1, 4096).unwrap();
    device.flush().unwrap();
    assert!(owner.questions.swap(0, SeqCst) > 0);
    owner.may_encrypt.store(false, SeqCst);
    assert_eq!(read(&*device, 0, 4096).unwrap(), [1; 4096]);
    assert_eq!(owner.questions.load(SeqCst), 0, "reads need no permission");
    let error = write(&*device, 0, 2, 4096).unwrap_err();
    assert!(error.to_string().contains("another machine has the volume"), "{error}");
    assert_eq!(read(&*open_url(&url).unwrap(), 0, 4096).unwrap(), [1; 4096]);
}
