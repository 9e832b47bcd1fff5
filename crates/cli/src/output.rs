//! Standard output, buffered, with errors that name it.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use anyhow::Result;

/// Bytes that are written at a time, unless a terminal shows the output: then each line is written
/// when it ends.
const BUFFER: usize = 1 << 16;

/// The locked standard output. Its errors keep their kind.
pub struct Output(BufWriter<StdoutLock<'static>>);

/// Locks the standard output for `write`, and writes what is buffered in the end, also if `write`
/// fails.
///
/// # Errors
/// The error of `write`, or else of the output.
pub fn print(write: impl FnOnce(&mut Output) -> Result<()>) -> Result<()> {
    let stdout = io::stdout().lock();
    let buffer = if stdout.is_terminal() { 0 } else { BUFFER };
    let mut out = Output(BufWriter::with_capacity(buffer, stdout));
    let written = write(&mut out);
    let flushed = out.flush();
    written?;
    Ok(flushed?)
}

/// Locks the standard output. Each line is written when it ends, and what is longer than a buffer
/// at once.
pub fn by_line() -> Output {
    Output(BufWriter::with_capacity(0, io::stdout().lock()))
}

impl Output {
    /// Returns true if a terminal shows the output.
    pub fn is_terminal(&self) -> bool {
        self.0.get_ref().is_terminal()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    match error.kind() {
        // `write_all` retries these.
        io::ErrorKind::Interrupted => error,
        kind @ io::ErrorKind::BrokenPipe => io::Error::new(kind, ReaderEnded),
        kind => io::Error::new(kind, format!("standard output: {error}")),
    }
}

/// The process that was to read the output has ended, as in `parext4 cat ... | head`.
#[derive(Debug)]
struct ReaderEnded;

impl fmt::Display for ReaderEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output: broken pipe")
    }
}

impl std::error::Error for ReaderEnded {}

/// Returns true if the error is that the reader of the output has ended.
pub fn has_no_reader(error: &anyhow::Error) -> bool {
    let errors = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()?.get_ref());
    errors.into_iter().any(|inner| inner.is::<ReaderEnded>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn only_the_output_counts_as_one_without_a_reader() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let error = Err::<(), _>(named(broken())).context("a.img:/f").unwrap_err();
        assert!(has_no_reader(&error));
        assert_eq!(format!("{error:#}"), "a.img:/f: standard output: broken pipe");
        // A server of a device has closed its connection.
        assert!(!has_no_reader(&broken().into()));
        assert!(!has_no_reader(&named(io::ErrorKind::StorageFull.into()).into()));
    }
}
