//! [`Counter`]: a number that a device reports about itself.

/// A number that a device reports about itself, for its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name of the number in lower case, with words separated by `_`, such as `reconnects`. A
    /// number of bytes ends in `_bytes`.
    pub name: &'static str,
    /// Value of the number now.
    pub value: u64,
}
