//! nbdkit and qemu-nbd as processes, which a test can kill and start again at the same address.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::poll::until;
use crate::skip::skipped;

/// A server program with its command line, to start again and again.
pub trait Server {
    /// Returns the command that serves on the Unix socket at `socket`, in the foreground.
    fn command(&self, socket: &Path) -> Command;

    /// Starts the program on a socket in `dir` and waits until it accepts connections. Returns
    /// `None`, after a call of [`skipped`], if it is not installed.
    fn start(self, dir: &Path) -> Option<Running<Self>>
    where
        Self: Sized,
    {
        let mut running = Running { server: self, socket: dir.join("nbd.sock"), child: None };
        running.begin().then_some(running)
    }
}

/// A program that runs, and is killed when dropped.
pub struct Running<S: Server> {
    server: S,
    socket: PathBuf,
    child: Option<Child>,
}

impl<S: Server> Running<S> {
    /// Returns the URL of the export, with further options such as `&reconnect=5`.
    pub fn url(&self, options: &str) -> String {
        format!("nbd+unix:///?socket={}{options}", self.socket.display())
    }

    /// Returns the socket of the server.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Kills the program (SIGKILL) and waits for its end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the program can be killed");
            child.wait().expect("the program ends");
        }
    }

    /// Starts the program again.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.begin(), "the program was installed before");
    }

    fn begin(&mut self) -> bool {
        // A killed program leaves its socket.
        let _ = std::fs::remove_file(&self.socket);
        let mut command = self.server.command(&self.socket);
        let log = self.socket.with_extension("log");
        let messages = std::fs::File::create(&log).expect("a file for messages");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages);
        let Ok(mut child) = command.spawn() else {
            skipped(&format!("{} is not installed", command.get_program().to_string_lossy()));
            return false;
        };
        let accepts = || std::os::unix::net::UnixStream::connect(&self.socket).is_ok();
        let mut status = None;
        let is_up = until(|| {
            status = child.try_wait().expect("the program can be waited for");
            status.is_some() || self.socket.exists() && accepts()
        });
        self.child = Some(child);
        let says = || std::fs::read_to_string(&log).unwrap_or_default();
        assert!(is_up && status.is_none(), "{command:?} does not serve: {status:?} {}", says());
        true
    }
}

impl<S: Server> Drop for Running<S> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// nbdkit with its arguments: filters, plugin, parameters.
#[derive(Clone, Debug)]
pub struct Nbdkit(pub Vec<String>);

impl Nbdkit {
    /// Splits arguments at spaces.
    pub fn new(arguments: &str) -> Self {
        Self(arguments.split_whitespace().map(str::to_owned).collect())
    }
}

impl Server for Nbdkit {
    fn command(&self, socket: &Path) -> Command {
        let mut command = Command::new("nbdkit");
        command.arg("--foreground").arg("--unix").arg(socket).args(&self.0);
        command
    }
}

/// qemu-nbd on an image.
#[derive(Clone, Debug)]
pub struct QemuNbd {
    /// The image, in raw format.
    pub image: PathBuf,
    /// Further arguments.
    pub arguments: Vec<String>,
}

impl Server for QemuNbd {
    fn command(&self, socket: &Path) -> Command {
        let mut command = Command::new("qemu-nbd");
        // Persistent: it serves on after the last client has left. Several clients at a time: each
        // connection is one.
        command.args(["--persistent", "--shared=8", "--format=raw", "--export-name=", "--socket"]);
        command.arg(socket).args(&self.arguments).arg(&self.image);
        command
    }
}
