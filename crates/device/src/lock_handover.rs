//! A lock that stays on a file while a process that had it open for reading closes it and opens it
//! for writing.
//!
//! A flock(2) lock belongs to an open file, and a file that was opened for reading cannot become
//! one for writing. If the process closed one and locked the other, a lock for which another
//! process waits would be granted in between. So the lock passes from file to file:
//!
//! 1. The process holds a shared lock on a third file, the handover, and closes the first file.
//! 2. The new file gets a shared lock, and the handover is unlocked.
//! 3. The shared lock of the new file becomes exclusive. The kernel releases and acquires in one
//!    step, so no waiting process gets the lock in between. The step fails if another process holds
//!    a shared lock, too. The new file has lost its lock then, and the handover acquires a shared
//!    lock again: the other shared lock keeps out a process that waits for an exclusive one.
//!
//! A device that was opened with a handover and closes while the handover exists passes the lock
//! back in the same way.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// Longest wait for a lock that another process holds for a moment.
const HELD_WITHIN: Duration = Duration::from_secs(5);
/// Time between two attempts to open or lock a file.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Keeps the lock of a file while its device is closed and opened again. Clones share one lock,
/// which is released with the last clone. A device to which the lock has passed keeps it.
#[derive(Clone, Debug)]
pub struct LockHandover(Arc<File>);

/// A handover to which the lock passes back, if it still exists.
#[derive(Debug)]
pub(crate) struct LockReturn(Weak<File>);

impl LockHandover {
    /// Locks the file at `path` against writers. A device of the caller may also hold such a lock.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`] if a writer has the file open. Messages name the path.
    pub fn hold(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        // A FIFO in place of the file must not block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
        let held = file.and_then(|file| {
            retry_while_busy(HELD_WITHIN, || flock(&file, FlockOperation::NonBlockingLockShared))?;
            Ok(Self(Arc::new(file)))
        });
        held.map_err(|error| {
            let kind = if error == Errno::WOULDBLOCK {
                ErrorKind::ResourceBusy
            } else {
                io::Error::from(error).kind()
            };
            io::Error::new(kind, format!("{}: {error}", path.display()))
        })
    }

    /// Gives `file` an exclusive lock. If other processes have shared locks, the handover keeps the
    /// lock.
    pub(crate) fn pass_to(&self, file: &File) -> rustix::io::Result<()> {
        flock(file, FlockOperation::NonBlockingLockShared)?;
        flock(&*self.0, FlockOperation::Unlock)?;
        let passed = flock(file, FlockOperation::NonBlockingLockExclusive);
        if passed.is_err() {
            self.hold_again();
        }
        passed
    }

    fn hold_again(&self) {
        let lock = || flock(&*self.0, FlockOperation::NonBlockingLockShared);
        if let Err(error) = retry_while_busy(HELD_WITHIN, lock) {
            log::error!("a lock is lost: {error}");
        }
    }

    pub(crate) fn downgrade(&self) -> LockReturn {
        LockReturn(Arc::downgrade(&self.0))
    }
}

impl LockReturn {
    /// Passes the lock of `file` back to the handover, if that exists.
    pub(crate) fn pass_back(&self, file: &File) {
        let Some(handover) = self.0.upgrade().map(LockHandover) else { return };
        // The holder of an exclusive lock gets a shared one at once.
        let _ = flock(file, FlockOperation::NonBlockingLockShared);
        handover.hold_again();
    }
}

/// Two handovers are equal if they share one lock.
impl PartialEq for LockHandover {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LockHandover {}

/// Repeats `attempt` for up to `time` while the file is in use.
pub(crate) fn retry_while_busy<T>(
    time: Duration,
    mut attempt: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(Errno::BUSY | Errno::WOULDBLOCK) if start.elapsed() < time => sleep(RETRY_AFTER),
            done => return done,
        }
    }
}
