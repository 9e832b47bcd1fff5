//! A server of NBD with one image, and one with the images of a folder.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::kinds::{Kind, Link, ServerFiles, Store};
use super::{Server, certificates, proxy::Proxy};
use crate::command::cmd;
use crate::nbdkit::{ONE_THREAD, is_listening, nbdkit};
use crate::process::Process;
use crate::testbed::{TestBed, remove};

/// A server of all files of a folder, each by its name as the export.
pub struct Folder {
    // Fields are dropped in this order.
    _process: Process,
    runtime: TempDir,
}

impl Folder {
    /// Starts a server of the images of `bed`.
    pub fn new(bed: &TestBed) -> Result<Folder> {
        let runtime = tempfile::tempdir()?;
        let socket = runtime.path().join("socket");
        let nbdkit = nbdkit(&socket).arg(ONE_THREAD).arg("file");
        let nbdkit = nbdkit.arg(format!("dir={}", bed.path("").display()));
        let mut process = Process::start("nbdkit", nbdkit, runtime.path().join("log"))?;
        process.wait_until(|| is_listening(&socket))?;
        Ok(Folder { _process: process, runtime })
    }

    /// Returns the URL of an image of the folder.
    pub fn url(&self, image: &Path) -> PathBuf {
        let name = image.file_name().unwrap_or_default().display();
        let socket = self.runtime.path().join("socket");
        format!("nbd+unix:///{name}?socket={}", socket.display()).into()
    }
}

/// Returns a port that no server uses. No client gets it either, while the server is dead: the
/// kernel takes the ports of clients from 32768 on (`net.ipv4.ip_local_port_range`).
fn free_port() -> Result<u16> {
    let mut attempts = 0;
    loop {
        let port = fastrand::u16(20_000..32_768);
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(error) if attempts == 100 => return Err(error).context("a free port"),
            Err(_) => attempts += 1,
        }
    }
}

/// A server of NBD.
pub struct NbdServer {
    kind: &'static Kind,
    place: ServerFiles,
    process: Option<Process>,
    proxy: Option<Proxy>,
    _runtime: TempDir,
}

impl NbdServer {
    /// Makes an image of `size` zeros and starts a server of it.
    pub fn new(bed: &TestBed, kind: &'static Kind, size: u64, seed: u64) -> Result<NbdServer> {
        // The path of a socket has 107 bytes at most.
        let runtime = tempfile::tempdir()?;
        let path = |name| runtime.path().join(name);
        let place = ServerFiles {
            image: bed.path(kind.name),
            socket: path("socket"),
            certificates: path("certificates"),
            log: path("log"),
            port: free_port()?,
            size,
        };
        remove(&place.image)?;
        match kind.store {
            Store::Memory => {}
            Store::File => std::fs::File::create(&place.image)?.set_len(size)?,
            Store::Qcow2 => {
                let make = cmd("qemu-img").args("create -q -f qcow2").arg(&place.image);
                make.arg(size.to_string()).run()?;
            }
        }
        if kind.link == Link::Tls {
            certificates::make(&place.certificates)?;
        }
        let proxy = match kind.link {
            Link::Cut => Some(Proxy::new(&path("proxy"), &place.socket, seed)?),
            _ => None,
        };
        let mut server = NbdServer { kind, place, process: None, proxy, _runtime: runtime };
        server.start()?;
        Ok(server)
    }

    /// Stops the server as its administrator does, and starts another kind with the same image
    /// file.
    pub fn replace(&mut self, kind: &'static Kind) -> Result<()> {
        self.kill()?;
        self.kind = kind;
        self.start()
    }

    /// Makes requests fail, or no longer.
    pub fn set_trigger(&self, fails: bool) -> Result<()> {
        if !fails {
            return remove(&self.place.trigger());
        }
        std::fs::write(self.place.trigger(), "")?;
        Ok(())
    }

    fn is_listening(&self) -> bool {
        match self.kind.link {
            Link::Tls => TcpStream::connect(("127.0.0.1", self.place.port)).is_ok(),
            _ => is_listening(&self.place.socket),
        }
    }
}

impl Server for NbdServer {
    fn url(&self, options: &str) -> String {
        // What a client must send again has to pass before the next cut.
        let options =
            if self.kind.link == Link::Cut { &format!("retain=1000000&{options}") } else { options };
        let separator = if options.is_empty() { "" } else { "&" };
        let ServerFiles { socket, certificates, port, .. } = &self.place;
        let socket = self.proxy.as_ref().map_or(&**socket, Proxy::socket).display();
        match self.kind.link {
            Link::Tls => {
                let ca = certificates.join("ca-cert.pem");
                format!("nbds://localhost:{port}/?ca={}{separator}{options}", ca.display())
            }
            _ => format!("nbd+unix:///?socket={socket}{separator}{options}"),
        }
    }

    fn start(&mut self) -> Result<()> {
        // A killed server leaves its socket.
        remove(&self.place.socket)?;
        let command = (self.kind.command)(&self.place);
        let mut process = Process::start(self.kind.name, command, self.place.log.clone())?;
        process.wait_until(|| self.is_listening())?;
        self.process = Some(process);
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        // Drop kills it.
        self.process = None;
        Ok(())
    }

    fn bytes(&self) -> Result<PathBuf> {
        if self.kind.store == Store::File {
            return Ok(self.place.image.clone());
        }
        let copy = self.place.copy();
        remove(&copy)?;
        cmd("nbdcopy").arg(self.url("")).arg(&copy).run()?;
        Ok(copy)
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.process = None;
        // The folder of the test bed goes later; images of long runs would fill the disk before.
        for path in [&self.place.image, &self.place.trigger(), &self.place.copy()] {
            let _ = remove(path);
        }
    }
}
