//! [`Counter`]: a number that a device reports about itself.

/// A number that a device reports about itself, for people who watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its name in lower case, with words separated by `_`, such as `reconnects`. A number of bytes ends in `_bytes`.
    pub name: &'static str,
    /// Its value now.
    pub value: u64,
}
