//! The paths whose prose is finished: an excluded phrase in them fails the check.

/// Path prefixes of files and folders, one a line and sorted, relative to the root of the workspace.
const FINISHED: &[&str] = &[
    //
    "crates/format/",
    "crates/rangelock/",
    "xtask/src/tidy/",
];

/// Returns true if the prose of `file` must be free of excluded phrases.
pub fn covers(file: &str) -> bool {
    FINISHED.iter().any(|path| file.starts_with(path))
}
