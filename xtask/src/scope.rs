//! How much a check runs.

/// The amount of work of a campaign. Both amounts make the same assertions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The part that each run of the tests makes.
    Short,
    /// The whole campaign.
    Long,
}

impl Scope {
    /// Returns `short` or `long`, by the scope.
    pub fn pick<T>(self, short: T, long: T) -> T {
        match self {
            Scope::Short => short,
            Scope::Long => long,
        }
    }
}
