//! [`Sharing`]: whether other machines can open a device, and what keeps them from writing.

/// Whether other machines can open a device, and what keeps them from writing while this opener may
/// write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// Only this machine reaches the device. A lock of its file, if the options asked for one,
    /// excludes other openers.
    Local,
    /// Other machines may reach the device, such as a disk of a storage network, and the device
    /// does not keep them from writing. A lock of its file excludes other openers on this machine
    /// only.
    Unknown,
    /// Other machines reach the device, and the device does not keep them from writing.
    Unfenced,
    /// Other machines reach the device. This opener holds a lock on it; from the moment that
    /// another one breaks the lock, the device refuses every write of this opener, also writes in
    /// flight.
    Fenced,
    /// The bytes of the device cannot change: it is a snapshot.
    Immutable,
}

impl Sharing {
    /// Returns whether other machines are known to reach the device, and can write to it unless
    /// something keeps them from it.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Unfenced | Self::Fenced)
    }
}
