//! How much a check runs.

/// The amount of work of a step or campaign. All amounts make the same assertions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One quick case of each kind, for `cargo xtask test`.
    Quick,
    /// A sample of all cases, for `cargo xtask test --full`.
    Full,
    /// The whole campaign.
    Long,
}

impl Scope {
    /// Returns `long` for the whole campaign, else `short`.
    pub fn pick<T>(self, short: T, long: T) -> T {
        if self == Scope::Long { long } else { short }
    }

    /// Returns `quick` for the quick form, else `other`.
    pub fn quick_or<T>(self, quick: T, other: T) -> T {
        if self == Scope::Quick { quick } else { other }
    }

    /// Returns the first of `all` items for the quick form, else all.
    pub fn first<T>(self, all: &[T]) -> &[T] {
        self.quick_or(&all[..all.len().min(1)], all)
    }
}
