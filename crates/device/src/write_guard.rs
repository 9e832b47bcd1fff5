//! [`WriteGuard`]: what a device of a network asks before a write leaves this machine.

use std::fmt::Debug;
use std::io;

/// Reads from a device that has connected again, while its calls still wait for the connection:
/// `read(offset, bytes)`.
pub type ReadNow<'a> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a;

/// Decides whether this machine still owns a volume. A device asks it if only the protocol of the
/// volume keeps two machines from writing at the same time.
///
/// A check by the caller of a device is too early: a process can be stopped, or a connection be
/// lost, between that check and the system call that sends the bytes. So the device asks at the
/// last moment.
pub trait WriteGuard: Send + Sync + Debug {
    /// Returns true if writes may be sent now. Does not block.
    ///
    /// If it returns false, the device sends nothing more on its connections. It connects again and
    /// asks [`may_resend`](Self::may_resend).
    fn may_write(&self) -> bool;

    /// Finds out by reading from the device, over the new connection, whether this machine still
    /// owns the volume.
    ///
    /// # Errors
    /// This machine no longer owns the volume, or reading failed. After
    /// [`io::ErrorKind::PermissionDenied`] the device fails every later write with this error;
    /// after another error it connects once more.
    fn may_resend(&self, read: &mut ReadNow<'_>) -> io::Result<()>;
}
