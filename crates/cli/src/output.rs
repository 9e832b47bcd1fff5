//! Standard output, with errors that name it.

use std::io::{self, IsTerminal, StdoutLock, Write};

/// The locked standard output. Its errors keep their kind.
pub struct Output(StdoutLock<'static>);

/// Locks the standard output.
pub fn lock() -> Output {
    Output(io::stdout().lock())
}

impl Output {
    /// Returns true if a terminal shows the output.
    pub fn is_terminal(&self) -> bool {
        self.0.is_terminal()
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
    // `write_all` retries these.
    if error.kind() == io::ErrorKind::Interrupted {
        return error;
    }
    io::Error::new(error.kind(), format!("standard output: {error}"))
}
