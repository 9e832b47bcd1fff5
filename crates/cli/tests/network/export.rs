//! An image file that nbdkit serves on a Unix socket.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use testkit::command::{ScratchImage, text};
use testkit::poll::until;
use testkit::skipped;

/// A server and its image; the server ends when this is dropped.
pub struct Export {
    scratch: ScratchImage,
    server: Child,
}

impl Export {
    /// Serves an image of 64 MiB of zeros. `None`, after a call of [`skipped`], if nbdkit is not
    /// installed.
    pub fn new() -> Option<Self> {
        let scratch = ScratchImage::empty();
        std::fs::File::create(scratch.image()).unwrap().set_len(64 << 20).unwrap();
        Self::serve(scratch, &[])
    }

    /// Ends the server, and serves the image read-only.
    pub fn into_read_only(mut self) -> Option<Self> {
        self.end();
        std::fs::remove_file(self.path("socket")).unwrap();
        Self::serve(std::mem::replace(&mut self.scratch, ScratchImage::empty()), &["--readonly"])
    }

    fn serve(scratch: ScratchImage, options: &[&str]) -> Option<Self> {
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--unix", &text(&scratch.path("socket"))]);
        command.args(options).args(["file", &text(&scratch.image())]).stdin(Stdio::null());
        let Ok(server) = command.spawn() else {
            skipped("nbdkit is not installed");
            return None;
        };
        let export = Self { scratch, server };
        assert!(until(|| UnixStream::connect(export.path("socket")).is_ok()), "nbdkit does not listen");
        Some(export)
    }

    fn end(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }

    /// Returns the URL of the export.
    pub fn url(&self) -> String {
        format!("nbd+unix:///?socket={}", text(&self.path("socket")))
    }

    /// Returns the URL followed by a path in the volume.
    pub fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.url())
    }

    /// Returns a path in the temporary directory.
    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path(name)
    }

    /// Runs a command, which must succeed without messages. Returns its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.scratch.ok(arguments)
    }

    /// Runs a command, which must fail with one line of message. Returns the line.
    pub fn fails(&self, arguments: &[&str]) -> String {
        self.scratch.fails(arguments)
    }

    /// Asserts that e2fsck finds no error in the image.
    pub fn fsck(&self) {
        self.scratch.fsck();
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.end();
    }
}
