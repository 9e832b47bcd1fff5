//! TLS: encrypts a connection in a thread of its own, so that the rest of the client sees a plain
//! socket.
//!
//! [`wrap`] makes the handshake and then returns one end of a socket pair. The thread moves bytes
//! between the other end and the encrypted socket until one of them is closed. It stores at most 64
//! KiB and one record in each direction. Before each system call that sends, it asks the guard by
//! [`Changes`].

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::guard::Changes;
use crate::socket::{Timed, poll_for, reset};
use crate::url::TlsFiles;

/// Files with the certificates that the system trusts, of several distributions.
const SYSTEM_CA: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Bytes that the thread moves at a time.
const PIECE: usize = 64 << 10;

/// Makes the handshake on `socket` before the deadline, and returns a socket for the plain bytes.
///
/// # Errors
/// The files cannot be read, or the server's certificate is not trusted; the message says which.
pub(crate) fn wrap(
    socket: &Arc<OwnedFd>,
    files: &TlsFiles,
    changes: &Arc<Changes>,
    until: Instant,
) -> io::Result<OwnedFd> {
    let name = ServerName::try_from(files.hostname.clone())
        .map_err(|_| invalid(format!("{:?} is no name that a certificate can have", files.hostname)))?;
    let mut tls = ClientConnection::new(Arc::new(config(files)?), name).map_err(io::Error::other)?;
    let mut stream = Timed { socket, until };
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).map_err(|error| name_tls(&error))?;
    }
    // The thread fills the buffer only while it is empty, so the buffer's size is limited without
    // this.
    tls.set_buffer_limit(None);
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    let socket = Encrypted { socket: Arc::clone(socket), changes: Arc::clone(changes) };
    let bridge = Bridge { tls, plain: theirs, socket, out: Vec::new() };
    std::thread::Builder::new().name("nbd-tls".into()).spawn(move || bridge.run())?;
    Ok(ours.into())
}

fn config(files: &TlsFiles) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let ca = files.ca.clone().map_or_else(system_ca, Ok)?;
    for certificate in certificates(&ca)? {
        // A file of the system may hold certificates that are too old for this library.
        let added = roots.add(certificate);
        if files.ca.is_some() {
            added.map_err(|error| invalid(format!("{}: {error}", ca.display())))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let config = config.with_root_certificates(roots);
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let key_of =
                |key: &Path| PrivateKeyDer::from_pem_file(key).map_err(|error| bad_file(key, &error));
            let config = config.with_client_auth_cert(certificates(cert)?, key_of(key)?);
            config.map_err(|error| invalid(format!("{}: {error}", cert.display())))
        }
        _ => Ok(config.with_no_client_auth()),
    }
}

fn system_ca() -> io::Result<PathBuf> {
    let found = SYSTEM_CA.iter().find(|path| fs::metadata(path).is_ok());
    found.map(PathBuf::from).ok_or_else(|| {
        invalid("the system has no file of trusted certificates; name one with ca=FILE".to_owned())
    })
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().map_err(|error| bad_file(path, &error))?;
    if found.is_empty() {
        return Err(invalid(format!("{}: no certificate (PEM) in it", path.display())));
    }
    Ok(found)
}

fn bad_file(path: &Path, error: &rustls::pki_types::pem::Error) -> io::Error {
    invalid(format!("{}: {error}", path.display()))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn name_tls(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("TLS: {error}"))
}

/// The thread between the plain and the encrypted socket.
struct Bridge {
    tls: ClientConnection,
    plain: UnixStream,
    socket: Encrypted,
    /// Decrypted bytes that `plain` has not accepted yet.
    out: Vec<u8>,
}

impl Bridge {
    /// Moves bytes until one side is closed or fails, and closes both.
    fn run(mut self) {
        let result = self.pump();
        if let Err(error) = &result {
            log::debug!("TLS connection to an NBD server: {error}");
        }
        if result.is_ok() && !self.tls.wants_write() {
            self.tls.send_close_notify();
            let _ = self.tls.write_tls(&mut self.socket);
            let _ = rustix::net::shutdown(&self.socket.socket, rustix::net::Shutdown::Write);
        } else {
            // Unsent requests are sent again on a new connection, so they must not arrive by this
            // one.
            reset(&self.socket.socket);
        }
        let _ = self.plain.shutdown(Shutdown::Both);
    }

    fn pump(&mut self) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            while self.tls.wants_write() && done(self.tls.write_tls(&mut self.socket))?.is_some() {}
            self.deliver()?;
            if self.wait()? {
                return Ok(());
            }
            if self.out.is_empty() && self.decrypt(&mut piece)? {
                return self.deliver();
            }
            // A backlog of encrypted bytes makes the client wait instead of using more memory.
            if !self.tls.wants_write() {
                match done(self.plain.read(&mut piece))? {
                    Some(0) => return Ok(()),
                    Some(len) => self.tls.writer().write_all(&piece[..len])?,
                    None => {}
                }
            }
        }
    }

    /// Blocks until one of the sockets can continue. Returns true if a socket was closed from which
    /// the thread does not read, because the other socket accepts no bytes.
    fn wait(&self) -> io::Result<bool> {
        let mut encrypted = PollFlags::empty();
        let mut plain = PollFlags::empty();
        if self.tls.wants_write() {
            encrypted |= PollFlags::OUT;
        } else {
            plain |= PollFlags::IN;
        }
        if self.out.is_empty() {
            encrypted |= PollFlags::IN;
        } else {
            plain |= PollFlags::OUT;
        }
        let mut fds = [PollFd::new(&self.socket.socket, encrypted), PollFd::new(&self.plain, plain)];
        poll_for(&mut fds, None)?;
        let is_closed = |fd: &PollFd<'_>, wanted: PollFlags| {
            !wanted.contains(PollFlags::IN) && fd.revents().intersects(PollFlags::HUP | PollFlags::ERR)
        };
        Ok(is_closed(&fds[0], encrypted) || is_closed(&fds[1], plain))
    }

    /// Reads and decrypts the bytes that have arrived. Returns true at the end of the stream.
    fn decrypt(&mut self, piece: &mut [u8]) -> io::Result<bool> {
        let arrived = done(self.tls.read_tls(&mut self.socket))?;
        let state = self.tls.process_new_packets().map_err(io::Error::other)?;
        let mut left = state.plaintext_bytes_to_read();
        while left > 0 {
            let len = self.tls.reader().read(piece)?;
            self.out.extend_from_slice(&piece[..len]);
            left -= len.min(left);
        }
        Ok(arrived == Some(0) || state.peer_has_closed())
    }

    fn deliver(&mut self) -> io::Result<()> {
        while !self.out.is_empty()
            && let Some(len) = done(self.plain.write(&self.out))?
        {
            self.out.drain(..len);
        }
        Ok(())
    }
}

/// Converts the error of a call that would block to `None`.
fn done(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(len) => Ok(Some(len)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The encrypted socket as a non-blocking stream.
struct Encrypted {
    socket: Arc<OwnedFd>,
    changes: Arc<Changes>,
}

impl Read for Encrypted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.socket, out)?)
    }
}

impl Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The guard is asked right before the system call, because the process may have been
        // stopped since the last call.
        if !self.changes.may_pass() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(rustix::net::send(&self.socket, bytes, rustix::net::SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
