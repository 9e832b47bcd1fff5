//! [`LockOwner`]: the client that holds the lock of a device on a network.

/// Client that holds the lock of a device, as the servers of the device know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// Name of the client for messages, with its address.
    pub name: String,
    /// Whether the servers still hear from the client. A client that died or was stopped counts as
    /// alive until its session times out.
    pub alive: bool,
}
