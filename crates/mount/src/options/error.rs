//! Why options were refused.

/// Why a list of mount options was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// No such option exists.
    #[error("unknown mount option {0:?}")]
    Unknown(String),
    /// Another program or ext4 supports the option, but parext4 does not.
    #[error("mount option {option:?} is not supported: {because}")]
    Unsupported {
        /// The option.
        option: String,
        /// The reason, and what to use instead.
        because: &'static str,
    },
    /// The value of an option is invalid.
    #[error("mount option {option:?}: expected {expected}")]
    Value {
        /// The option with its value.
        option: String,
        /// Describes the valid values.
        expected: &'static str,
    },
}
