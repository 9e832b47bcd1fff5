//! Where the bytes of an archive, a manifest or a single file come from.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Time between two checks of the flag that cancels the copy.
const CHECK_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Bytes that a copy reads once from their beginning to their end: a file, or what the caller has
/// open.
pub struct Input<'a> {
    name: String,
    source: Source<'a>,
}

enum Source<'a> {
    File(PathBuf),
    Open(BorrowedFd<'a>),
    Reader(Box<dyn Read + 'a>),
}

impl<'a> Input<'a> {
    /// Reads the file at `path`, which is opened when the copy comes to it.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { name: path.display().to_string(), source: Source::File(path) }
    }

    /// Reads an open file, such as standard input, which messages call `name`. A read that waits
    /// for bytes ends when the copy is cancelled.
    pub fn open(file: BorrowedFd<'a>, name: impl Into<String>) -> Self {
        Self { name: name.into(), source: Source::Open(file) }
    }

    /// Reads what `reader` returns, which messages call `name`. A read that waits for bytes also
    /// delays a cancellation.
    pub fn reader(reader: impl Read + 'a, name: impl Into<String>) -> Self {
        Self { name: name.into(), source: Source::Reader(Box::new(reader)) }
    }

    /// Returns what messages call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its name, and its bytes. Reads fail once `cancel` is true.
    pub(crate) fn into_reader(self, cancel: Option<&'a AtomicBool>) -> Result<(String, Box<dyn Read + 'a>)> {
        let Self { name, source } = self;
        let reader: Box<dyn Read> = match source {
            Source::File(path) => {
                Box::new(Interruptible { file: File::open(path).with_context(|| name.clone())?, cancel })
            }
            Source::Open(file) => Box::new(Interruptible { file, cancel }),
            Source::Reader(reader) => reader,
        };
        Ok((name, reader))
    }
}

/// Reads a file without a buffer. A read fails after the copy was cancelled, also while no input
/// comes.
struct Interruptible<'a, F> {
    file: F,
    cancel: Option<&'a AtomicBool>,
}

impl<F: AsFd> Read for Interruptible<'_, F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
                // Not `ErrorKind::Interrupted`, after which callers try again.
                return Err(io::Error::other("interrupted"));
            }
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&CHECK_AFTER)) {
                Ok(0) | Err(Errno::INTR) => {}
                ready => {
                    ready?;
                    return Ok(rustix::io::read(&self.file, bytes)?);
                }
            }
        }
    }
}
