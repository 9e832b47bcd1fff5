//! Kinds of servers of NBD: nbdkit and qemu-nbd, on images in memory and in files.

use std::path::{Path, PathBuf};

use crate::command::{Cmd, cmd};
use crate::nbdkit::{self, ONE_THREAD};

/// A kind of server.
pub struct Kind {
    /// Its name, for `--server`.
    pub name: &'static str,
    /// Returns the command of the server. It names the image and the socket.
    pub(super) command: fn(&ServerFiles) -> Cmd,
    /// Where the bytes of the image are.
    pub(super) store: Store,
    /// How clients reach the server.
    pub(super) link: Link,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    /// The server's memory.
    Memory,
    /// The image file.
    File,
    /// A file of the format qcow2.
    Qcow2,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// A Unix socket.
    Direct,
    /// A Unix socket of a proxy that cuts connections.
    Cut,
    /// TCP with TLS.
    Tls,
}

/// nbdkit with the image in its memory, where a kill loses it.
pub const MEMORY: Kind = Kind {
    name: "nbdkit-memory",
    command: |place| nbdkit(place, "").arg("memory").arg(place.size.to_string()),
    store: Store::Memory,
    link: Link::Direct,
};
/// nbdkit with a file. A write is in the kernel's page cache when it is answered, so a kill loses
/// no answered write.
pub const FILE: Kind = Kind {
    name: "nbdkit-file",
    command: |place| nbdkit(place, "").arg("file").arg(&place.image),
    store: Store::File,
    link: Link::Direct,
};
/// Like [`FILE`], over TCP with TLS.
pub const TLS: Kind = Kind {
    name: "nbdkit-tls",
    command: |place| {
        cmd("nbdkit")
            .args("--foreground --exit-with-parent --ipaddr 127.0.0.1 --tls=require")
            .arg(format!("--port={}", place.port))
            .arg(format!("--tls-certificates={}", place.certificates.display()))
            .arg("file")
            .arg(&place.image)
    },
    store: Store::File,
    link: Link::Tls,
};
/// Like [`FILE`], each request delayed.
pub const DELAY: Kind = Kind {
    name: "nbdkit-delay",
    command: |place| {
        nbdkit(place, "--filter=delay").arg("file").arg(&place.image).args("rdelay=1ms wdelay=2ms")
    },
    store: Store::File,
    link: Link::Direct,
};
/// Like [`FILE`], one connection at a time.
pub const LIMIT: Kind = Kind {
    name: "nbdkit-limit",
    command: |place| nbdkit(place, "--filter=limit").arg("file").arg(&place.image).arg("limit=1"),
    store: Store::File,
    link: Link::Direct,
};
/// Like [`FILE`], and each connection is cut after a random number of bytes, in the middle of
/// messages.
pub const CUT: Kind = Kind {
    name: "nbdkit-cut",
    command: |place| nbdkit(place, ONE_THREAD).arg("file").arg(&place.image),
    store: Store::File,
    link: Link::Cut,
};
/// nbdkit with a file and a cache in an unlinked file. A kill loses every write that no answered
/// flush covers.
pub const CACHE: Kind = Kind {
    name: "nbdkit-cache",
    command: |place| {
        nbdkit(place, "--filter=cache")
            .arg("file")
            .arg(&place.image)
            .arg("cache=writeback")
            .env("TMPDIR", place.image.parent().unwrap_or(Path::new("/tmp")))
    },
    store: Store::File,
    link: Link::Direct,
};
/// Like [`FILE`]; while the file `trigger` exists beside the image, writes fail because the device
/// is full.
pub const FULL: Kind = Kind {
    name: "nbdkit-full",
    command: |place| {
        nbdkit(place, "--filter=error")
            .arg("file")
            .arg(&place.image)
            .args("error-pwrite=ENOSPC error-pwrite-rate=100% error-zero=ENOSPC error-zero-rate=100%")
            .arg(format!("error-file={}", place.trigger().display()))
    },
    store: Store::File,
    link: Link::Direct,
};
/// Like [`FILE`]; while the file `trigger` exists beside the image, a tenth of all requests fails.
pub const ERRORS: Kind = Kind {
    name: "nbdkit-errors",
    command: |place| {
        nbdkit(place, "--filter=error")
            .arg("file")
            .arg(&place.image)
            .args("error=EIO error-rate=10%")
            .arg(format!("error-file={}", place.trigger().display()))
    },
    store: Store::File,
    link: Link::Direct,
};
/// Like [`FILE`], cut to half of the volume.
pub const SHORT: Kind = Kind {
    name: "nbdkit-short",
    command: |place| {
        nbdkit(place, "--filter=truncate")
            .arg("file")
            .arg(&place.image)
            .arg(format!("truncate={}", place.size / 2))
    },
    store: Store::File,
    link: Link::Direct,
};
/// qemu-nbd with a file.
pub const QEMU: Kind = Kind {
    name: "qemu-nbd-file",
    command: |place| qemu_nbd(place, "raw"),
    store: Store::File,
    link: Link::Direct,
};
/// qemu-nbd with an image of its own format. A kill loses the places of clusters that were
/// allocated since the last flush.
pub const QCOW2: Kind = Kind {
    name: "qemu-nbd-qcow2",
    command: |place| qemu_nbd(place, "qcow2"),
    store: Store::Qcow2,
    link: Link::Direct,
};

fn nbdkit(place: &ServerFiles, options: &str) -> Cmd {
    nbdkit::nbdkit(&place.socket).args(options)
}

fn qemu_nbd(place: &ServerFiles, format: &str) -> Cmd {
    cmd("qemu-nbd")
        .args("--persistent --shared=16 --cache=writeback --discard=unmap")
        .arg(format!("--format={format}"))
        .arg("--socket")
        .arg(&place.socket)
        .arg(&place.image)
}

/// The files of a server, and the size of its image in bytes.
pub struct ServerFiles {
    pub(super) image: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) certificates: PathBuf,
    pub(super) log: PathBuf,
    pub(super) port: u16,
    pub(super) size: u64,
}

impl ServerFiles {
    /// Returns the file that makes requests fail while it exists.
    pub(super) fn trigger(&self) -> PathBuf {
        self.image.with_extension("trigger")
    }

    /// Returns the file for a copy of the image.
    pub(super) fn copy(&self) -> PathBuf {
        self.image.with_extension("copy")
    }
}
