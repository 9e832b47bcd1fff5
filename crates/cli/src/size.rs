//! Sizes in bytes: 512, 64K, 1.5G, 4GB.

pub use parext4_storage::parse_size as parse;

/// Formats a number of bytes in the largest unit that leaves a number of at least 1.
pub fn display(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}
