//! A writer that fails for good at its first error.

use std::io::{self, ErrorKind, Write};

/// Writes nothing more once a write or a flush has failed, so that no later success hides the bytes
/// that are missing.
pub struct FailStop<W> {
    inner: W,
    has_failed: bool,
}

impl<W> FailStop<W> {
    pub fn new(inner: W) -> Self {
        Self { inner, has_failed: false }
    }

    fn attempt<R>(&mut self, write: impl FnOnce(&mut W) -> io::Result<R>) -> io::Result<R> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write failed"));
        }
        let result = write(&mut self.inner);
        // Writers retry an interrupted write.
        self.has_failed = result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Interrupted);
        result
    }
}

impl<W: Write> Write for FailStop<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(|inner| inner.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt(Write::flush)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufWriter;

    use super::*;

    /// Fails at the first write.
    #[derive(Default)]
    struct FailsOnce {
        writes: u32,
    }

    impl Write for FailsOnce {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.writes += 1;
            if self.writes == 1 { Err(ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_written_after_an_error() {
        let mut output = BufWriter::with_capacity(4, FailStop::new(FailsOnce::default()));
        output.write_all(b"abc").unwrap();
        assert_eq!(output.write_all(b"def").unwrap_err().kind(), ErrorKind::StorageFull);
        assert!(output.flush().is_err());
        assert_eq!(output.into_parts().0.inner.writes, 1);
    }
}
