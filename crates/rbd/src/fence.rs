//! [`Fence`]: whether this client has lost the image to another client, and the errors of its requests.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;

use crate::errno::errno;

/// State of a client that holds the image's lock, or reads the image.
const OPEN: u8 = 0;
/// The cluster refuses all requests of this client.
const BLOCKLISTED: u8 = 1;
/// The lock was removed without a blocklist entry, and librbd has found that out.
const LOCK_LOST: u8 = 2;

/// Remembers that this client was fenced. An entry of the blocklist expires, so a client that has seen one answer of it must
/// not write again, even if the cluster would let it.
#[derive(Debug, Default)]
pub(crate) struct Fence(AtomicU8);

impl Fence {
    /// Fails once this client was fenced.
    pub(crate) fn check(&self) -> io::Result<()> {
        // Relaxed: the value publishes nothing but itself.
        match self.0.load(Ordering::Relaxed) {
            OPEN => Ok(()),
            state => Err(fenced(state)),
        }
    }

    /// Returns the error of a request that librbd failed with the negative number `code`. `is_change` says whether it was a
    /// write, a discard or a flush of a device that may be written.
    pub(crate) fn error(&self, code: isize, is_change: bool) -> io::Error {
        let errno = errno(code);
        let state = match errno {
            Errno::SHUTDOWN => BLOCKLISTED,
            // librbd's answer to a client that acquired the lock and has lost it.
            Errno::ROFS if is_change => LOCK_LOST,
            _ => return errno.into(),
        };
        self.0.store(state, Ordering::Relaxed);
        fenced(state)
    }
}

fn fenced(state: u8) -> io::Error {
    let message = match state {
        BLOCKLISTED => {
            "fenced: another client took over the image; this client is on the cluster's blocklist"
        }
        _ => "fenced: this client has lost the exclusive lock of the image",
    };
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fenced_client_stays_fenced() {
        let fence = Fence::default();
        fence.check().unwrap();
        assert_eq!(fence.error(-5, true).raw_os_error(), Some(5));
        assert_eq!(fence.error(-30, false).raw_os_error(), Some(30));
        fence.check().unwrap();
        let error = fence.error(-108, false);
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fence.check().unwrap_err().to_string(), error.to_string());
        let fence = Fence::default();
        assert!(fence.error(-30, true).to_string().contains("lost the exclusive lock"));
        fence.check().unwrap_err();
    }
}
