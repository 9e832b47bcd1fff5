//! [`Fence`]: whether this client may still use the image, and the errors of its requests.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;

use crate::errno::errno;

/// State of a client that may use the image: it holds the lock, or only reads.
const OPEN: u8 = 0;
/// State of a client whose requests the cluster refuses.
const BLOCKLISTED: u8 = 1;
/// State of a client whose lock was removed without a blocklist entry, which librbd has noticed.
const LOCK_LOST: u8 = 2;
/// State after the cluster did not answer a request in time. The cluster may still perform it.
const SILENT: u8 = 3;

/// Remembers that this client was fenced, or that the cluster did not answer it. An entry of the
/// blocklist expires, so a client that was refused once must not write again, even if the cluster
/// would accept the write.
#[derive(Debug)]
pub(crate) struct Fence {
    state: AtomicU8,
    /// Time in seconds after which a request without an answer fails.
    reconnect_timeout: u64,
}

impl Fence {
    pub(crate) fn new(reconnect_timeout: u64) -> Self {
        Self { state: AtomicU8::new(OPEN), reconnect_timeout }
    }

    /// Fails if this client was fenced, or the cluster did not answer one of its requests.
    pub(crate) fn check(&self) -> io::Result<()> {
        // Relaxed, because the value publishes no other memory.
        match self.state.load(Ordering::Relaxed) {
            OPEN => Ok(()),
            state => Err(self.stopped(state)),
        }
    }

    /// Returns whether the cluster did not answer a request in time.
    pub(crate) fn is_silent(&self) -> bool {
        self.state.load(Ordering::Relaxed) == SILENT
    }

    /// Returns the error of a request for which librbd returned the negative number `code`.
    /// `is_change` is true for a write, a discard or a flush on a writable device.
    pub(crate) fn error(&self, code: isize, is_change: bool) -> io::Error {
        let errno = errno(code);
        let state = match errno {
            Errno::SHUTDOWN => BLOCKLISTED,
            // librbd answers so if the client acquired the lock and has lost it.
            Errno::ROFS if is_change => LOCK_LOST,
            Errno::TIMEDOUT => SILENT,
            _ => return errno.into(),
        };
        // Keeps the first reason.
        let first = self.state.compare_exchange(OPEN, state, Ordering::Relaxed, Ordering::Relaxed);
        self.stopped(first.map_or_else(|first| first, |_| state))
    }

    fn stopped(&self, state: u8) -> io::Error {
        let fenced = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, format!("fenced: {why}"));
        match state {
            BLOCKLISTED => {
                fenced("another client took over the image; this client is on the cluster's blocklist")
            }
            LOCK_LOST => fenced("this client has lost the exclusive lock of the image"),
            _ => {
                let message = format!("stopped: the cluster did not answer for {} s", self.reconnect_timeout);
                io::Error::new(io::ErrorKind::TimedOut, message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fenced_client_stays_fenced() {
        let fence = Fence::new(300);
        fence.check().unwrap();
        assert_eq!(fence.error(-5, true).raw_os_error(), Some(5));
        assert_eq!(fence.error(-30, false).raw_os_error(), Some(30));
        fence.check().unwrap();
        let error = fence.error(-108, false);
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fence.check().unwrap_err().to_string(), error.to_string());
        let fence = Fence::new(300);
        assert!(fence.error(-30, true).to_string().contains("lost the exclusive lock"));
        fence.check().unwrap_err();
    }

    #[test]
    fn a_client_without_an_answer_sends_nothing_more() {
        let fence = Fence::new(20);
        let error = fence.error(-110, false);
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("did not answer for 20 s"), "{error}");
        assert!(fence.is_silent());
        // The answer to another request comes later.
        assert_eq!(fence.error(-108, true).kind(), io::ErrorKind::TimedOut);
        fence.check().unwrap_err();
    }
}
